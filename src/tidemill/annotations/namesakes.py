"""Values of classes that were loaded twice, made anew as the class that whoever takes them knows.

Each package has modules of its own: a class in a module that two packages carry is two classes at run time. They count
as one if name and fields are equal, and so a value of the one becomes a value of the other, field by field: nothing is
checked or converted on the way, and what is the same in both is handed on as it is.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from enum import Enum, Flag
from functools import reduce
from inspect import Parameter, signature
from operator import or_
from typing import Any, Literal, NewType, get_args, get_origin, get_type_hints, is_typeddict
from weakref import WeakKeyDictionary, ref

import msgspec
from msgspec.structs import astuple

from tidemill.annotations.variants import difference, full_name, is_class, members, runtime_classes, same_shape

Make = Callable[[Any], Any]


# -- which classes are to be replaced


def classes_in(annotation: Any) -> Iterator[type]:
    """Yield the classes that an annotation names, also inside `list[...]` and the like."""
    for part in members(annotation):
        if isinstance(part, NewType):
            yield from classes_in(part.__supertype__)
        elif is_class(part):
            yield part
        elif get_origin(part) is not Literal:
            origin = get_origin(part)
            yield from (origin,) if isinstance(origin, type) else ()
            for argument in get_args(part):
                yield from classes_in(argument)


def own_annotation(given: Any, wanted: Iterable[Any]) -> Any:
    """Return an annotation with the classes that `wanted` names in place of those that they are the same as.

    It is the annotation itself, and nothing has to be made anew, if `wanted` names no other classes than it does.
    """
    named = list(dict.fromkeys(cls for annotation in wanted for cls in classes_in(annotation)))
    strange = [cls for cls in classes_in(given) if cls not in named]
    found = {cls: own for cls in strange for own in reversed(named) if same_shape(own, cls)}
    return _replaced(given, found) if found else given


def _replaced(annotation: Any, found: Mapping[type, type]) -> Any:
    parts = members(annotation)
    if len(parts) > 1:
        return reduce(or_, (_replaced(part, found) for part in parts))
    if isinstance(parts[0], NewType):
        return _replaced(parts[0].__supertype__, found)
    if is_class(parts[0]):
        return found.get(parts[0], parts[0])
    if found.keys().isdisjoint(classes_in(parts[0])):
        return parts[0]
    origin: Any = get_origin(parts[0])
    return found.get(origin, origin)[tuple(_replaced(one, found) for one in get_args(parts[0]))]


def unlike(wanted: Any, given: Iterable[Any], *, strictly: bool = False) -> Iterator[str]:
    """Yield in what classes differ that both sides have under one name: strictly, one that includes the module's."""
    known = list(dict.fromkeys(cls for annotation in given for cls in classes_in(annotation)))
    for here in dict.fromkeys(classes_in(wanted)):
        for there in known if here not in known else ():
            if full_name(here) == full_name(there):
                if (told := difference(here, there)) is not None:
                    yield f"{full_name(here)} is not the same on both sides: {told}"
            elif here.__qualname__ == there.__qualname__ and not strictly:
                yield f"{full_name(here)} is another class than {full_name(there)}"


def unmakeable(wanted: Any, given: Any) -> Iterator[type]:
    """Yield the classes of `wanted` of which no value can be made from one of the same class in `given`."""
    met: set[tuple[type, type]] = set()
    for here in classes_in(wanted):
        for there in classes_in(given):
            if full_name(here) == full_name(there):
                difference(here, there, met)
    yield from sorted({here for here, _ in met if not _is_makeable(here)}, key=full_name)


def _is_makeable(cls: type) -> bool:
    if issubclass(cls, msgspec.Struct | Enum) or hasattr(cls, "_make") or runtime_classes(cls) != (cls,):
        return True
    try:
        object.__new__(cls)
    except TypeError:  # it is abstract, or extends a class that is not written in Python
        return False
    return True


# -- making values


class Rebuilder:
    """Makes values of the classes that an annotation names from values of the same classes, loaded elsewhere."""

    def __init__(self, annotation: Any, known: "dict[Any, Rebuilder] | None" = None) -> None:
        self._annotation = annotation
        self._known = {} if known is None else known  # annotations may lead back to themselves
        self._known[annotation] = self
        self._makers: WeakKeyDictionary[type, Make] = WeakKeyDictionary()
        self._latest: tuple[Callable[[], type | None], Make] = (lambda: None, _as_it_is)

    def __call__(self, value: Any) -> Any:
        """Return a value made anew, or as it is if it needs that not, or is of no class that the annotation names."""
        latest, make = self._latest
        if latest() is not value.__class__:  # it mostly is, and asking the dictionary takes its time
            make = self._maker_of(value.__class__)
            self._latest = (ref(value.__class__), make)  # in one step: graphs may be called from several threads
        return make(value)

    def _maker_of(self, cls: type) -> Make:
        make = self._makers.get(cls)
        if make is None:
            make = self._makers[cls] = self._maker(cls)
        return make

    def _maker(self, cls: type) -> Make:
        """Return how values of a class are dealt with. It does not refer to the class, which may be unloaded."""
        parts = [(part, own) for part in members(self._annotation) for own in runtime_classes(part) or ()]
        for part, own in parts:
            if issubclass(cls, own):
                return _as_it_is if is_class(part) and not is_typeddict(part) else self._inside(part, own)
        for base in cls.__mro__:
            for part, own in parts:
                if not _is_standard(own) and same_shape(own, base):
                    return self._anew(own, _hints(own, part), base if base is cls else None)
        return _as_it_is

    def _of(self, annotation: Any) -> Make:
        """Return how a value inside another is dealt with."""
        if all(_is_standard(cls) for cls in classes_in(annotation)):
            return _as_it_is
        return self._known.get(annotation) or Rebuilder(annotation, self._known)

    # -- of one's own class already, but perhaps not inside

    def _inside(self, part: Any, own: type) -> Make:
        if isinstance(part, NewType):
            return self._of(part.__supertype__)
        if is_typeddict(part):
            return _items(self._needed(_hints(part, part)))
        arguments = [one for one in get_args(part) if one is not ...]
        makers = [self._of(one) for one in arguments] if get_origin(part) is not Literal else []
        if all(make is _as_it_is for make in makers):
            return _as_it_is
        if issubclass(own, Mapping):
            return lambda value: _refilled(value, [(makers[0](key), makers[1](one)) for key, one in value.items()])
        if issubclass(own, tuple) and len(makers) > 1:
            return lambda value: tuple(make(one) for make, one in zip(makers, value, strict=True))
        if issubclass(own, Iterable):
            return lambda value: _refilled(value, [makers[0](one) for one in value])
        return _as_it_is if _is_standard(own) else self._anew(own, _hints(own, part), own)

    # -- of another's class

    def _anew(self, own: Any, hints: Mapping[str, Any], given: Any) -> Make:
        """Return how values of `given`, or of a kind of it if that is None, become values of a class."""
        if issubclass(own, Flag):
            return lambda value: own(value.value)
        if issubclass(own, Enum):
            return lambda value: own[value.name]
        needed = self._needed(hints)
        if issubclass(own, msgspec.Struct):
            has_places = getattr(given, "__struct_fields__", None) == own.__struct_fields__ and _takes_places(own)
            return _struct_by_place(own, needed) if has_places else _struct(own, needed)
        if issubclass(own, tuple):
            return lambda value: own._make(needed.get(name, _as_it_is)(getattr(value, name)) for name in own._fields)
        return _object(own, needed)

    def _needed(self, hints: Mapping[str, Any]) -> dict[str, Make]:
        """Return how fields are dealt with that cannot stay as they are."""
        makers = {name: self._of(hint) for name, hint in hints.items()}
        return {name: make for name, make in makers.items() if make is not _as_it_is}


class InputRebuilder:
    """Makes each value of an input anew once: while the same one is there, what was made of it is there as well.

    That is for values that do not change, and for lists of them, which do: a window shares most of them with the next.
    """

    def __init__(self, annotation: Any) -> None:
        self._rebuild = Rebuilder(get_args(annotation)[0] if get_origin(annotation) is list else annotation)
        self._given: Any = None
        self._made: Any = None
        self._elements: dict[int, tuple[Any, Any]] = {}

    def __call__(self, value: Any) -> Any:
        """Return a value, or a list, as the graph's own."""
        if value.__class__ is list:
            return self._listed(value)
        if value is not self._given:
            self._made = self._rebuild(value)
            self._given = value
        return self._made

    def _listed(self, values: list[Any]) -> list[Any]:
        known = self._elements
        pairs = [known.get(id(one)) or (one, self._rebuild(one)) for one in values]
        self._elements = {id(pair[0]): pair for pair in pairs}
        return [made for _, made in pairs]


def input_rebuilder(annotation: Any) -> Make:
    """Return what makes the values of an input anew; it remembers them only if they cannot change."""
    element = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    return InputRebuilder(annotation) if all(map(_is_constant, members(element))) else Rebuilder(annotation)


def _is_constant(annotation: Any) -> bool:
    if not is_class(annotation):
        return False
    config = getattr(annotation, "__struct_config__", None)
    return annotation in (bool, int, float, str, bytes) or (config is not None and config.frozen)


def _is_standard(cls: type) -> bool:
    """Return whether a class is loaded once, whoever imports it."""
    return cls.__module__.partition(".")[0] in sys.stdlib_module_names


def _as_it_is(value: Any) -> Any:
    return value


def _refilled(value: Any, content: list[Any]) -> Any:
    """Return a container like another one, with other content."""
    if not hasattr(value, "clear"):
        return type(value)(content)
    new = copy(value)  # it may have a limit, or a default
    new.clear()
    (new.extend if hasattr(new, "extend") else new.update)(content)
    return new


def _hints(cls: Any, annotation: Any) -> dict[str, Any]:
    """Return the annotations of a class's fields, its type variables as an annotation of that class has them."""
    try:
        hints = get_type_hints(cls)
    except Exception:  # author code: annotations may hold any expression
        return {}
    given = dict(zip(getattr(get_origin(annotation), "__parameters__", ()), get_args(annotation), strict=False))
    return {name: _filled(hint, given) for name, hint in hints.items()} if given else hints


def _filled(hint: Any, given: Mapping[Any, Any]) -> Any:
    open_ones = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(one, one) for one in open_ones)] if open_ones else given.get(hint, hint)


def _items(needed: Mapping[str, Make]) -> Make:
    if not needed:
        return _as_it_is
    return lambda value: {name: needed.get(name, _as_it_is)(one) for name, one in value.items()}


def _struct(own: Any, needed: Mapping[str, Make]) -> Make:
    names = own.__struct_fields__

    def make(value: Any) -> Any:
        given = {name: getattr(value, name) for name in names}
        for name, rebuild in needed.items():
            given[name] = rebuild(given[name])
        return own(**given)

    return make


def _takes_places(own: type) -> bool:
    """Return whether a struct takes all its fields without their names, which is a good deal faster."""
    return all(one.kind is Parameter.POSITIONAL_OR_KEYWORD for one in signature(own).parameters.values())


def _struct_by_place(own: Any, needed: Mapping[str, Make]) -> Make:
    places = [(own.__struct_fields__.index(name), rebuild) for name, rebuild in needed.items()]
    if not places:
        return lambda value: own(*astuple(value))

    def make(value: Any) -> Any:
        given = [*astuple(value)]
        for place, rebuild in places:
            given[place] = rebuild(given[place])
        return own(*given)

    return make


def _object(own: type, needed: Mapping[str, Make]) -> Make:
    """Return how an object is made from what another holds, as a copy is: nothing of the class is called."""

    def make(value: Any) -> Any:
        state: Any = object.__getstate__(value)
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        new: Any = object.__new__(own)
        for name, one in ((attributes or {}) | (slots or {})).items():
            object.__setattr__(new, name, needed.get(name, _as_it_is)(one))
        return new

    return make
