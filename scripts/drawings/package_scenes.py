"""Drawings about packages: from desired to running in six steps."""

from itertools import pairwise

from scripts.drawings.canvas import Canvas, Point

STEPS = ("schedules", "triggers", "reactors", "called graphs", "bound graphs", "workflows")


def draw_package_steps() -> Canvas:
    """Draw how the reconciler gets a desired package to run."""
    canvas = Canvas(900, 360, "A package is prepared, deployed in six steps, and then runs")
    desired = [
        canvas.box(20, 84, 116, 40, "a folder"),
        canvas.box(20, 138, 116, 40, "a registry"),
        canvas.box(20, 192, 116, 40, "your program"),
    ]
    canvas.text(78, 66, "desired by", "small")
    canvas.frame(190, 54, 190, 208, "prepared, beside what runs")
    checks = [
        canvas.box(212, 84, 146, 34, "signature, copy", look="info"),
        canvas.box(212, 142, 146, 34, "probe in a child", look="info"),
        canvas.box(212, 200, 146, 34, "import in the node", look="info"),
    ]
    for one in desired:
        canvas.arrow(one.at("right"), Point(190, 158))
    for before, after in pairwise(checks):
        canvas.arrow(before.at("bottom"), after.at("top"))
    deploy = canvas.frame(434, 20, 196, 290, "deployed, in six steps")
    for number, name in enumerate(STEPS):
        canvas.box(456, 48 + number * 42, 152, 32, f"{number + 1}  {name}", look="accent")
    canvas.arrow(Point(380, 158), Point(deploy.x, 158))
    running = canvas.box(700, 118, 180, 80, "running", "armed at the end:", "nothing starts before", look="good")
    canvas.arrow(Point(630, 158), running.at("left"))
    canvas.arrow(Point(532, 310), Point(532, 340), Point(285, 340), Point(285, 262))
    canvas.text(408, 332, "a step fails: rolled back, retried", "small")
    back, start = running.at("bottom"), desired[2].at("bottom")
    canvas.arrow(back, Point(back.x, 352), Point(start.x, 352), start, dashed=True)
    canvas.text(662, 344, "the reconciler compares, repeatedly", "small")
    return canvas
