"""Author functions with their parameters and resolved annotations."""

import inspect
import keyword
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, get_type_hints

import msgspec

from tidemill.kernel.errors import Location, Problem

if sys.version_info >= (3, 14):  # annotations are evaluated on demand, and may name what is declared further down
    from annotationlib import Format, get_annotations

    def raw_annotations(of: Any) -> dict[str, Any]:
        """Return the annotations of a function or class; a name that is not declared yet is a forward reference."""
        return get_annotations(of, format=Format.FORWARDREF) if inspect.isroutine(of) or inspect.isclass(of) else {}

    def inspect_signature(call: Callable[..., Any]) -> inspect.Signature:
        """Return the signature of a function; its annotations may be forward references."""
        return inspect.signature(call, annotation_format=Format.FORWARDREF)

else:

    def raw_annotations(of: Any) -> dict[str, Any]:
        """Return the annotations of a function or class as they are."""
        return dict(getattr(of, "__annotations__", {}))

    def inspect_signature(call: Callable[..., Any]) -> inspect.Signature:
        """Return the signature of a function."""
        return inspect.signature(call)


MISSING: Any = inspect.Parameter.empty


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter: its name, annotation and default."""

    name: str
    annotation: Any = Any
    default: Any = MISSING
    keyword_only: bool = False

    @property
    def has_default(self) -> bool:
        """Whether it has a default value."""
        return self.default is not MISSING


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A function's parameters and result, with text annotations resolved."""

    parameters: tuple[Parameter, ...]
    returns: Any
    problems: tuple[Problem, ...] = ()


class AuthorFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function of author code, its location, and the names that its text annotations may use."""

    call: Callable[..., Any]
    location: Location
    scope: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def name(self) -> str:
        """The function's own name."""
        return self.call.__name__

    @property
    def is_async(self) -> bool:
        """Whether its call must be awaited."""
        return inspect.iscoroutinefunction(self.call)

    @classmethod
    def capture(cls, call: Callable[..., Any], depth: int = 1) -> "AuthorFunction":
        """Capture a function; `depth` is the number of frames up to the author's own line."""
        code = getattr(inspect.unwrap(call), "__code__", None)
        name = getattr(call, "__name__", "")
        if code is None or not name.isidentifier() or keyword.iskeyword(name):
            raise TypeError(f"expected a function with its own name, got {call!r}")
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
            raise TypeError(f"'{name}' is a generator: return one value instead of yielding several")
        location = Location(code.co_filename, code.co_firstlineno)
        has_text = any(isinstance(note, str) for note in raw_annotations(call).values())
        scope = _local_names(call, sys._getframe(depth + 1)) if has_text else {}
        return cls(call=call, location=location, scope=scope)

    @property
    def is_interactive(self) -> bool:
        """Whether it was declared in an interactive session, in which a cell may be run twice."""
        return hasattr(sys, "ps1") and self.call.__module__ == "__main__"

    def replaces(self, other: "AuthorFunction") -> bool:
        """Return whether it is another one declared again in an interactive session."""
        names = {(one.call.__module__, one.call.__qualname__) for one in (self, other)}
        return self.is_interactive and len(names) == 1

    def signature(self) -> Signature:
        """Resolve parameters and annotations; one that cannot be resolved becomes `Any` and a problem."""
        problems: list[Problem] = []
        try:
            hints = get_type_hints(self.call, localns=self.scope or None, include_extras=True)
        except Exception as error:  # author code: annotations may hold any expression
            problems.append(
                Problem(
                    message=f"annotations of '{self.name}' cannot be resolved: {error}",
                    location=self.location,
                    node=self.name,
                )
            )
            hints = {}
        parameters = [
            Parameter(
                name=name,
                annotation=hints.get(name, Any),
                default=parameter.default,
                keyword_only=parameter.kind is inspect.Parameter.KEYWORD_ONLY,
            )
            for name, parameter in self._named_parameters(problems)
        ]
        returns = hints.get("return", Any)
        return Signature(parameters=tuple(parameters), returns=returns, problems=tuple(problems))

    def _named_parameters(self, problems: list[Problem]) -> list[tuple[str, inspect.Parameter]]:
        declared = []
        for name, parameter in inspect_signature(self.call).parameters.items():
            if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                message = f"'{self.name}' takes *{name}: parameters must be named, their names are the wiring"
                problems.append(Problem(message=message, location=self.location, node=self.name, parameter=name))
            else:
                declared.append((name, parameter))
        return declared


def _local_names(call: Callable[..., Any], frame: FrameType) -> dict[str, Any]:
    """Return the names that text annotations may use in addition to globals: the locals of the enclosing functions."""
    scopes = [frame.f_locals] if frame.f_locals is not frame.f_globals else []
    outer = frame.f_back
    while outer is not None:
        if call.__qualname__.startswith(f"{outer.f_code.co_qualname}.<locals>."):
            scopes.append(outer.f_locals)
        outer = outer.f_back
    return {name: value for scope in reversed(scopes) for name, value in scope.items()}


def caller_location(depth: int = 1) -> Location:
    """Return the author's own line, `depth` frames above the caller of this function."""
    frame = sys._getframe(depth + 1)
    return Location(frame.f_code.co_filename, frame.f_lineno)
