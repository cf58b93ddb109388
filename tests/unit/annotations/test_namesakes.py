"""API: classes that were loaded twice count as one if name and fields are equal; values become the taker's own."""

import gc
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from enum import Enum, Flag
from types import SimpleNamespace
from typing import Any, ClassVar, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.annotations.class_conversion import (
    CachingConverter,
    ClassConverter,
    build_input_converter,
    find_mismatches,
    find_unconvertible,
    substitute_classes,
)
from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.annotations.variants import find_difference, is_same_declaration

T = TypeVar("T")


class Foreign:
    """A class that nobody knows the fields of, loaded once."""


def load() -> Any:
    """Load a module's classes: once more with every call."""

    class Side(Enum):
        BUY = "buy"
        SELL = "sell"

    class Traits(Flag):
        DARK = 1
        IOC = 2

    class Level(tm.Boundary):
        price: float
        side: Side = Side.BUY

    class Pair(NamedTuple):
        best: Level
        size: int

    class Row(TypedDict):
        level: Level
        note: str

    @dataclass(frozen=True, slots=True)
    class Note:
        text: str
        about: Level | None
        words: int = field(init=False, default=7)
        seed: InitVar[int] = 0
        kind: ClassVar[str] = "note"

    class Plain:
        def __init__(self, level: Level) -> None:
            self.level = level
            self.__hidden = level.price

        def hidden(self) -> float:
            return self.__hidden

    class Held(Plain):
        level: Level

    class Box(msgspec.Struct, Generic[T]):
        content: T

    class Book(tm.Boundary, kw_only=True, rename="camel", tag=True):
        levels: list[Level]
        by_side: dict[Side, Level]
        pair: Pair
        rest: tuple[Level, ...] = ()
        both: tuple[int, Level] | None = None
        row: Row | None = None
        note: Note | None = None
        box: Box[Level] | None = None
        held: Held | None = None
        traits: Traits = Traits.DARK
        anything: Any = None
        foreign: Foreign | None = None

    class Quote(tm.Boundary):
        price: float

    class Tree(msgspec.Struct):
        value: Level
        branches: list[Any]

    Tree.__annotations__["branches"] = list[Tree]

    class Loose(msgspec.Struct):
        price: float

    Price = NewType("Price", Quote)
    return SimpleNamespace(**locals())


HERE, THERE = load(), load()


def whole(place: Any) -> Any:
    """Return a value with something of everything inside."""
    level = place.Level(1.5, place.Side.SELL)
    note = place.Note("hello", level)
    object.__setattr__(note, "words", 3)
    return place.Book(
        levels=[level, place.Level(2)],
        by_side={place.Side.BUY: level},
        pair=place.Pair(level, 3),
        rest=(level,),
        both=(1, level),
        row={"level": level, "note": "x"},
        note=note,
        box=place.Box(level),
        held=place.Held(level),
        traits=place.Traits.DARK | place.Traits.IOC,
        anything={"a": [1]},
        foreign=FOREIGN,
    )


FOREIGN = Foreign()


def test_every_field_becomes_ones_own() -> None:
    """API: nested structs, enums, containers, named tuples, dataclasses and plain objects."""
    made = ClassConverter(HERE.Book)(whole(THERE))
    level = HERE.Level(1.5, HERE.Side.SELL)
    assert type(made) is HERE.Book
    assert made.levels == [level, HERE.Level(2)]
    assert made.by_side == {HERE.Side.BUY: level}
    assert (type(made.pair), made.pair) == (HERE.Pair, (level, 3))
    assert (made.rest, made.both, made.row) == ((level,), (1, level), {"level": level, "note": "x"})
    assert (type(made.note), made.note.about, made.note.words) == (HERE.Note, level, 3)
    assert (made.box, type(made.held), made.held.level) == (HERE.Box(level), HERE.Held, level)
    assert made.held.hidden() == 1.5
    assert made.traits is HERE.Traits.DARK | HERE.Traits.IOC
    assert made.foreign is FOREIGN


def test_what_is_the_same_on_both_sides_is_handed_on_as_it_is() -> None:
    """API: nothing is converted, checked or copied that need not be."""
    given = whole(THERE)
    assert ClassConverter(HERE.Book)(given).anything is given.anything
    odd = THERE.Quote("not a float")
    assert ClassConverter(HERE.Quote)(odd) == HERE.Quote("not a float")
    own = whole(HERE)
    assert ClassConverter(HERE.Book)(own) is own
    assert ClassConverter(HERE.Book | None)(None) is None


@pytest.mark.parametrize(
    ("annotation", "given", "made"),
    [
        (list[HERE.Level], [THERE.Level(1)], [HERE.Level(1)]),
        (Sequence[HERE.Level], (THERE.Level(1),), (HERE.Level(1),)),
        (Mapping[str, HERE.Level], {"a": THERE.Level(1)}, {"a": HERE.Level(1)}),
        (frozenset[HERE.Level], frozenset([THERE.Level(1)]), frozenset([HERE.Level(1)])),
        (deque[HERE.Level], deque([THERE.Level(1)], maxlen=3), deque([HERE.Level(1)], maxlen=3)),
        (defaultdict[str, HERE.Level], defaultdict(int, a=THERE.Level(1)), defaultdict(int, a=HERE.Level(1))),
        (HERE.Level | HERE.Quote, THERE.Quote(2), HERE.Quote(2)),
        (list[HERE.Level | HERE.Quote], [THERE.Quote(2), THERE.Level(1)], [HERE.Quote(2), HERE.Level(1)]),
        (Optional[HERE.Level], THERE.Level(1), HERE.Level(1)),  # noqa: UP045 - as some authors write
        (HERE.Box[HERE.Level], THERE.Box(THERE.Level(1)), HERE.Box(HERE.Level(1))),
        (HERE.Box[HERE.Level], HERE.Box(THERE.Level(1)), HERE.Box(HERE.Level(1))),
        (HERE.Price, THERE.Quote(1), HERE.Quote(1)),
        (Literal["a"] | HERE.Level, "a", "a"),
        (int | HERE.Level, 5, 5),
    ],
)
def test_values_inside_annotations_become_ones_own(annotation: Any, given: Any, made: Any) -> None:
    """API: lists, unions, generics."""
    got = ClassConverter(annotation)(given)
    assert got == made
    assert type(got) is type(made)
    assert getattr(got, "maxlen", None) == getattr(made, "maxlen", None)


def test_a_kind_of_a_class_becomes_the_class_that_is_declared() -> None:
    """API: the graph's package may not even have that kind."""

    class Deep(THERE.Quote):  # type: ignore[name-defined,misc]
        depth: int

    assert ClassConverter(HERE.Quote)(Deep(1.0, depth=3)) == HERE.Quote(1.0)


def test_classes_that_differ_are_left_alone() -> None:
    """API: compared by qualified name and schema."""
    assert isinstance(ClassConverter(HERE.Level)(THERE.Quote(1)), THERE.Quote)


def level(place: Any) -> st.SearchStrategy[Any]:
    """Levels of one place."""
    return st.builds(place.Level, st.floats(allow_nan=False), st.sampled_from(place.Side))


def tree(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Trees with others as their branches."""
    return st.builds(THERE.Tree, level(THERE), st.lists(inner, max_size=3))


def all_of(tree: Any) -> list[Any]:
    """Return a tree, and all inside it."""
    return [tree, tree.value, *(one for branch in tree.branches for one in all_of(branch))]


@given(st.recursive(st.builds(THERE.Tree, level(THERE), st.just([])), tree, max_leaves=8))
def test_there_and_back_is_the_same(value: Any) -> None:
    """API: nothing is lost on the way, however deep it is."""
    made = ClassConverter(HERE.Tree)(value)
    assert {type(one) for one in all_of(made)} == {HERE.Tree, HERE.Level}
    assert ClassConverter(THERE.Tree)(made) == value


@given(st.lists(level(THERE), max_size=5))
def test_lists_there_and_back_are_the_same(values: list[Any]) -> None:
    """API: element by element."""
    made = ClassConverter(list[HERE.Level])(values)
    assert all(type(one) is HERE.Level for one in made)
    assert ClassConverter(list[THERE.Level])(made) == values


def test_what_was_loaded_elsewhere_can_go() -> None:
    """P-6: whoever takes values of another package does not keep its classes alive."""
    place = load()
    rebuild, admission = ClassConverter(HERE.Book), TypeValidator(HERE.Book)
    assert type(rebuild(whole(place))) is type(admission.validate(whole(place))) is HERE.Book
    gone = weakref.ref(place.Book)
    del place
    gc.collect()
    assert gone() is None


# -- remembering


def test_a_value_that_stays_is_made_once() -> None:
    """API: the cache holds the publisher's object; while it does, so is what was made of it."""
    own = build_input_converter(HERE.Quote)
    given = THERE.Quote(1)
    made = own(given)
    assert own(given) is made
    assert own(THERE.Quote(1)) is not made
    assert own(None) is None


def test_a_window_makes_only_what_is_new() -> None:
    """API: its lists are new each time, what is in them is not."""
    own = build_input_converter(list[HERE.Quote])
    one, other, third = (THERE.Quote(number) for number in range(3))
    first, second = own([one, other]), own([other, third])
    assert second == [HERE.Quote(1), HERE.Quote(2)]
    assert second[0] is first[1]
    assert own([]) == []
    assert own([other])[0] is not first[1]


def test_what_may_change_is_made_anew_each_time() -> None:
    """API: a value that its author changes in place is seen as it is now."""
    own, loose = build_input_converter(HERE.Loose), THERE.Loose(1)
    assert own(loose) == HERE.Loose(1)
    loose.price = 2
    assert own(loose) == HERE.Loose(2)
    assert not isinstance(build_input_converter(HERE.Quote | list[HERE.Quote]), CachingConverter)


# -- which classes


def test_an_annotation_is_said_in_ones_own_classes() -> None:
    """API: also inside lists, and only where a taker names them."""
    given = THERE.Book | list[THERE.Level] | int
    assert substitute_classes(given, [HERE.Book, Sequence[HERE.Level]]) == HERE.Book | list[HERE.Level] | int
    assert substitute_classes(given, [HERE.Book]) == HERE.Book | list[THERE.Level] | int
    assert substitute_classes(THERE.Price, [HERE.Quote]) is HERE.Quote
    assert substitute_classes(THERE.Box[THERE.Level], [HERE.Box[HERE.Level]]) == HERE.Box[HERE.Level]


def test_an_annotation_stays_if_nothing_in_it_is_anothers() -> None:
    """API: identical classes cost nothing."""
    given = HERE.Book | list[HERE.Level]
    assert substitute_classes(given, [HERE.Book, list[HERE.Level], Any, int]) is given
    assert substitute_classes(Any, [HERE.Book]) is Any
    assert substitute_classes(given, [THERE.Book, HERE.Book, list[HERE.Level]]) is given


def changed(**notes: Any) -> Any:
    """Load the classes anew, some fields of `Level` declared otherwise; None for one that is left out."""
    place = SimpleNamespace()
    fields = {"price": float, "size": int} | notes
    names = {"__qualname__": "Level", "__annotations__": {name: note for name, note in fields.items() if note}}
    place.Level = type(tm.Boundary)("Level", (tm.Boundary,), names)
    deep = {"__qualname__": "Book", "__annotations__": {"levels": list[place.Level]}}
    place.Book = type(tm.Boundary)("Book", (tm.Boundary,), deep)
    return place


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ({"price": str}, "field 'price' is str there and float here"),
        ({"price": float | None}, "field 'price' is float | None there and float here"),
        ({"price": list[str]}, "field 'price' is list[str] there and float here"),
        ({"size": None}, "field 'size' is only here"),
        ({"extra": int}, "field 'extra' is only there"),
    ],
)
def test_the_first_difference_is_told(there: dict[str, Any], told: str) -> None:
    """API: also of what is inside."""
    here, other = changed(), changed(**there)
    assert find_difference(here.Level, other.Level) == told
    assert find_difference(here.Book, other.Book) == f"field 'levels' is a Level, in which {told}"
    assert not is_same_declaration(here.Book, other.Book)
    assert list(find_mismatches(list[here.Book], [other.Book])) == [
        f"{__name__}.Book is not the same on both sides: field 'levels' is a Level, in which {told}"
    ]


def test_the_order_of_fields_counts() -> None:
    """API: so does what an enum has."""
    one, other = (type("E", (), {"__annotations__": notes}) for notes in ({"a": int, "b": int}, {"b": int, "a": int}))
    assert find_difference(one, other) == "the fields have another order"
    sides = [Enum("Side", names) for names in ("BUY SELL", "BUY HOLD")]
    assert find_difference(*sides) == "the members differ"


def test_equal_declarations_do_not_differ() -> None:
    """API: whatever they are made of."""
    names = [name for name, value in vars(HERE).items() if isinstance(value, type)]
    assert [name for name in names if not is_same_declaration(getattr(HERE, name), getattr(THERE, name))] == []
    assert list(find_mismatches(HERE.Book, [THERE.Book])) == []


def test_classes_of_other_modules_are_told_apart() -> None:
    """API: the qualified name includes the module's."""
    here, there = changed(), changed()
    there.Level.__module__ = "elsewhere"
    assert not is_same_declaration(here.Level, there.Level)
    assert list(find_mismatches(here.Level, [there.Level])) == [
        f"{__name__}.Level is another class than elsewhere.Level"
    ]
    assert list(find_mismatches(here.Level, [there.Level], strict=True)) == []


def test_what_cannot_be_made_is_known_before() -> None:
    """API: a class that is abstract, or extends one that is not written in Python."""

    def odd() -> Any:
        class Price(float):
            pass

        class Shape(ABC):
            @abstractmethod
            def area(self) -> float: ...

        class Inside(msgspec.Struct):
            shape: Shape
            foreign: Foreign

        return SimpleNamespace(**locals())

    here, there = odd(), odd()
    assert list(find_unconvertible(here.Price | list[here.Inside], there.Price | there.Inside)) == [
        here.Price,
        here.Shape,
    ]
    assert list(find_unconvertible(HERE.Book | HERE.Row, THERE.Book | THERE.Row)) == []
    assert list(find_unconvertible(here.Inside, here.Inside)) == []


# -- admission


def test_another_packages_value_is_let_in_as_ones_own() -> None:
    """API: pushed, given to a graph that is called, fired by hand."""
    assert TypeValidator(HERE.Level).validate(THERE.Level(1)) == HERE.Level(1)
    assert TypeValidator(HERE.Level | HERE.Quote).validate(THERE.Quote(1)) == HERE.Quote(1)
    assert TypeValidator(list[HERE.Level]).validate([THERE.Level(1), {"price": 2}]) == [HERE.Level(1), HERE.Level(2)]
    assert TypeValidator(HERE.Side).validate(THERE.Side.SELL) is HERE.Side.SELL


def test_what_is_not_the_same_is_refused_as_before() -> None:
    """API: with the reason that a stranger would hear."""
    with pytest.raises(TypeMismatchError, match="expected Level: Expected `object`, got `Quote`"):
        TypeValidator(HERE.Level).validate(THERE.Quote(1))
    with pytest.raises(TypeMismatchError, match=r"expected Level \| Quote, got int"):
        TypeValidator(HERE.Level | HERE.Quote).validate(5)

    strict = False

    class Fussy(tm.Boundary):
        price: float

        def __post_init__(self) -> None:
            if strict:
                raise ValueError("not like this")

    other = Fussy(1)
    mine = type(tm.Boundary)(
        "Fussy",
        (tm.Boundary,),
        {"__qualname__": Fussy.__qualname__, "__annotations__": {"price": float}, "__post_init__": Fussy.__post_init__},
    )
    strict = True
    with pytest.raises(TypeMismatchError, match="expected Fussy: Expected `object`, got `Fussy`"):
        TypeValidator(mine).validate(other)
