"""Writes docs/drawings/: the drawings of the documentation.

`make map` runs it; `tests/architecture/test_generated_pages.py` fails while a file differs.
"""

from pathlib import Path

from scripts.drawings.cluster_scenes import draw_deployment, draw_forwarding, draw_leadership
from scripts.drawings.graph_scenes import draw_engines, draw_event_path
from scripts.drawings.health_states import draw_accumulator_states, draw_reactor_states
from scripts.drawings.package_scenes import draw_package_steps
from scripts.drawings.run_states import draw_run_states, draw_task_states
from scripts.drawings.speed_plots import draw_graph_throughput, draw_latency, draw_workflow_throughput
from scripts.drawings.style import ROOT, render_style
from scripts.drawings.workflow_scenes import draw_workflow_engine

FOLDER = ROOT / "docs" / "drawings"
DRAWINGS = {
    "accumulator-states": draw_accumulator_states,
    "deployment": draw_deployment,
    "engines": draw_engines,
    "event-path": draw_event_path,
    "forwarding": draw_forwarding,
    "leadership": draw_leadership,
    "package-steps": draw_package_steps,
    "reactor-states": draw_reactor_states,
    "run-states": draw_run_states,
    "speed-graphs": draw_graph_throughput,
    "speed-latency": draw_latency,
    "speed-workflows": draw_workflow_throughput,
    "task-states": draw_task_states,
    "workflow-engine": draw_workflow_engine,
}


def render_drawings() -> dict[Path, str]:
    """Return every drawing by the path of its file."""
    style = render_style()
    return {FOLDER / f"{name}.svg": draw().to_svg(style) for name, draw in DRAWINGS.items()}


def write_drawings() -> None:
    """Write the file of every drawing."""
    for path, text in render_drawings().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_drawings()
