"""Writes the Grafana dashboard of `tidemill export grafana` from the table of its panels.

`make dashboard` runs it; `tests/service/export/test_dashboard.py` fails while the file differs from the table.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from scripts.dashboard_panels import ROWS, Panel, Query

FILE = Path(__file__).parents[1] / "src/tidemill/cli/export/files/grafana/tidemill-dashboard.json"
GRID_WIDTH = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
HEIGHTS = {"stat": 4, "timeseries": 8, "state-timeline": 8, "table": 8}
RED_ABOVE_ZERO = [{"color": "green", "value": None}, {"color": "red", "value": 0.000001}]
GREEN = [{"color": "green", "value": None}]


class Variable(NamedTuple):
    """A choice at the top of the dashboard."""

    name: str
    label: str
    values: str
    """The query for what can be chosen."""


VARIABLES = (
    Variable("job", "Job", "label_values(tidemill_build_info, job)"),
    Variable("instance", "Server", 'label_values(tidemill_build_info{job=~"$job"}, instance)'),
    Variable("tenant", "Tenant", 'label_values(tidemill_accumulator_events_total{job=~"$job"}, tenant)'),
    Variable(
        "reactor", "Reactor", 'label_values(tidemill_reactor_fires_total{job=~"$job",tenant=~"$tenant"}, reactor)'
    ),
)


def render_dashboard() -> str:
    """Return the dashboard as JSON, in the form in which Grafana exports one."""
    dashboard = {
        "uid": "tidemill",
        "title": "Tidemill",
        "description": "Servers of Tidemill: runs, scheduler, reactors, accumulators, requests, packages.",
        "tags": ["tidemill"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource_variable(), *map(_variable, VARIABLES)]},
        "panels": _panels(),
    }
    return json.dumps(dashboard, indent=1) + "\n"


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(one: Variable) -> dict[str, Any]:
    return {
        "name": one.name,
        "label": one.label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": one.values, "refId": one.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels() -> list[dict[str, Any]]:
    """Return rows and panels, from left to right and from top to bottom."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": GRID_WIDTH, "h": 1}})
        left, top, height = 0, top + 1, 0
        for panel in row:
            if left + panel.width > GRID_WIDTH:
                left, top = 0, top + height
            height = HEIGHTS[panel.kind]
            position = {"x": left, "y": top, "w": panel.width, "h": height}
            panels.append(_panel(panel) | {"gridPos": position})
            left += panel.width
        top += height
    return [{"id": number, **panel} for number, panel in enumerate(panels, start=1)]


def _panel(panel: Panel) -> dict[str, Any]:
    steps = RED_ABOVE_ZERO if panel.is_bad else GREEN
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "timeseries":
        defaults["custom"] = {"fillOpacity": 10, "showPoints": "never", "spanNulls": True}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": [_target(panel, number, one) for number, one in enumerate(panel.queries)],
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.kind == "stat":
        color = "background" if panel.is_bad else "value"
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": color, "graphMode": "area"}
    return {}


def _target(panel: Panel, number: int, query: Query) -> dict[str, Any]:
    is_table = panel.kind == "table"
    return {
        "refId": chr(ord("A") + number),
        "datasource": DATASOURCE,
        "expr": query.expression,
        "legendFormat": query.legend,
        "instant": is_table,
        "range": not is_table,
        "format": "table" if is_table else "time_series",
    }


if __name__ == "__main__":
    FILE.write_text(render_dashboard(), encoding="utf-8")
