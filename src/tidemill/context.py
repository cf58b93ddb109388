"""The contexts that authors annotate: for type checkers, what the calls of a task return.

A call answers at once in a `def` task, and is awaited in an `async def` one. Each has a class here, so that type
checkers find an `await` that is missing, or one too many. At run time both are the domain's class.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from tidemill.annotations import context as domain

if TYPE_CHECKING:
    from tidemill.api.handles import AsyncRun
    from tidemill.graphs.outcomes import Receipt

    T = TypeVar("T")
    StepKey = str | int | None

    class Declared(Protocol):
        """An accumulator or a workflow, as declared."""

        @property
        def name(self) -> str:
            """The name."""

    class RunOfTask(Protocol):
        """A run that a `def` task has started: it has no way to wait for it."""

        @property
        def id(self) -> str:
            """The id of the run."""

    class Context(domain.Context):
        """The firing of a node, or the attempt of a `def` task."""

        def push(self, accumulator: str | Declared, event: Any) -> Receipt:
            """Push an event to an accumulator and return the Receipt."""

        def start(
            self, workflow: str | Declared, given: Mapping[str, Any] | None = None, /, **params: Any
        ) -> RunOfTask:
            """Start a run of a workflow and return its handle."""

        @overload
        def step(
            self, function: Callable[..., Awaitable[T]], /, *args: Any, key: StepKey = None, **kwargs: Any
        ) -> T: ...
        @overload
        def step(self, function: Callable[..., T], /, *args: Any, key: StepKey = None, **kwargs: Any) -> T: ...
        def step(self, function: Callable[..., Any], /, *args: Any, key: StepKey = None, **kwargs: Any) -> Any:
            """Call a function, unless the task has done it before, and return its stored value."""

        @overload
        def wait_for(self, name: str, type: type[T], **options: Any) -> T: ...
        @overload
        def wait_for(self, name: str, type: Any, **options: Any) -> Any: ...
        def wait_for(self, name: str, type: Any, **options: Any) -> Any:
            """Ask, and return the answer; the task is deferred until there is one."""

        def secret(self, name: str) -> str:
            """Return the value of a secret of the task's tenant."""

    class AsyncContext(domain.Context):
        """The attempt of an `async def` task."""

        async def push(self, accumulator: str | Declared, event: Any) -> Receipt:
            """Push an event to an accumulator and return the Receipt."""

        async def start(
            self, workflow: str | Declared, given: Mapping[str, Any] | None = None, /, **params: Any
        ) -> AsyncRun:
            """Start a run of a workflow and return its handle."""

        @overload
        async def step(
            self, function: Callable[..., Awaitable[T]], /, *args: Any, key: StepKey = None, **kwargs: Any
        ) -> T: ...
        @overload
        async def step(self, function: Callable[..., T], /, *args: Any, key: StepKey = None, **kwargs: Any) -> T: ...
        async def step(self, function: Callable[..., Any], /, *args: Any, key: StepKey = None, **kwargs: Any) -> Any:
            """Call a function, unless the task has done it before, and return its stored value."""

        @overload
        async def wait_for(self, name: str, type: type[T], **options: Any) -> T: ...
        @overload
        async def wait_for(self, name: str, type: Any, **options: Any) -> Any: ...
        async def wait_for(self, name: str, type: Any, **options: Any) -> Any:
            """Ask, and return the answer; the task is deferred until there is one."""

        async def secret(self, name: str) -> str:
            """Return the value of a secret of the task's tenant."""

        async def variable(self, name: str) -> Any:
            """Return the value of a variable of the task's tenant."""

else:
    Context = AsyncContext = domain.Context
