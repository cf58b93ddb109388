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

from tidemill.annotations.variants import (
    find_difference,
    full_name,
    is_class,
    is_same_declaration,
    runtime_classes,
    union_members,
)

Converter = Callable[[Any], Any]


# -- which classes are to be replaced


def iter_classes(annotation: Any) -> Iterator[type]:
    """Yield the classes that an annotation names, also inside `list[...]` and the like."""
    for part in union_members(annotation):
        if isinstance(part, NewType):
            yield from iter_classes(part.__supertype__)
        elif is_class(part):
            yield part
        elif get_origin(part) is not Literal:
            origin = get_origin(part)
            yield from (origin,) if isinstance(origin, type) else ()
            for argument in get_args(part):
                yield from iter_classes(argument)


def substitute_classes(given: Any, wanted: Iterable[Any]) -> Any:
    """Return an annotation with the classes that `wanted` names in place of those that they are the same as.

    It is the annotation itself, and nothing has to be made anew, if `wanted` names no other classes than it does.
    """
    named = list(dict.fromkeys(cls for annotation in wanted for cls in iter_classes(annotation)))
    strange = [cls for cls in iter_classes(given) if cls not in named]
    found = {cls: own for cls in strange for own in reversed(named) if is_same_declaration(own, cls)}
    return _replace_classes(given, found) if found else given


def _replace_classes(annotation: Any, replacements: Mapping[type, type]) -> Any:
    parts = union_members(annotation)
    if len(parts) > 1:
        return reduce(or_, (_replace_classes(part, replacements) for part in parts))
    if isinstance(parts[0], NewType):
        return _replace_classes(parts[0].__supertype__, replacements)
    if is_class(parts[0]):
        return replacements.get(parts[0], parts[0])
    if replacements.keys().isdisjoint(iter_classes(parts[0])):
        return parts[0]
    origin: Any = get_origin(parts[0])
    return replacements.get(origin, origin)[tuple(_replace_classes(one, replacements) for one in get_args(parts[0]))]


def find_mismatches(wanted: Any, given: Iterable[Any], *, strict: bool = False) -> Iterator[str]:
    """Yield in what classes differ that both sides have under one name: strictly, one that includes the module's."""
    known = list(dict.fromkeys(cls for annotation in given for cls in iter_classes(annotation)))
    for here in dict.fromkeys(iter_classes(wanted)):
        for there in known if here not in known else ():
            if full_name(here) == full_name(there):
                if (told := find_difference(here, there)) is not None:
                    yield f"{full_name(here)} is not the same on both sides: {told}"
            elif here.__qualname__ == there.__qualname__ and not strict:
                yield f"{full_name(here)} is another class than {full_name(there)}"


def find_unconvertible(wanted: Any, given: Any) -> Iterator[type]:
    """Yield the classes of `wanted` of which no value can be made from one of the same class in `given`."""
    met: set[tuple[type, type]] = set()
    for here in iter_classes(wanted):
        for there in iter_classes(given):
            if full_name(here) == full_name(there):
                find_difference(here, there, met)
    yield from sorted({here for here, _ in met if not _is_convertible(here)}, key=full_name)


def _is_convertible(cls: type) -> bool:
    if issubclass(cls, msgspec.Struct | Enum) or hasattr(cls, "_make") or runtime_classes(cls) != (cls,):
        return True
    try:
        object.__new__(cls)
    except TypeError:  # it is abstract, or extends a class that is not written in Python
        return False
    return True


# -- making values


class ClassConverter:
    """Makes values of the classes that an annotation names from values of the same classes, loaded elsewhere."""

    def __init__(self, annotation: Any, converters: "dict[Any, ClassConverter] | None" = None) -> None:
        self._annotation = annotation
        self._converters = {} if converters is None else converters  # annotations may lead back to themselves
        self._converters[annotation] = self
        self._by_class: WeakKeyDictionary[type, Converter] = WeakKeyDictionary()
        self._last_used: tuple[Callable[[], type | None], Converter] = (lambda: None, _identity)

    def __call__(self, value: Any) -> Any:
        """Return a value made anew, or as it is if it needs that not, or is of no class that the annotation names."""
        latest, make = self._last_used
        if latest() is not value.__class__:  # it mostly is, and asking the dictionary takes its time
            make = self._converter_for(value.__class__)
            self._last_used = (ref(value.__class__), make)  # in one step: graphs may be called from several threads
        return make(value)

    def _converter_for(self, cls: type) -> Converter:
        make = self._by_class.get(cls)
        if make is None:
            make = self._by_class[cls] = self._build_converter(cls)
        return make

    def _build_converter(self, cls: type) -> Converter:
        """Return how values of a class are dealt with. It does not refer to the class, which may be unloaded."""
        parts = [(part, own) for part in union_members(self._annotation) for own in runtime_classes(part) or ()]
        for part, own in parts:
            if issubclass(cls, own):
                return (
                    _identity
                    if is_class(part) and not is_typeddict(part)
                    else self._build_container_converter(part, own)
                )
        for base in cls.__mro__:
            for part, own in parts:
                if not _is_stdlib_class(own) and is_same_declaration(own, base):
                    return self._build_class_converter(own, _field_hints(own, part), base if base is cls else None)
        return _identity

    def _nested_converter(self, annotation: Any) -> Converter:
        """Return how a value inside another is dealt with."""
        if all(_is_stdlib_class(cls) for cls in iter_classes(annotation)):
            return _identity
        return self._converters.get(annotation) or ClassConverter(annotation, self._converters)

    # -- of one's own class already, but perhaps not inside

    def _build_container_converter(self, part: Any, target: type) -> Converter:
        if isinstance(part, NewType):
            return self._nested_converter(part.__supertype__)
        if is_typeddict(part):
            return _build_dict_converter(self._build_field_converters(_field_hints(part, part)))
        arguments = [one for one in get_args(part) if one is not ...]
        makers = [self._nested_converter(one) for one in arguments] if get_origin(part) is not Literal else []
        if all(make is _identity for make in makers):
            return _identity
        if issubclass(target, Mapping):
            return lambda value: _refill_container(
                value, [(makers[0](key), makers[1](one)) for key, one in value.items()]
            )
        if issubclass(target, tuple) and len(makers) > 1:
            return lambda value: tuple(make(one) for make, one in zip(makers, value, strict=True))
        if issubclass(target, Iterable):
            return lambda value: _refill_container(value, [makers[0](one) for one in value])
        return (
            _identity
            if _is_stdlib_class(target)
            else self._build_class_converter(target, _field_hints(target, part), target)
        )

    # -- of another's class

    def _build_class_converter(self, target: Any, hints: Mapping[str, Any], given: Any) -> Converter:
        """Return how values of `given`, or of a kind of it if that is None, become values of a class."""
        if issubclass(target, Flag):
            return lambda value: target(value.value)
        if issubclass(target, Enum):
            return lambda value: target[value.name]
        needed = self._build_field_converters(hints)
        if issubclass(target, msgspec.Struct):
            has_places = getattr(
                given, "__struct_fields__", None
            ) == target.__struct_fields__ and _takes_positional_fields(target)
            return (
                _build_positional_converter(target, needed) if has_places else _build_struct_converter(target, needed)
            )
        if issubclass(target, tuple):
            return lambda value: target._make(
                needed.get(name, _identity)(getattr(value, name)) for name in target._fields
            )
        return _build_object_converter(target, needed)

    def _build_field_converters(self, hints: Mapping[str, Any]) -> dict[str, Converter]:
        """Return how fields are dealt with that cannot stay as they are."""
        makers = {name: self._nested_converter(hint) for name, hint in hints.items()}
        return {name: make for name, make in makers.items() if make is not _identity}


class CachingConverter:
    """Makes each value of an input anew once: while the same one is there, what was made of it is there as well.

    That is for values that do not change, and for lists of them, which do: a window shares most of them with the next.
    """

    def __init__(self, annotation: Any) -> None:
        self._convert = ClassConverter(get_args(annotation)[0] if get_origin(annotation) is list else annotation)
        self._last_value: Any = None
        self._last_converted: Any = None
        self._element_cache: dict[int, tuple[Any, Any]] = {}

    def __call__(self, value: Any) -> Any:
        """Return a value, or a list, as the graph's own."""
        if value.__class__ is list:
            return self._convert_list(value)
        if value is not self._last_value:
            self._last_converted = self._convert(value)
            self._last_value = value
        return self._last_converted

    def _convert_list(self, values: list[Any]) -> list[Any]:
        known = self._element_cache
        pairs = [known.get(id(one)) or (one, self._convert(one)) for one in values]
        self._element_cache = {id(pair[0]): pair for pair in pairs}
        return [made for _, made in pairs]


def build_input_converter(annotation: Any) -> Converter:
    """Return what makes the values of an input anew; it remembers them only if they cannot change."""
    element = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    return (
        CachingConverter(annotation) if all(map(_is_immutable, union_members(element))) else ClassConverter(annotation)
    )


def _is_immutable(annotation: Any) -> bool:
    if not is_class(annotation):
        return False
    config = getattr(annotation, "__struct_config__", None)
    return annotation in (bool, int, float, str, bytes) or (config is not None and config.frozen)


def _is_stdlib_class(cls: type) -> bool:
    """Return whether a class is loaded once, whoever imports it."""
    return cls.__module__.partition(".")[0] in sys.stdlib_module_names


def _identity(value: Any) -> Any:
    return value


def _refill_container(value: Any, content: list[Any]) -> Any:
    """Return a container like another one, with other content."""
    if not hasattr(value, "clear"):
        return type(value)(content)
    new = copy(value)  # it may have a limit, or a default
    new.clear()
    (new.extend if hasattr(new, "extend") else new.update)(content)
    return new


def _field_hints(cls: Any, annotation: Any) -> dict[str, Any]:
    """Return the annotations of a class's fields, its type variables as an annotation of that class has them."""
    try:
        hints = get_type_hints(cls)
    except Exception:  # author code: annotations may hold any expression
        return {}
    given = dict(zip(getattr(get_origin(annotation), "__parameters__", ()), get_args(annotation), strict=False))
    return {name: _fill_type_variables(hint, given) for name, hint in hints.items()} if given else hints


def _fill_type_variables(hint: Any, given: Mapping[Any, Any]) -> Any:
    open_ones = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(one, one) for one in open_ones)] if open_ones else given.get(hint, hint)


def _build_dict_converter(field_converters: Mapping[str, Converter]) -> Converter:
    if not field_converters:
        return _identity
    return lambda value: {name: field_converters.get(name, _identity)(one) for name, one in value.items()}


def _build_struct_converter(target: Any, field_converters: Mapping[str, Converter]) -> Converter:
    names = target.__struct_fields__

    def make(value: Any) -> Any:
        given = {name: getattr(value, name) for name in names}
        for name, rebuild in field_converters.items():
            given[name] = rebuild(given[name])
        return target(**given)

    return make


def _takes_positional_fields(target: type) -> bool:
    """Return whether a struct takes all its fields without their names, which is a good deal faster."""
    return all(one.kind is Parameter.POSITIONAL_OR_KEYWORD for one in signature(target).parameters.values())


def _build_positional_converter(target: Any, field_converters: Mapping[str, Converter]) -> Converter:
    places = [(target.__struct_fields__.index(name), rebuild) for name, rebuild in field_converters.items()]
    if not places:
        return lambda value: target(*astuple(value))

    def make(value: Any) -> Any:
        given = [*astuple(value)]
        for place, rebuild in places:
            given[place] = rebuild(given[place])
        return target(*given)

    return make


def _build_object_converter(target: type, field_converters: Mapping[str, Converter]) -> Converter:
    """Return how an object is made from what another holds, as a copy is: nothing of the class is called."""

    def make(value: Any) -> Any:
        state: Any = object.__getstate__(value)
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        new: Any = object.__new__(target)
        for name, one in ((attributes or {}) | (slots or {})).items():
            object.__setattr__(new, name, field_converters.get(name, _identity)(one))
        return new

    return make
