"""csp: the market maker in replay of recorded events, and in real time, pushed from a thread."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import csp
from csp import ts
from csp.impl.pulladapter import PullInputAdapter
from csp.impl.pushadapter import PushInputAdapter
from csp.impl.wiring import py_pull_adapter_def, py_push_adapter_def

from benchmarks.market_maker import (
    ACCUMULATE,
    PATTERN,
    Action,
    Book,
    Exposure,
    Hold,
    Price,
    Quote,
    Trade,
    audit,
    combine,
    decide,
    hold,
    ledger,
    make_event,
    place,
)
from benchmarks.peers.graph_work import evaluating, pacing, push_all, push_paced_from_thread
from benchmarks.peers.orders import serve

BEGIN = datetime(2030, 1, 1)
STEP = timedelta(microseconds=1)
LONGEST = timedelta(minutes=5)
WARM_UP = 2  # events before all three feeds have spoken
to_book, to_price, to_exposure = ACCUMULATE

Produce = Callable[[Callable[[int, dict[str, Any]], None], int], None]


@csp.node
def on_book(event: ts[dict]) -> ts[Book]:
    if csp.ticked(event):
        return to_book(event)


@csp.node
def on_price(event: ts[dict]) -> ts[Price]:
    if csp.ticked(event):
        return to_price(event)


@csp.node
def on_exposure(event: ts[dict]) -> ts[Exposure]:
    if csp.ticked(event):
        return to_exposure(event)


@csp.node
def on_combine(book: ts[Book], price: ts[Price], exposure: ts[Exposure]) -> ts[Quote]:
    if csp.ticked(book, price, exposure) and csp.valid(book, price, exposure):
        return combine(book, price, exposure)


@csp.node
def on_decide(quote: ts[Quote]) -> csp.Outputs(trade=ts[Trade], hold=ts[Hold]):
    if csp.ticked(quote):
        decision = decide(quote)
        if type(decision) is Trade:
            csp.output(trade=decision)
        else:
            csp.output(hold=decision)


@csp.node
def on_place(trade: ts[Trade]) -> ts[Action]:
    if csp.ticked(trade):
        return place(trade)


@csp.node
def on_hold(decision: ts[Hold]) -> ts[Action]:
    if csp.ticked(decision):
        return hold(decision)


@csp.node
def on_audit(placed: ts[Action], held: ts[Action], last: int):
    if csp.ticked(placed):
        audit(placed, None)
    elif csp.ticked(held):
        audit(None, held)
    if ledger.evaluations == last:
        csp.stop_engine()


@csp.node
def split(item: ts[object]) -> csp.Outputs(book=ts[dict], price=ts[dict], exposure=ts[dict]):
    if csp.ticked(item):
        source, event = item
        if source == 0:
            csp.output(book=event)
        elif source == 1:
            csp.output(price=event)
        else:
            csp.output(exposure=event)


@csp.graph
def market(book: ts[dict], price: ts[dict], exposure: ts[dict], last: int):
    decision = on_decide(on_combine(on_book(book), on_price(price), on_exposure(exposure)))
    on_audit(on_place(decision.trade), on_hold(decision.hold), last)


class Recording(PullInputAdapter):
    """Replays the events of one feed, each at a time of its own."""

    def __init__(self, own: int, events: int) -> None:
        self._ticks = (
            (BEGIN + number * STEP, make_event(number, number)[1])
            for number in range(events)
            if PATTERN[number % len(PATTERN)] == own
        )
        super().__init__()

    def next(self) -> tuple[datetime, dict[str, Any]] | None:
        return next(self._ticks, None)


recording = py_pull_adapter_def("recording", Recording, ts[dict], own=int, events=int)


@csp.graph
def replayed(events: int):
    market(recording(0, events), recording(1, events), recording(2, events), events - WARM_UP)


def replay(events: int) -> None:
    """Run through recorded events as fast as possible."""
    csp.run(replayed, events, starttime=BEGIN, endtime=BEGIN + events * STEP)


class Feed(PushInputAdapter):
    """Lets a thread push events; one adapter for all feeds, so that each event has an engine cycle of its own."""

    def __init__(self, produce: Produce, events: int) -> None:
        self._thread = Thread(target=produce, args=(lambda *item: self.push_tick(item), events))

    def start(self, starttime: datetime, endtime: datetime) -> None:  # noqa: ARG002
        self._thread.start()

    def stop(self) -> None:
        self._thread.join()


feed = py_push_adapter_def("feed", Feed, ts[object], produce=object, events=int)


@csp.graph
def pushed(produce: object, events: int):
    item = feed(produce, events, push_mode=csp.PushMode.NON_COLLAPSING)
    parts = split(item)
    market(parts.book, parts.price, parts.exposure, events - WARM_UP)


def real_time(produce: Produce) -> Callable[[int], None]:
    """Return a function that runs the graph in real time while a thread pushes."""

    def run(events: int) -> None:
        begin = datetime.now(UTC).replace(tzinfo=None)  # noqa: TID251 - the engine runs on the machine's clock
        csp.run(pushed, produce, events, starttime=begin, endtime=begin + LONGEST, realtime=True)

    return run


if __name__ == "__main__":
    asyncio.run(
        serve(
            {
                "replay": evaluating(replay),
                "real time": evaluating(real_time(push_all)),
                "paced": pacing(real_time(push_paced_from_thread)),
            }
        )
    )
