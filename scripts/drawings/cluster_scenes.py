"""Drawings about several nodes: a deployment, the leader with its lease and epoch, and forwarding."""

from scripts.drawings.canvas import Area, Canvas, Look, Point


def draw_deployment() -> Canvas:
    """Draw servers, workers and PostgreSQL."""
    canvas = Canvas(
        900,
        360,
        "Users reach servers; servers and workers share one PostgreSQL",
    )
    users = [
        canvas.box(20, 40, 150, 46, "browsers", "web UI, /docs"),
        canvas.box(20, 112, 150, 46, "programs", "client, HTTP, WebSocket"),
        canvas.box(20, 184, 150, 46, "command line", "tidemill --server"),
        canvas.box(20, 256, 150, 46, "Prometheus", "/metrics"),
    ]
    proxy = canvas.box(230, 126, 110, 64, "balancer", "TLS", "/health/ready", look="quiet")
    for user in users[:3]:
        canvas.arrow(user.at("right"), proxy.at("left"))
    canvas.frame(400, 20, 200, 206, "servers: API, reactors, runs")
    canvas.arrow(users[3].at("right"), Point(400, 212))
    servers = [
        canvas.box(420, 56, 160, 64, "server 1", "leader: plans runs", "owns reactor A", look="accent"),
        canvas.box(420, 146, 160, 64, "server 2", "standby for A", "owns reactor B", look="accent"),
    ]
    canvas.frame(400, 246, 200, 98, "workers: tasks only")
    worker = canvas.box(420, 276, 160, 52, "worker", "labels: gpu, eu", look="info")
    for server in servers:
        canvas.arrow(proxy.at("right"), server.at("left"))
    store = canvas.cylinder(700, 126, 170, 110, "PostgreSQL", "packages, runs, keys,", "state, leases, mailbox")
    for one in (*servers, worker):
        canvas.arrow(one.at("right"), store.at("left"), both=True)
    canvas.text(785, 262, "the only shared part:", "small")
    canvas.text(785, 279, "no broker, no ZooKeeper", "small")
    return canvas


def draw_leadership() -> Canvas:
    """Draw a leader that freezes, and its successor: lease, epoch, refused write."""
    canvas = Canvas(
        900,
        330,
        "A leader freezes, its lease expires, another node takes over",
    )
    for y, name in ((60, "node A"), (160, "the lease"), (260, "node B")):
        canvas.text(20, y + 25, name, "strong left")
    _bar(canvas, 110, 60, 250, "leads, epoch 7", "accent")
    _bar(canvas, 360, 60, 270, "frozen", "bad")
    _bar(canvas, 630, 60, 90, "wakes up", "warn")
    _bar(canvas, 720, 60, 160, "follows", "plain")
    _bar(canvas, 110, 160, 346, "held by A, epoch 7", "info")
    _bar(canvas, 456, 160, 76, "expired", "quiet")
    _bar(canvas, 532, 160, 348, "held by B, epoch 8", "info")
    _bar(canvas, 110, 260, 422, "follows: looks at the lease", "plain")
    _bar(canvas, 532, 260, 348, "leads, epoch 8: continues the active runs", "accent")
    for x in (150, 230, 310):
        canvas.arrow(Point(x, 100), Point(x, 160))
    canvas.text(322, 134, "renews every third of lease_ttl", "small left")
    for x in (190, 310, 430):
        canvas.arrow(Point(x, 260), Point(x, 200), dashed=True)
    canvas.text(442, 238, "looks", "small left")
    canvas.arrow(Point(532, 260), Point(532, 200))
    canvas.text(544, 238, "takes it, with the next epoch", "small left")
    canvas.arrow(Point(675, 100), Point(675, 160))
    canvas.text(687, 134, "writes under epoch 7: refused", "small left")
    canvas.text(495, 30, "time", "small")
    canvas.arrow(Point(515, 26), Point(600, 26))
    return canvas


def _bar(canvas: Canvas, x: float, y: float, width: float, text: str, look: Look) -> Area:
    return canvas.box(x, y, width, 40, text, look=look)


def draw_forwarding() -> Canvas:
    """Draw an operation on a reactor that another node owns."""
    canvas = Canvas(820, 200, "A request reaches the owner of a reactor through the store")
    caller = canvas.box(20, 72, 110, 56, "caller", "push, command")
    first = canvas.box(210, 72, 120, 56, "node A", "does not own it", look="info")
    store = canvas.cylinder(420, 60, 130, 84, "store", "mailbox")
    owner = canvas.box(650, 72, 150, 56, "node B", "owns the reactor", look="accent")
    for before, after, there, back in (
        (caller, first, "", ""),
        (first, store, "request", "answer"),
        (store, owner, "request", "answer"),
    ):
        middle = (before.x + before.width + after.x) / 2
        canvas.arrow(Point(before.x + before.width, 90), Point(after.x, 90))
        canvas.arrow(Point(after.x, 112), Point(before.x + before.width, 112))
        canvas.text(middle, 82, there, "small")
        canvas.text(middle, 130, back, "small")
    canvas.text(485, 176, "if B dies, the request is still there: the next owner serves it", "small")
    return canvas
