"""API: two loaded copies of a class count as one if name and fields are equal; values are converted to the own copy."""

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
    """A class without declared fields, loaded once."""


def load() -> Any:
    """Load a module's classes; each call loads another copy."""

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


def make_book(copy: Any) -> Any:
    """Return a value of one copy of the classes, with every kind of field filled."""
    level = copy.Level(1.5, copy.Side.SELL)
    note = copy.Note("hello", level)
    object.__setattr__(note, "words", 3)
    return copy.Book(
        levels=[level, copy.Level(2)],
        by_side={copy.Side.BUY: level},
        pair=copy.Pair(level, 3),
        rest=(level,),
        both=(1, level),
        row={"level": level, "note": "x"},
        note=note,
        box=copy.Box(level),
        held=copy.Held(level),
        traits=copy.Traits.DARK | copy.Traits.IOC,
        anything={"a": [1]},
        foreign=FOREIGN,
    )


FOREIGN = Foreign()


def test_every_field_is_converted() -> None:
    """API: nested structs, enums, containers, named tuples, dataclasses and plain objects."""
    made = ClassConverter(HERE.Book)(make_book(THERE))
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


def test_a_value_that_needs_no_conversion_is_passed_on_unchanged() -> None:
    """API: nothing is converted, validated or copied without need."""
    given = make_book(THERE)
    assert ClassConverter(HERE.Book)(given).anything is given.anything
    odd = THERE.Quote("not a float")
    assert ClassConverter(HERE.Quote)(odd) == HERE.Quote("not a float")
    own = make_book(HERE)
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
def test_values_inside_containers_are_converted(annotation: Any, given: Any, made: Any) -> None:
    """API: lists, unions, generics."""
    got = ClassConverter(annotation)(given)
    assert got == made
    assert type(got) is type(made)
    assert getattr(got, "maxlen", None) == getattr(made, "maxlen", None)


def test_a_subclass_is_converted_to_the_declared_class() -> None:
    """API: the graph's package may not even have the subclass."""

    class Deep(THERE.Quote):  # type: ignore[name-defined,misc]
        depth: int

    assert ClassConverter(HERE.Quote)(Deep(1.0, depth=3)) == HERE.Quote(1.0)


def test_values_of_different_classes_are_not_converted() -> None:
    """API: compared by qualified name and schema."""
    assert isinstance(ClassConverter(HERE.Level)(THERE.Quote(1)), THERE.Quote)


def level(copy: Any) -> st.SearchStrategy[Any]:
    """Levels of one copy of the classes."""
    return st.builds(copy.Level, st.floats(allow_nan=False), st.sampled_from(copy.Side))


def tree(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Trees with other trees as branches."""
    return st.builds(THERE.Tree, level(THERE), st.lists(inner, max_size=3))


def flatten(tree: Any) -> list[Any]:
    """Return a tree and everything inside it."""
    return [tree, tree.value, *(one for branch in tree.branches for one in flatten(branch))]


@given(st.recursive(st.builds(THERE.Tree, level(THERE), st.just([])), tree, max_leaves=8))
def test_conversion_there_and_back_loses_nothing(value: Any) -> None:
    """API: at any depth."""
    made = ClassConverter(HERE.Tree)(value)
    assert {type(one) for one in flatten(made)} == {HERE.Tree, HERE.Level}
    assert ClassConverter(THERE.Tree)(made) == value


@given(st.lists(level(THERE), max_size=5))
def test_conversion_of_lists_there_and_back_loses_nothing(values: list[Any]) -> None:
    """API: element by element."""
    made = ClassConverter(list[HERE.Level])(values)
    assert all(type(one) is HERE.Level for one in made)
    assert ClassConverter(list[THERE.Level])(made) == values


def test_converters_do_not_keep_unloaded_classes_alive() -> None:
    """P-6: a consumer of another package's values does not keep its classes alive."""
    copy = load()
    convert, validator = ClassConverter(HERE.Book), TypeValidator(HERE.Book)
    assert type(convert(make_book(copy))) is type(validator.validate(make_book(copy))) is HERE.Book
    reference = weakref.ref(copy.Book)
    del copy
    gc.collect()
    assert reference() is None


# -- caching


def test_the_current_value_is_converted_once() -> None:
    """API: the converted value is cached as long as the input cache holds the publisher's object."""
    convert = build_input_converter(HERE.Quote)
    given = THERE.Quote(1)
    converted = convert(given)
    assert convert(given) is converted
    assert convert(THERE.Quote(1)) is not converted
    assert convert(None) is None


def test_only_new_elements_of_a_window_are_converted() -> None:
    """API: each list is new, most of its elements are not."""
    convert = build_input_converter(list[HERE.Quote])
    one, other, third = (THERE.Quote(number) for number in range(3))
    first, second = convert([one, other]), convert([other, third])
    assert second == [HERE.Quote(1), HERE.Quote(2)]
    assert second[0] is first[1]
    assert convert([]) == []
    assert convert([other])[0] is not first[1]


def test_a_mutable_value_is_converted_each_time() -> None:
    """API: a change that the author makes in place is seen."""
    convert, loose = build_input_converter(HERE.Loose), THERE.Loose(1)
    assert convert(loose) == HERE.Loose(1)
    loose.price = 2
    assert convert(loose) == HERE.Loose(2)
    assert not isinstance(build_input_converter(HERE.Quote | list[HERE.Quote]), CachingConverter)


# -- classes


def test_classes_in_an_annotation_are_replaced_by_their_copies() -> None:
    """API: also inside lists, and only those that a consumer names."""
    given = THERE.Book | list[THERE.Level] | int
    assert substitute_classes(given, [HERE.Book, Sequence[HERE.Level]]) == HERE.Book | list[HERE.Level] | int
    assert substitute_classes(given, [HERE.Book]) == HERE.Book | list[THERE.Level] | int
    assert substitute_classes(THERE.Price, [HERE.Quote]) is HERE.Quote
    assert substitute_classes(THERE.Box[THERE.Level], [HERE.Box[HERE.Level]]) == HERE.Box[HERE.Level]


def test_an_annotation_without_foreign_classes_is_unchanged() -> None:
    """API: identical classes cost nothing."""
    given = HERE.Book | list[HERE.Level]
    assert substitute_classes(given, [HERE.Book, list[HERE.Level], Any, int]) is given
    assert substitute_classes(Any, [HERE.Book]) is Any
    assert substitute_classes(given, [THERE.Book, HERE.Book, list[HERE.Level]]) is given


def changed(**notes: Any) -> Any:
    """Load another copy of the classes with some fields of `Level` changed; None removes one."""
    copy = SimpleNamespace()
    fields = {"price": float, "size": int} | notes
    names = {"__qualname__": "Level", "__annotations__": {name: note for name, note in fields.items() if note}}
    copy.Level = type(tm.Boundary)("Level", (tm.Boundary,), names)
    deep = {"__qualname__": "Book", "__annotations__": {"levels": list[copy.Level]}}
    copy.Book = type(tm.Boundary)("Book", (tm.Boundary,), deep)
    return copy


@pytest.mark.parametrize(
    ("there", "difference"),
    [
        ({"price": str}, "field 'price' is str there and float here"),
        ({"price": float | None}, "field 'price' is float | None there and float here"),
        ({"price": list[str]}, "field 'price' is list[str] there and float here"),
        ({"size": None}, "field 'size' is only here"),
        ({"extra": int}, "field 'extra' is only there"),
    ],
)
def test_the_first_difference_is_reported(there: dict[str, Any], difference: str) -> None:
    """API: also that of nested classes."""
    here, other = changed(), changed(**there)
    assert find_difference(here.Level, other.Level) == difference
    assert find_difference(here.Book, other.Book) == f"field 'levels' is a Level, in which {difference}"
    assert not is_same_declaration(here.Book, other.Book)
    assert list(find_mismatches(list[here.Book], [other.Book])) == [
        f"{__name__}.Book is not the same on both sides: field 'levels' is a Level, in which {difference}"
    ]


def test_the_order_of_fields_counts() -> None:
    """API: and so do the members of an enum."""
    one, other = (type("E", (), {"__annotations__": notes}) for notes in ({"a": int, "b": int}, {"b": int, "a": int}))
    assert find_difference(one, other) == "the fields have another order"
    sides = [Enum("Side", names) for names in ("BUY SELL", "BUY HOLD")]
    assert find_difference(*sides) == "the members differ"


def test_equal_declarations_do_not_differ() -> None:
    """API: with fields of any type."""
    names = [name for name, value in vars(HERE).items() if isinstance(value, type)]
    assert [name for name in names if not is_same_declaration(getattr(HERE, name), getattr(THERE, name))] == []
    assert list(find_mismatches(HERE.Book, [THERE.Book])) == []


def test_classes_of_other_modules_differ() -> None:
    """API: the qualified name includes the module's, but for structs of two packages."""
    here, there = changed(), changed()
    there.Level.__module__ = "elsewhere"
    assert is_same_declaration(here.Level, there.Level)
    there.Level.__module__ = "tests.elsewhere"
    assert not is_same_declaration(here.Level, there.Level)
    assert list(find_mismatches(here.Level, [there.Level])) == [
        f"{__name__}.Level is another class than tests.elsewhere.Level"
    ]
    assert list(find_mismatches(here.Level, [there.Level], strict=True)) == []


def test_unconvertible_classes_are_found() -> None:
    """API: a class that is abstract, or extends one that is implemented in C."""

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


# -- validation


def test_validation_converts_another_packages_value() -> None:
    """API: of a push, of a direct call of a graph, of a manual firing."""
    assert TypeValidator(HERE.Level).validate(THERE.Level(1)) == HERE.Level(1)
    assert TypeValidator(HERE.Level | HERE.Quote).validate(THERE.Quote(1)) == HERE.Quote(1)
    assert TypeValidator(list[HERE.Level]).validate([THERE.Level(1), {"price": 2}]) == [HERE.Level(1), HERE.Level(2)]
    assert TypeValidator(HERE.Side).validate(THERE.Side.SELL) is HERE.Side.SELL


def test_validation_rejects_values_of_different_classes() -> None:
    """API: with the same message as any other value."""
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
