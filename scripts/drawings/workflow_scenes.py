"""Drawings about workflows: the components of the engine."""

from scripts.drawings.canvas import Canvas, Point


def draw_workflow_engine() -> Canvas:
    """Draw the leader, the nodes and the store."""
    canvas = Canvas(900, 400, "The leader plans runs in the store; every node runs the attempts that it has claimed")
    canvas.box(30, 20, 190, 46, "starts", "calls, slots, triggers, firings")
    canvas.box(300, 20, 190, 46, "reports, commands", "ends of tasks, retry, cancel")
    canvas.frame(20, 100, 560, 160)
    canvas.text(32, 250, "the leader: one node, for one term", "small left")
    scheduler = canvas.box(40, 130, 140, 52, "scheduler", "ticks, timers, slots", look="accent")
    coordinator = canvas.box(220, 130, 200, 52, "coordinator", "one change at a time per run", look="accent")
    reapers = canvas.box(450, 130, 112, 52, "reapers", "orphaned, lost", look="accent")
    canvas.text(320, 222, "draft: requests, plan, claims. One change, with its guards", "small")
    canvas.arrow(coordinator.at("bottom"), Point(320, 208))
    canvas.arrow(Point(scheduler.at("top").x, 66), scheduler.at("top"))
    canvas.arrow(Point(coordinator.at("top", 0.8).x, 66), coordinator.at("top", 0.8))
    canvas.arrow(scheduler.at("right"), coordinator.at("left"))
    canvas.arrow(reapers.at("left"), coordinator.at("right"))
    canvas.frame(20, 280, 560, 104, "every node")
    attempts = canvas.box(40, 312, 160, 52, "attempts", "heartbeats, reports", look="info")
    dispatcher = canvas.box(240, 312, 130, 52, "dispatcher", "bounded queue", look="info")
    executors = canvas.box(410, 312, 152, 52, "executors", "in_process, subprocess", look="info")
    canvas.arrow(attempts.at("right"), dispatcher.at("left"))
    canvas.arrow(dispatcher.at("right"), executors.at("left"))
    store = canvas.cylinder(690, 170, 180, 110, "store", "runs, task runs, events,", "one transaction per step")
    canvas.arrow(Point(580, 190), store.at("left", 0.3), both=True)
    canvas.text(636, 176, "changes", "small")
    canvas.arrow(Point(580, 332), store.at("left", 0.8), both=True)
    canvas.text(640, 332, "claims, heartbeats, ends", "small left")
    return canvas
