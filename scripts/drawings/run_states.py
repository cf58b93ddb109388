"""The states of runs and task runs."""

from scripts.drawings.canvas import Canvas, Look, Point
from scripts.drawings.states import StateDrawing
from tidemill.workflows.states import RUN_TRANSITIONS, TASK_TRANSITIONS, RunState, TaskState

TASK_LOOKS: dict[TaskState, Look] = {
    TaskState.RUNNING: "info",
    TaskState.SUCCESS: "good",
    TaskState.FAILED: "bad",
    TaskState.UPSTREAM_FAILED: "bad",
    TaskState.UP_FOR_RETRY: "warn",
    TaskState.SKIPPED: "quiet",
    TaskState.CANCELLED: "quiet",
}


def draw_run_states() -> Canvas:
    """Draw the states of a run."""
    state = RunState
    canvas = Canvas(640, 236, "The states of a run: queued, running, then success, failed or cancelled")
    drawing = StateDrawing(
        canvas,
        RUN_TRANSITIONS,
        {state.RUNNING: "info", state.SUCCESS: "good", state.FAILED: "bad", state.CANCELLED: "quiet"},
    )
    queued = drawing.state(state.QUEUED, 20, 98)
    running = drawing.state(state.RUNNING, 230, 98)
    ended = canvas.frame(440, 34, 180, 186, "ended")
    drawing.state(state.SUCCESS, 470, 64)
    drawing.state(state.FAILED, 470, 114)
    cancelled = drawing.state(state.CANCELLED, 470, 164)
    drawing.move(state.QUEUED, state.RUNNING, queued.at("right"), running.at("left"))
    each = (state.SUCCESS, state.FAILED, state.CANCELLED)
    drawing.move(state.RUNNING, each, running.at("right"), Point(440, running.at("right").y))
    down, left = queued.at("bottom"), cancelled.at("left")
    drawing.move(state.QUEUED, state.CANCELLED, down, Point(down.x, left.y), left)
    back, top = queued.at("top"), ended.at("top")
    drawing.move(each, state.QUEUED, top, Point(top.x, 18), Point(back.x, 18), back)
    canvas.text(290, 12, "retried, or tasks cleared", "small")
    return drawing.to_canvas()


def draw_task_states() -> Canvas:
    """Draw the states of a task run."""
    canvas = Canvas(
        900,
        470,
        "The states of a task run: six before its end, and five ends",
    )
    drawing = StateDrawing(canvas, TASK_TRANSITIONS, TASK_LOOKS)
    _draw_active_tasks(canvas, drawing)
    _draw_ended_tasks(canvas, drawing)
    return drawing.to_canvas()


def _draw_active_tasks(canvas: Canvas, drawing: StateDrawing) -> None:
    state = TaskState
    canvas.frame(60, 20, 820, 276, "not ended")
    none = drawing.state(state.NONE, 90, 128)
    retry = drawing.state(state.UP_FOR_RETRY, 490, 38)
    canvas.frame(256, 104, 604, 172)
    scheduled = drawing.state(state.SCHEDULED, 276, 128)
    queued = drawing.state(state.QUEUED, 490, 128)
    running = drawing.state(state.RUNNING, 710, 128)
    deferred = drawing.state(state.DEFERRED, 490, 218)
    drawing.move(state.NONE, state.SCHEDULED, none.at("right"), scheduled.at("left"))
    drawing.move(state.SCHEDULED, state.QUEUED, scheduled.at("right"), queued.at("left"), both=True)
    canvas.text(443, 142, "claimed", "small")
    drawing.move(state.QUEUED, state.RUNNING, queued.at("right"), running.at("left"))
    drawing.move(state.QUEUED, state.UP_FOR_RETRY, queued.at("top"), retry.at("bottom"))
    over, across = running.at("top"), retry.at("right")
    drawing.move(state.RUNNING, state.UP_FOR_RETRY, over, Point(over.x, across.y), across)
    canvas.text(700, 50, "failed, with tries left", "small")
    wait, back = retry.at("left"), scheduled.at("top")
    drawing.move(state.UP_FOR_RETRY, state.SCHEDULED, wait, Point(back.x, wait.y), back)
    canvas.text(408, 50, "after its delay", "small")
    under, into = running.at("bottom", 1 / 6), deferred.at("right")
    drawing.move(state.RUNNING, state.DEFERRED, under, Point(under.x, into.y), into)
    out, up = deferred.at("left"), scheduled.at("bottom")
    drawing.move(state.DEFERRED, state.SCHEDULED, out, Point(up.x, out.y), up)


def _draw_ended_tasks(canvas: Canvas, drawing: StateDrawing) -> None:
    state = TaskState
    ended = canvas.frame(60, 350, 820, 104)
    canvas.text(72, 444, "ended", "small left")
    cancelled = drawing.state(state.CANCELLED, 90, 384)
    canvas.frame(236, 368, 452, 72)
    drawing.state(state.SUCCESS, 252, 384)
    drawing.state(state.SKIPPED, 392, 384)
    drawing.state(state.UPSTREAM_FAILED, 532, 384, 140)
    failed = drawing.state(state.FAILED, 720, 384)
    active = (state.NONE, state.SCHEDULED, state.QUEUED, state.RUNNING, state.UP_FOR_RETRY, state.DEFERRED)
    drawing.move(active, state.CANCELLED, Point(cancelled.at("top").x, 296), cancelled.at("top"))
    without_code = (state.SUCCESS, state.SKIPPED, state.UPSTREAM_FAILED)
    drawing.move(state.NONE, without_code, Point(190, 168), Point(190, 316), Point(330, 316), Point(330, 368))
    drawing.move(state.RUNNING, without_code, Point(760, 168), Point(760, 316), Point(600, 316), Point(600, 368))
    tried = (state.SCHEDULED, state.QUEUED, state.RUNNING, state.DEFERRED)
    drawing.move(tried, state.FAILED, Point(failed.at("top").x, 276), failed.at("top"))
    each = (state.CANCELLED, *without_code, state.FAILED)
    left = ended.at("left")
    drawing.move(each, state.NONE, left, Point(24, left.y), Point(24, 148), Point(90, 148))
    canvas.text(32, 328, "cleared", "small left")
