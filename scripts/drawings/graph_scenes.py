"""Drawings about graphs: the two engines of a node, and the path of an event."""

from itertools import pairwise

from scripts.drawings.canvas import Canvas, Point


def draw_engines() -> Canvas:
    """Draw the two engines in one node."""
    canvas = Canvas(900, 430, "One node with two engines, graphs and workflows, on one store")
    canvas.frame(150, 20, 730, 300, "one node, in one process")
    canvas.frame(170, 52, 690, 106, "graphs: microseconds, for each event")
    canvas.frame(170, 188, 690, 116)
    canvas.text(182, 295, "workflows: seconds to hours, each step stored", "small left")
    events = canvas.box(12, 82, 122, 52, "events", "push, Kafka, NATS")
    clock = canvas.box(12, 212, 122, 52, "starts", "clock, callers")
    accumulators = canvas.box(190, 82, 136, 52, "accumulators", "one per source", look="info")
    reactor = canvas.box(372, 82, 136, 52, "reactor", "inputs, criteria", look="accent")
    graph = canvas.box(554, 82, 136, 52, "graph", "one function", look="accent")
    decision = canvas.box(736, 82, 104, 52, "decision", "typed value", look="good")
    leader = canvas.box(190, 212, 136, 52, "leader", "plans runs", look="accent")
    tasks = canvas.box(372, 212, 136, 52, "claims", "slots, pools, leases", look="info")
    executors = canvas.box(554, 212, 136, 52, "executors", "threads, processes", look="accent")
    result = canvas.box(736, 212, 104, 52, "results", "retries, logs", look="good")
    for row in ((events, accumulators, reactor, graph, decision), (clock, leader, tasks, executors, result)):
        for before, after in pairwise(row):
            canvas.arrow(before.at("right"), after.at("left"))
    down, into = decision.at("bottom"), leader.at("top")
    canvas.arrow(down, Point(down.x, 174), Point(into.x, 174), into)
    canvas.text(520, 170, "a decision starts a run", "small")
    store = canvas.cylinder(372, 350, 318, 64, "store", "SQLite or PostgreSQL: state, journal, runs")
    canvas.arrow(Point(440, 320), Point(440, store.y), both=True)
    canvas.arrow(Point(622, 320), Point(622, store.y), both=True)
    return canvas


def draw_event_path() -> Canvas:
    """Draw the path of an event from the push to the result of the graph."""
    canvas = Canvas(900, 380, "The path of an event from a push to the log of the firing")
    fast = canvas.frame(150, 30, 730, 126, "the fast path: one generated function, plain calls on one thread")
    push = canvas.box(10, 72, 110, 52, "push", "handle(event)")
    steps = [
        canvas.box(170, 72, 112, 52, "decode", "if it is not typed", look="info"),
        canvas.box(312, 72, 112, 52, "accumulator", "your function", look="accent"),
        canvas.box(454, 72, 112, 52, "cache", "slot, dirty flag", look="info"),
        canvas.box(596, 72, 112, 52, "graph", "your functions", look="accent"),
        canvas.box(738, 72, 122, 52, "log", "one tuple", look="info"),
    ]
    for before, after in pairwise([push, *steps]):
        canvas.arrow(before.at("right"), after.at("left"))
    _draw_slow_path(canvas)
    canvas.arrow(Point(226, fast.y + fast.height), Point(226, 206))
    canvas.text(238, 186, "no credit: a pause, a waiting observer, a snapshot, ...", "small left")
    canvas.arrow(Point(798, 206), Point(798, fast.y + fast.height))
    canvas.text(730, 186, "grants credit again", "small")
    return canvas


def _draw_slow_path(canvas: Canvas) -> None:
    canvas.frame(150, 206, 730, 156, "the slow path: every condition is checked")
    steps = [
        canvas.box(170, 240, 112, 52, "decode", "or dead letter"),
        canvas.box(312, 240, 112, 52, "accumulator", "batches, async"),
        canvas.box(454, 240, 112, 52, "reactor", "live? criteria?"),
        canvas.box(596, 240, 112, 52, "fire", "all graphs, retries"),
        canvas.box(738, 240, 122, 52, "record", "observers, log"),
    ]
    for before, after in pairwise(steps):
        canvas.arrow(before.at("right"), after.at("left"))
    store = canvas.box(312, 316, 112, 34, "journal", look="quiet")
    canvas.arrow(steps[1].at("bottom"), store.at("top"), dashed=True)
    canvas.text(440, 337, 'with durability="boundary": committed before it takes effect', "small left")
