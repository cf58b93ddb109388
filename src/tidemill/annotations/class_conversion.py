"""Conversion between two loaded copies of one class.

Each package has its own modules: a class in a module that two packages contain is two classes at run time. They
count as one if name and fields are equal. A value of the one is then converted to the other, field by field: no field
is validated, and values of classes that both packages share are passed on unchanged.
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
    are_namesakes,
    find_difference,
    full_name,
    is_class,
    is_same_declaration,
    runtime_classes,
    union_members,
)

Converter = Callable[[Any], Any]


# -- finding the classes to replace


def iter_classes(annotation: Any) -> Iterator[type]:
    """Yield the classes that an annotation names, even inside `list[...]` and the like."""
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
    """Return an annotation with its classes replaced by their copies that `wanted` names.

    It is the annotation itself, and no value needs conversion, if there are no such copies.
    """
    named = list(dict.fromkeys(cls for annotation in wanted for cls in iter_classes(annotation)))
    foreign = [cls for cls in iter_classes(given) if cls not in named]
    replacements = {cls: own for cls in foreign for own in reversed(named) if is_same_declaration(own, cls)}
    return _replace_classes(given, replacements) if replacements else given


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
    """Yield how classes differ that both sides have under one name; `strict` compares names with their modules only."""
    known = list(dict.fromkeys(cls for annotation in given for cls in iter_classes(annotation)))
    for here in dict.fromkeys(iter_classes(wanted)):
        for there in known if here not in known else ():
            if full_name(here) == full_name(there):
                if (difference := find_difference(here, there)) is not None:
                    yield f"{full_name(here)} is not the same on both sides: {difference}"
            elif here.__qualname__ == there.__qualname__ and not strict:
                difference = find_difference(here, there) if are_namesakes(here, there) else None
                reason = "" if difference is None else f": {difference}"
                yield f"{full_name(here)} is another class than {full_name(there)}{reason}"


def find_unconvertible(wanted: Any, given: Any) -> Iterator[type]:
    """Yield the classes of `wanted` that no value of their copies in `given` can be converted to."""
    visited: set[tuple[type, type]] = set()
    for here in iter_classes(wanted):
        for there in iter_classes(given):
            if are_namesakes(here, there):
                find_difference(here, there, visited)
    yield from sorted({here for here, _ in visited if not _is_convertible(here)}, key=full_name)


def _is_convertible(cls: type) -> bool:
    if issubclass(cls, msgspec.Struct | Enum) or hasattr(cls, "_make") or runtime_classes(cls) != (cls,):
        return True
    try:
        object.__new__(cls)
    except TypeError:  # it is abstract, or extends a class that is implemented in C
        return False
    return True


# -- converting values


class ClassConverter:
    """Converts values to the classes that an annotation names from other copies of these classes."""

    def __init__(self, annotation: Any, converters: "dict[Any, ClassConverter] | None" = None) -> None:
        self._annotation = annotation
        self._converters = {} if converters is None else converters  # annotations may lead back to themselves
        self._converters[annotation] = self
        self._by_class: WeakKeyDictionary[type, Converter] = WeakKeyDictionary()
        self._last_used: tuple[Callable[[], type | None], Converter] = (lambda: None, _identity)

    def __call__(self, value: Any) -> Any:
        """Return the converted value; the value itself if it needs no conversion or no named class matches."""
        last_class, convert = self._last_used
        if last_class() is not value.__class__:  # rarely: a lookup in the dictionary is slower
            convert = self._converter_for(value.__class__)
            self._last_used = (ref(value.__class__), convert)  # in one step: several threads may call a graph
        return convert(value)

    def _converter_for(self, cls: type) -> Converter:
        convert = self._by_class.get(cls)
        if convert is None:
            convert = self._by_class[cls] = self._build_converter(cls)
        return convert

    def _build_converter(self, cls: type) -> Converter:
        """Return a converter for values of a class. It holds no reference to the class, which may be unloaded."""
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
        """Return a converter for a value inside another."""
        if all(_is_stdlib_class(cls) for cls in iter_classes(annotation)):
            return _identity
        return self._converters.get(annotation) or ClassConverter(annotation, self._converters)

    # -- values of the right class, whose content may need conversion

    def _build_container_converter(self, part: Any, target: type) -> Converter:
        if isinstance(part, NewType):
            return self._nested_converter(part.__supertype__)
        if is_typeddict(part):
            return _build_dict_converter(self._build_field_converters(_field_hints(part, part)))
        arguments = [one for one in get_args(part) if one is not ...]
        converters = [self._nested_converter(one) for one in arguments] if get_origin(part) is not Literal else []
        if all(convert is _identity for convert in converters):
            return _identity
        if issubclass(target, Mapping):
            return lambda value: _refill_container(
                value, [(converters[0](key), converters[1](one)) for key, one in value.items()]
            )
        if issubclass(target, tuple) and len(converters) > 1:
            return lambda value: tuple(convert(one) for convert, one in zip(converters, value, strict=True))
        if issubclass(target, Iterable):
            return lambda value: _refill_container(value, [converters[0](one) for one in value])
        return (
            _identity
            if _is_stdlib_class(target)
            else self._build_class_converter(target, _field_hints(target, part), target)
        )

    # -- values of another copy of the class

    def _build_class_converter(self, target: Any, hints: Mapping[str, Any], given: Any) -> Converter:
        """Return a converter to `target` from values of its copy `given`; None for values of a subclass of the copy."""
        if issubclass(target, Flag):
            return lambda value: target(value.value)
        if issubclass(target, Enum):
            return lambda value: target[value.name]
        fields = self._build_field_converters(hints)
        if issubclass(target, msgspec.Struct):
            has_same_fields = getattr(given, "__struct_fields__", None) == target.__struct_fields__
            if has_same_fields and _takes_positional_fields(target):
                return _build_positional_converter(target, fields)
            return _build_struct_converter(target, fields)
        if issubclass(target, tuple):
            return lambda value: target._make(
                fields.get(name, _identity)(getattr(value, name)) for name in target._fields
            )
        return _build_object_converter(target, fields)

    def _build_field_converters(self, hints: Mapping[str, Any]) -> dict[str, Converter]:
        """Return converters for the fields that need one."""
        converters = {name: self._nested_converter(hint) for name, hint in hints.items()}
        return {name: convert for name, convert in converters.items() if convert is not _identity}


class CachingConverter:
    """Converts each input value once and caches the result while that object is current.

    It is for immutable values, and for lists of them: a window shares most of its elements with the next one.
    """

    def __init__(self, annotation: Any) -> None:
        self._convert = ClassConverter(get_args(annotation)[0] if get_origin(annotation) is list else annotation)
        self._last_value: Any = None
        self._last_converted: Any = None
        self._element_cache: dict[int, tuple[Any, Any]] = {}

    def __call__(self, value: Any) -> Any:
        """Return a value, or a list of values, converted to the graph's own classes."""
        if value.__class__ is list:
            return self._convert_list(value)
        if value is not self._last_value:
            self._last_converted = self._convert(value)
            self._last_value = value
        return self._last_converted

    def _convert_list(self, values: list[Any]) -> list[Any]:
        cache = self._element_cache
        pairs = [cache.get(id(one)) or (one, self._convert(one)) for one in values]
        self._element_cache = {id(pair[0]): pair for pair in pairs}
        return [converted for _, converted in pairs]


def build_input_converter(annotation: Any) -> Converter:
    """Return a converter for the values of an input; it caches them only if they are immutable."""
    element = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    is_immutable = all(map(_is_immutable, union_members(element)))
    return CachingConverter(annotation) if is_immutable else ClassConverter(annotation)


def _is_immutable(annotation: Any) -> bool:
    if not is_class(annotation):
        return False
    config = getattr(annotation, "__struct_config__", None)
    return annotation in (bool, int, float, str, bytes) or (config is not None and config.frozen)


def _is_stdlib_class(cls: type) -> bool:
    """Return whether a class belongs to the standard library, and so is loaded once."""
    return cls.__module__.partition(".")[0] in sys.stdlib_module_names


def _identity(value: Any) -> Any:
    return value


def _refill_container(value: Any, content: list[Any]) -> Any:
    """Return a copy of a container with other content."""
    if not hasattr(value, "clear"):
        return type(value)(content)
    new = copy(value)  # it may have a maxlen or a default factory
    new.clear()
    (new.extend if hasattr(new, "extend") else new.update)(content)
    return new


def _field_hints(cls: Any, annotation: Any) -> dict[str, Any]:
    """Return the annotations of a class's fields, with its type variables filled in from `annotation`."""
    try:
        hints = get_type_hints(cls)
    except Exception:  # author code: annotations may hold any expression
        return {}
    arguments = dict(zip(getattr(get_origin(annotation), "__parameters__", ()), get_args(annotation), strict=False))
    return {name: _fill_type_variables(hint, arguments) for name, hint in hints.items()} if arguments else hints


def _fill_type_variables(hint: Any, arguments: Mapping[Any, Any]) -> Any:
    variables = getattr(hint, "__parameters__", ())
    return hint[tuple(arguments.get(one, one) for one in variables)] if variables else arguments.get(hint, hint)


def _build_dict_converter(field_converters: Mapping[str, Converter]) -> Converter:
    if not field_converters:
        return _identity
    return lambda value: {name: field_converters.get(name, _identity)(one) for name, one in value.items()}


def _build_struct_converter(target: Any, field_converters: Mapping[str, Converter]) -> Converter:
    names = target.__struct_fields__

    def convert(value: Any) -> Any:
        fields = {name: getattr(value, name) for name in names}
        for name, convert_field in field_converters.items():
            fields[name] = convert_field(fields[name])
        return target(**fields)

    return convert


def _takes_positional_fields(target: type) -> bool:
    """Return whether a struct accepts all its fields by position, which is much faster than by name."""
    return all(one.kind is Parameter.POSITIONAL_OR_KEYWORD for one in signature(target).parameters.values())


def _build_positional_converter(target: Any, field_converters: Mapping[str, Converter]) -> Converter:
    by_index = [(target.__struct_fields__.index(name), convert) for name, convert in field_converters.items()]
    if not by_index:
        return lambda value: target(*astuple(value))

    def convert(value: Any) -> Any:
        fields = [*astuple(value)]
        for index, convert_field in by_index:
            fields[index] = convert_field(fields[index])
        return target(*fields)

    return convert


def _build_object_converter(target: type, field_converters: Mapping[str, Converter]) -> Converter:
    """Return a converter that copies an object's state into a new one, as `copy` does, without calling the class."""

    def convert(value: Any) -> Any:
        state: Any = object.__getstate__(value)
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        new: Any = object.__new__(target)
        for name, one in ((attributes or {}) | (slots or {})).items():
            object.__setattr__(new, name, field_converters.get(name, _identity)(one))
        return new

    return convert
