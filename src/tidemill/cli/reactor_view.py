"""Shows reactors: a line, their details, their firings, and a live view."""

import sys
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from msgspec import to_builtins
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidemill.cli.formatting import (
    format_count,
    format_short_duration,
    format_short_time,
    format_time,
    format_value,
    one_line,
)
from tidemill.cli.output import StreamFormat, can_redraw, output_console, print_json_line, print_text, show
from tidemill.graphs.health import ReactorHealth
from tidemill.graphs.key_forms import format_key
from tidemill.graphs.state import AccumulatorState, ReactorState
from tidemill.graphs.views import FiringView

VALUE_LIMIT = 80  # characters of a cached value
_HEALTH_STYLES = {ReactorHealth.LIVE: "green", ReactorHealth.FAILED: "red", ReactorHealth.DEGRADED: "yellow"}


def show_reactor_details(state: ReactorState, firings: Sequence[FiringView]) -> None:
    """Print a reactor with its accumulators and last firings."""
    show(_heading(state), _accumulators_table(state), *([_partitions_table(state)] if state.partitions else []))
    for firing in firings:
        for sentence in firing_sentences(firing):
            print_text(sentence)


def firing_sentences(firing: FiringView) -> Iterator[str]:
    """Yield a firing in a sentence, and one for the result of each graph."""
    how = " by hand" * firing.manual + ", degraded" * firing.degraded
    took = format_short_duration(firing.duration)
    whose = "" if firing.key is None else f" of key {format_key(firing.key)}"
    yield f"{format_time(firing.at)} firing {firing.id}{whose}{how}: {'ok' if firing.ok else 'failed'} after {took}"
    for name, result in firing.results.items():
        if result.error is not None:
            yield f"  {name} failed: {one_line(result.error.message)}"
        for node, value in result.outputs.items():
            yield f"  {name}.{node}: {format_value(value, VALUE_LIMIT)}"


def _heading(state: ReactorState) -> Text:
    health = Text(str(state.health), _HEALTH_STYLES.get(state.health, ""))
    text = Text.assemble((state.name, "bold"), " ", health, " paused" * state.paused)
    text.append(f"  {format_count(state.fires, 'firing')}, {state.failures:,} failed", "dim")
    if state.counted_since is not None:
        text.append(f" since {format_short_time(state.counted_since)}", "dim")
    text.append(f", {state.queued:,} queued", "dim")
    if state.dead_letters:
        text.append(f", {format_count(state.dead_letters, 'dead letter')}", "yellow")
    if state.key is not None:
        text.append(f"; key {format_key(state.key)}")
    elif state.keys is not None:
        text.append(f"; {state.keys.total:,} keys, {state.keys.active:,} in memory", "dim")
    text.append(f"; starts {', '.join(state.starts) or 'no workflow'}", "dim")
    for names, word in ((state.waiting, "waits for"), (state.disconnected, "disconnected")):
        text.append(f"; {word} {', '.join(names)}" if names else "")
    return text


def _accumulators_table(state: ReactorState) -> Table:
    table = Table("accumulator", "health", "events", "emitted", "dead letters", "last event", "value")
    for name, one in state.accumulators.items():
        value = format_value(state.cache[name], VALUE_LIMIT) if name in state.cache else ""
        is_dirty = state.dirty.get(name, False)
        table.add_row(
            name,
            _accumulator_health(one),
            f"{one.events:,}",
            f"{one.emitted:,}",
            f"{one.dead_letters:,}",
            "" if one.last_event_at is None else format_short_time(one.last_event_at),
            Text(f"{'* ' if is_dirty else ''}{value}"),
        )
    return table


def _partitions_table(state: ReactorState) -> Table:
    table = Table("partition", "owner", "health", "keys", "in memory", "firings", "queued")
    for one in state.partitions:
        keys = ("", "") if one.keys is None else (f"{one.keys.total:,}", f"{one.keys.active:,}")
        table.add_row(str(one.number), one.owner or "", str(one.health), *keys, f"{one.fires:,}", f"{one.queued:,}")
    return table


def _accumulator_health(one: AccumulatorState) -> str:
    return f"{one.health}: {one_line(one.reason)}" if one.reason else str(one.health)


# -- live


class ReactorDisplay(Protocol):
    """Shows the states of a reactor as they come."""

    def show(self, state: ReactorState) -> None:
        """Show a state."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def make_reactor_display(output: StreamFormat) -> ReactorDisplay:
    """Return a live view on a terminal, one line per state elsewhere, and JSON lines for programs."""
    if output.is_for_programs:
        return _LineDisplay(as_json=True)
    return _LiveDisplay() if can_redraw(sys.stdout) else _LineDisplay(as_json=False)


class _LineDisplay(ReactorDisplay):
    """One line per state."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def show(self, state: ReactorState) -> None:
        if self._as_json:
            print_json_line(to_builtins(state))
        else:
            print_text(_heading(state).plain)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class _LiveDisplay(ReactorDisplay):
    """Redraws the reactor, with the rate of its firings."""

    def __init__(self) -> None:
        self._live = Live(console=output_console(), auto_refresh=False)
        self._last: tuple[float, int] | None = None

    def show(self, state: ReactorState) -> None:
        now = time.monotonic()
        rate = ""
        if self._last is not None and now > self._last[0]:
            rate = f"  {max(0.0, (state.fires - self._last[1]) / (now - self._last[0])):,.1f} firings/s"
        self._last = now, state.fires
        self._live.update(Group(_heading(state).append(rate), _accumulators_table(state)), refresh=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)
