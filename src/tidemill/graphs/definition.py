"""The declarations as frozen values: accumulators, sources, criteria, reactors, nodes."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Protocol,
    cast,
    dataclass_transform,
    get_args,
    runtime_checkable,
)

import msgspec

from tidemill.annotations.signatures import AuthorFunction, Parameter, Signature, caller_location
from tidemill.annotations.strict_validation import has_fields
from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.annotations.variants import label, strip_none
from tidemill.graphs.keys import (
    DEFAULT_PARTITIONS,
    KeyOption,
    KeyReader,
    PartitionId,
    build_key_reader,
    key_field_problem,
    key_problems,
)
from tidemill.kernel.about import About, about_problems, clean_text
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.kernel.limits import NAME_RULE, is_name
from tidemill.kernel.suggestions import did_you_mean

if TYPE_CHECKING:  # a plain `tm.Accumulator` is one of any function: Python 3.13 has these defaults
    from typing_extensions import ParamSpec, TypeVar

    Arguments = ParamSpec("Arguments", default=...)
    Returned = TypeVar("Returned", default=Any)
else:
    from typing import ParamSpec, TypeVar

    Arguments, Returned = ParamSpec("Arguments"), TypeVar("Returned")

Strategy = Literal["latest", "sequential"]
Overflow = Literal["block", "drop_oldest", "reject"]
Extra = Literal["ignore", "forbid"]
Durability = Literal["none", "interval", "fire", "boundary"]


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Boundary(msgspec.Struct, frozen=True, gc=False):
    """A typed, immutable snapshot that an accumulator emits. Subclass it and declare fields."""


class AccumulatorKind(StrEnum):
    """The five kinds of accumulator."""

    PASSTHROUGH = "passthrough"
    STREAM = "stream"
    POLLING = "polling"
    BATCH = "batch"
    WINDOW = "window"


@runtime_checkable
class Source(Protocol):
    """A source of a stream's events. Implement `start` to write your own."""

    def start(
        self, checkpoint: Any, /, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any] | Awaitable[AsyncIterator[Any]]:
        """Yield (event, checkpoint) pairs, or lists of them, starting after `checkpoint` (None: from the beginning).

        A coroutine connects first, and returns the iterator. With a parameter named `context` it gets a
        `tm.sources.SourceContext`.
        """


class Kafka(msgspec.Struct, frozen=True, kw_only=True):
    """A Kafka topic; `servers` from here or from the setting `kafka_servers`."""

    topic: str
    group: str | None = None
    servers: str | None = None


class KafkaShare(msgspec.Struct, frozen=True):
    """The share of a Kafka topic that one partition of a keyed reactor reads."""

    source: Kafka
    number: int
    """The number of the partition: it reads the topic's partitions whose numbers are congruent to it."""
    partitions: int
    """How many partitions the reactor has."""


class Nats(msgspec.Struct, frozen=True, kw_only=True):
    """A NATS JetStream subject; `servers` from here or from the setting `nats_servers`."""

    subject: str
    durable: str | None = None
    servers: str | None = None


class StateUpgrade:
    """Makes the running state of a newer version from that of an older one."""

    def __init__(self, function: Callable[[Any], Any], state: type) -> None:
        self._function = function
        self._validator = TypeValidator(state)

    def __call__(self, stored: Any) -> Any:
        """Return the state for a stored one, which is plain data, or raise TypeMismatchError."""
        try:
            upgraded = self._function(stored)
        except AUTHOR_ERRORS as error:
            raise TypeMismatchError(f"upgrade= raised {describe(error)}") from error
        try:
            return self._validator.validate(upgraded)
        except TypeMismatchError as error:
            raise TypeMismatchError(f"upgrade= returned a wrong value: {error}") from error


class Accumulator(msgspec.Struct, Generic[Arguments, Returned], frozen=True, kw_only=True, eq=False, dict=True):
    """One source of boundaries, as declared. Calling it calls the author's function."""

    name: str
    kind: AccumulatorKind
    location: Location
    function: AuthorFunction | None = None
    source: Source | Kafka | KafkaShare | Nats | None = None
    state: type | None = None
    upgrade: Callable[[Any], Any] | None = None
    every: float | None = None
    timeout: float | None = None
    max_size: int | None = None
    capacity: int | None = None
    element: Any = None
    thread: bool = False
    extra: Extra = "ignore"
    partition: PartitionId | None = None
    """Which partition of a keyed reactor's accumulator it is; None for a whole one."""

    def __call__(self, *values: Arguments.args, **named: Arguments.kwargs) -> Returned:
        """Call the author's function, as in a unit test."""
        if self.function is None:
            raise TypeError(f"window '{self.name}' has no function to call")
        return cast("Callable[Arguments, Returned]", self.function.call)(*values, **named)

    @cached_property
    def signature(self) -> Signature:
        """The function's parameters and result, resolved once."""
        if self.function is None:
            return Signature(parameters=(), returns=list[self.element])  # type: ignore[name-defined]
        return self.function.signature()

    @cached_property
    def event_parameter(self) -> Parameter | None:
        """The parameter that takes the event (or the list of events); polling has none."""
        parameters = [one for one in self.signature.parameters if one.name != "state" or self.state is None]
        return parameters[0] if parameters else None

    @property
    def event_type(self) -> Any:
        """The type of one pushed event: the annotation of the event parameter, or of an element."""
        if self.kind is AccumulatorKind.WINDOW:
            return self.element
        if self.kind is AccumulatorKind.POLLING:
            return self.boundary_type
        annotation = self.event_parameter.annotation if self.event_parameter else Any
        if self.kind is AccumulatorKind.BATCH:
            arguments = get_args(strip_none(annotation))
            return arguments[0] if arguments else Any
        return annotation

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with its annotations, found when the first graph is wired."""
        if self.extra == "ignore" or has_fields(self.event_type):
            return self.signature.problems
        message = (
            f"accumulator '{self.name}': extra='forbid' needs an event type with fields, such as a tm.Boundary, "
            f"and {label(self.event_type)} has none"
        )
        return (*self.signature.problems, Problem(message=message, location=self.location))

    @cached_property
    def state_upgrade(self) -> StateUpgrade | None:
        """What makes its state, and its boundaries, from those of an older version."""
        return None if self.upgrade is None or self.state is None else StateUpgrade(self.upgrade, self.state)

    @property
    def boundary_type(self) -> Any:
        """The type that the accumulator emits, without the None that means "emit nothing"."""
        return strip_none(self.signature.returns)

    @property
    def declared_name(self) -> str:
        """The name that its author gave it: a partition has another one, `trades[3]`."""
        return self.name if self.partition is None else self.partition.name

    @property
    def is_window(self) -> bool:
        """Whether this is a state accumulator: a window of the values fed to it."""
        return self.kind is AccumulatorKind.WINDOW

    def trim_to_capacity(self, content: list[Any]) -> list[Any]:
        """Return the newest values of a window's content, as many as its capacity allows."""
        capacity = self.capacity or 0
        return content if capacity < 0 or len(content) <= capacity else content[len(content) - capacity :]

    def __repr__(self) -> str:
        return f"<{self.kind} accumulator '{self.name}' -> {label(self.boundary_type)}>"


class Criteria(msgspec.Struct, frozen=True):
    """When a reactor fires: any or all of some accumulators have a new boundary (none named: all of them)."""

    mode: Literal["any", "all"]
    accumulators: tuple[Accumulator, ...] = ()

    def __str__(self) -> str:
        """Return the criteria in words: "any", or "all of orderbook, limits"."""
        return f"{self.mode} of {', '.join(one.name for one in self.accumulators)}" if self.accumulators else self.mode


def any_of(*accumulators: Accumulator) -> Criteria:
    """Fire when any of these accumulators has a new boundary; others only fill the cache. None named: all of them."""
    return Criteria("any", accumulators)


def all_of(*accumulators: Accumulator) -> Criteria:
    """Fire when each of these accumulators has a new boundary since the last firing. None named: all of them."""
    return Criteria("all", accumulators)


class Reactor:
    """Owns the input cache and dirty flags of its accumulators, and decides when to fire. N graphs may bind to it."""

    __slots__ = (
        "about",
        "accumulator_names",
        "accumulators",
        "capacity",
        "durability",
        "key",
        "location",
        "name",
        "on_error",
        "overflow",
        "partition",
        "partitions",
        "strategy",
        "when",
    )

    def __init__(
        self,
        name: str,
        accumulators: Sequence[Accumulator],
        *,
        when: Literal["any", "all"] | Criteria = "any",
        strategy: Strategy = "latest",
        capacity: int = 10_000,
        overflow: Overflow = "block",
        durability: Durability | None = None,
        on_error: Literal["dead_letter"] | Retry = "dead_letter",
        key: KeyOption | None = None,
        partitions: int | None = None,
        owner: str = "",
        description: str = "",
    ) -> None:
        self.name = name
        self.partition: PartitionId | None = None
        if isinstance(accumulators, Accumulator):
            message = f"accumulators come in a list: [{accumulators.name}]"
            raise DefinitionError.single(f"reactor '{name}'", message, caller_location())
        self.accumulators = tuple(accumulators)
        self.accumulator_names = tuple(getattr(one, "name", repr(one)) for one in self.accumulators)
        self.when: Criteria = Criteria(when) if when == "any" or when == "all" else when
        self.strategy = strategy
        self.capacity = capacity
        self.overflow = overflow
        self.durability = durability
        self.on_error = on_error
        self.key = key
        self.location = caller_location()
        self._check(partitions, owner, description)
        self.about = About(owner, clean_text(description))
        self.partitions = partitions or (DEFAULT_PARTITIONS if self.is_keyed else 1)

    def _check(self, partitions: int | None, owner: Any, description: Any) -> None:
        messages = [*self._problems(), *self._key_problems(partitions), *about_problems(owner, description)]
        if problems := [Problem(message=message, location=self.location) for message in messages]:
            raise DefinitionError(problems, f"reactor '{self.name}'")

    def _problems(self) -> Sequence[str]:
        messages = []
        if not is_name(self.name):
            messages.append(f"a reactor needs a name, {NAME_RULE}")
        if others := [one for one in self.accumulators if not isinstance(one, Accumulator)]:
            messages.append(f"{others[0]!r} is not an accumulator: pass the decorated functions themselves")
        if not self.accumulators:
            messages.append("a reactor needs at least one accumulator")
        if len(set(self.accumulator_names)) < len(self.accumulator_names):
            messages.append(f"two accumulators have the same name: {sorted(self.accumulator_names)}")
        messages += [
            f"{option} is one of {', '.join(map(repr, words))}, not {value!r}{did_you_mean(str(value), words)}"
            for option, value, words in self._choices()
            if value not in words
        ]
        if type(self.capacity) is not int or self.capacity < 1:
            messages.append(f"capacity is a number of boundaries, at least 1, not {self.capacity!r}")
        if self.on_error != "dead_letter" and not isinstance(self.on_error, Retry):
            messages.append(f"on_error is 'dead_letter' or tm.Retry(...), not {self.on_error!r}")
        if self.overflow == "drop_oldest" and self.durability == "boundary":
            messages.append("overflow='drop_oldest' contradicts durability='boundary', which promises to lose nothing")
        return messages + self._criteria_problems()

    def _key_problems(self, partitions: int | None) -> Sequence[str]:
        accumulators = [one for one in self.accumulators if isinstance(one, Accumulator)]
        windows = [one.name for one in accumulators if one.is_window]
        problems = key_problems(self.key, partitions, self.accumulator_names, windows)
        reason = "and a keyed reactor cannot say of which key before it returns"
        return problems + [
            f"polling accumulator '{one.name}' has state=, {reason}"
            for one in accumulators
            if self.is_keyed and one.kind is AccumulatorKind.POLLING and one.state is not None
        ]

    def _choices(self) -> Sequence[tuple[str, Any, tuple[str, ...]]]:
        return (
            ("strategy", self.strategy, get_args(Strategy)),
            ("overflow", self.overflow, get_args(Overflow)),
            ("durability", "none" if self.durability is None else self.durability, get_args(Durability)),
        )

    def _criteria_problems(self) -> list[str]:
        if not isinstance(self.when, Criteria):
            return [f"when is 'any', 'all', tm.any_of(...) or tm.all_of(...), not {self.when!r}"]
        return [self._criteria_problem(one) for one in self.when.accumulators if one not in self.accumulators]

    @property
    def boundary_types(self) -> dict[str, Any]:
        """The types of the inputs of a firing, by accumulator."""
        return {one.name: one.boundary_type for one in self.accumulators}

    @property
    def declared_name(self) -> str:
        """The name that its author gave it: a partition has another one, `market[3]`."""
        return self.name if self.partition is None else self.partition.name

    @property
    def is_partition(self) -> bool:
        """Whether this is one partition of a keyed reactor."""
        return self.partition is not None

    @property
    def is_keyed(self) -> bool:
        """Whether cache, flags, queue, state and order are per key."""
        return self.key is not None

    def check_key_fields(self) -> None:
        """Raise DefinitionError if the key names a field that events do not have. Their types are resolved here."""
        options = [] if self.key is None else [(self.key, one) for one in self.accumulators if not one.is_window]
        found = (key_field_problem(key, one.name, one.event_type) for key, one in options)
        if problems := [Problem(message=message, location=self.location) for message in found if message is not None]:
            raise DefinitionError(problems, f"reactor '{self.name}'")

    def key_reader(self, accumulator: Accumulator) -> KeyReader:
        """Return the reader of the keys of an accumulator's events; only of a keyed reactor."""
        assert self.key is not None, "the reactor has no key"
        return build_key_reader(self.key, accumulator.name, accumulator.event_type)

    def _criteria_problem(self, named: Any) -> str:
        if not isinstance(named, Accumulator):
            return f"when names {named!r}: pass the accumulators themselves to tm.any_of and tm.all_of"
        hint = did_you_mean(named.name, self.accumulator_names)
        return f"when names '{named.name}', which is not among its accumulators {list(self.accumulator_names)}{hint}"

    def __repr__(self) -> str:
        return f"<reactor '{self.name}' of {', '.join(self.accumulator_names)}>"


class GraphNodeDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One function of a graph, as declared."""

    function: AuthorFunction
    thread: bool = False
    feeds: Accumulator | str | None = None
    ignores: tuple[Any, ...] = ()
    owner: str = ""
    description: str = ""

    @property
    def about(self) -> About:
        """Its owner, and its description or docstring."""
        return About.of_function(self.function.call, self.owner, self.description)

    @property
    def name(self) -> str:
        """The node's name: the function's own."""
        return self.function.name

    @property
    def fed_accumulator(self) -> str | None:
        """The name of the accumulator that its results are pushed into."""
        return self.feeds.name if isinstance(self.feeds, Accumulator) else self.feeds

    @property
    def needs_await(self) -> bool:
        """Whether its call must be awaited."""
        return self.thread or self.function.is_async
