"""The states of accumulators and reactors."""

from scripts.drawings.canvas import Canvas, Point
from scripts.drawings.states import StateDrawing
from tidemill.graphs.health import ACCUMULATOR_TRANSITIONS, REACTOR_TRANSITIONS, AccumulatorHealth, ReactorHealth


def draw_reactor_states() -> Canvas:
    """Draw the health of a reactor."""
    state = ReactorHealth
    canvas = Canvas(720, 260, "The states of a reactor and the transitions between them")
    drawing = StateDrawing(
        canvas,
        REACTOR_TRANSITIONS,
        {state.LIVE: "good", state.DEGRADED: "warn", state.FAILED: "bad", state.WARMING: "info"},
    )
    starting = drawing.state(state.STARTING, 20, 84)
    running = canvas.frame(196, 58, 504, 92)
    warming = drawing.state(state.WARMING, 216, 84)
    live = drawing.state(state.LIVE, 388, 84)
    degraded = drawing.state(state.DEGRADED, 560, 84)
    failed = drawing.state(state.FAILED, 388, 206)
    drawing.move(state.STARTING, state.WARMING, starting.at("right"), warming.at("left"))
    drawing.move(state.WARMING, state.LIVE, warming.at("right"), live.at("left"))
    drawing.move(state.LIVE, state.DEGRADED, live.at("right"), degraded.at("left"), both=True)
    each = (state.WARMING, state.LIVE, state.DEGRADED)
    top, back = running.at("top"), starting.at("top")
    drawing.move(each, state.STARTING, top, Point(top.x, 28), Point(back.x, 28), back)
    canvas.text(264, 21, "crashes: the supervisor restarts it", "small")
    drawing.move(each, state.FAILED, running.at("bottom"), failed.at("top"))
    canvas.text(460, 182, "the supervisor gives up", "small left")
    down, left = starting.at("bottom"), failed.at("left")
    drawing.move(state.STARTING, state.FAILED, down, Point(down.x, left.y), left, both=True)
    canvas.text(228, 219, "gives up, or an operator restarts it", "small")
    return drawing.to_canvas()


def draw_accumulator_states() -> Canvas:
    """Draw the health of an accumulator."""
    state = AccumulatorHealth
    canvas = Canvas(720, 330, "The states of an accumulator and the transitions between them")
    drawing = StateDrawing(
        canvas,
        ACCUMULATOR_TRANSITIONS,
        {
            state.LIVE: "good",
            state.SOCKET_ONLY: "good",
            state.CONNECTING: "info",
            state.DISCONNECTED: "warn",
            state.FAILED: "bad",
        },
    )
    starting = drawing.state(state.STARTING, 20, 110)
    running = canvas.frame(240, 20, 460, 220)
    connecting = drawing.state(state.CONNECTING, 270, 46)
    live = drawing.state(state.LIVE, 550, 46)
    disconnected = drawing.state(state.DISCONNECTED, 270, 174)
    socket_only = drawing.state(state.SOCKET_ONLY, 550, 174)
    failed = drawing.state(state.FAILED, 410, 276)
    drawing.move(state.CONNECTING, state.LIVE, connecting.at("right"), live.at("left"))
    drawing.move(state.CONNECTING, state.DISCONNECTED, connecting.at("bottom"), disconnected.at("top"), both=True)
    drawing.move(state.LIVE, state.SOCKET_ONLY, live.at("bottom"), socket_only.at("top"))
    drawing.move(state.DISCONNECTED, state.SOCKET_ONLY, disconnected.at("right"), socket_only.at("left"), both=True)
    drawing.move(state.LIVE, state.DISCONNECTED, live.at("bottom", 0.12), disconnected.at("top", 0.88), both=True)
    drawing.move(state.CONNECTING, state.SOCKET_ONLY, connecting.at("bottom", 0.88), socket_only.at("top", 0.12))
    each = (state.CONNECTING, state.LIVE, state.DISCONNECTED, state.SOCKET_ONLY)
    drawing.move(state.STARTING, each, starting.at("right"), running.at("left"), both=True)
    canvas.text(190, 121, "starts", "small")
    canvas.text(190, 147, "restarts", "small")
    drawing.move(each, state.FAILED, running.at("bottom", 230 / 460), failed.at("top"))
    canvas.text(482, 263, "gives up, or the source says so", "small left")
    down, left = starting.at("bottom"), failed.at("left")
    drawing.move(state.STARTING, state.FAILED, down, Point(down.x, left.y), left, both=True)
    canvas.text(246, 289, "gives up, or an operator restarts it", "small")
    return drawing.to_canvas()
