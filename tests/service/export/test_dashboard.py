"""The Grafana dashboard: every query is PromQL over metrics that servers have, and the panels fit."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.grafana_dashboard import FILE, GRID_WIDTH, render_dashboard
from tests.service.export.promql import parse as parse_query
from tests.service.export.promql import problems, selectors
from tests.service.export.tools import exported
from tidemill.engine.graphs.metrics import GRAPH_METRICS

VARIABLE = re.compile(r"\$\{?(\w+)")
LEGEND_LABEL = re.compile(r"\{\{(\w+)\}\}")
LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+), (?P<label>\w+)\)")
BUILT_IN = {"__rate_interval"}


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The exported dashboard."""
    (file,) = exported("grafana", tmp_path_factory.mktemp("grafana")).iterdir()
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def targets(dashboard: dict[str, Any]) -> list[dict[str, str]]:
    """The queries of all panels."""
    return [target for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_the_file_is_current() -> None:
    """`make dashboard` writes it again."""
    assert Path(FILE).read_text(encoding="utf-8") == render_dashboard(), "run `make dashboard`"


def test_every_query_asks_for_what_servers_have(targets: list[dict[str, str]]) -> None:
    """S-Ops: a panel is empty because nothing happens, never because a metric has another name."""
    found = [f"{one['expr']}: {problem}" for one in targets for problem in problems(one["expr"])]
    assert len(targets) > 40
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "query", ["tidemill_nonsense", 'tidemill_runs_total{reactor="x"}', "sum by (tenant) (tidemill_runs_active)"]
)
def test_a_wrong_query_would_be_found(query: str) -> None:
    """A name, a label of a selector, a label of an aggregation."""
    assert problems(query)


def test_what_is_not_promql_would_be_found() -> None:
    """The parser is a real one."""
    with pytest.raises(ValueError, match=r"unclosed"):
        problems("sum(tidemill_runs_active")


def test_legends_name_labels_of_the_result(targets: list[dict[str, str]]) -> None:
    """A line without its name cannot be told from others."""
    for one in targets:
        looked_at = set.union(*(selector.labels for selector in selectors(parse_query(one["expr"]))))
        assert set(LEGEND_LABEL.findall(one["legendFormat"])) <= looked_at, one


def test_every_variable_exists_and_has_values(dashboard: dict[str, Any], targets: list[dict[str, str]]) -> None:
    """Data source, job, server, tenant and reactor can be chosen."""
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance", "tenant", "reactor"]
    used = {name for one in targets for name in VARIABLE.findall(one["expr"])}
    assert used - BUILT_IN == variables.keys() - {"datasource"}
    for one in variables.values():
        if one["type"] == "query":
            match = LABEL_VALUES.fullmatch(one["query"]["query"])
            assert match is not None
            assert not problems(f"sum by ({match['label']}) ({match['selector']})")


def test_nothing_names_a_data_source_of_one_grafana(dashboard: dict[str, Any], targets: list[dict[str, str]]) -> None:
    """The dashboard works wherever it is imported."""
    assert {one["datasource"]["uid"] for one in targets} == {"${datasource}"}  # type: ignore[index]
    assert {one["datasource"]["uid"] for one in dashboard["panels"] if "targets" in one} == {"${datasource}"}


def test_panels_have_ids_and_do_not_overlap(dashboard: dict[str, Any]) -> None:
    """Each cell of the grid belongs to one panel at most."""
    panels = dashboard["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= GRID_WIDTH
        own = set(itertools.product(range(grid["x"], grid["x"] + grid["w"]), range(grid["y"], grid["y"] + grid["h"])))
        assert not own & cells, panel["title"]
        cells |= own


def test_panels_explain_themselves(dashboard: dict[str, Any]) -> None:
    """With a sentence behind the title; targets of a panel have ids of their own."""
    for panel in (one for one in dashboard["panels"] if one["type"] != "row"):
        assert panel["description"].endswith("."), panel["title"]
        ids = [one["refId"] for one in panel["targets"]]
        assert len(set(ids)) == len(ids)


def test_tenants_and_reactors_filter_the_metrics_of_graphs(targets: list[dict[str, str]]) -> None:
    """A chosen tenant is all that the panels of graphs show."""
    of_graphs = tuple(f"tidemill_{one.name}" for one in GRAPH_METRICS)
    for one in targets:
        for selector in selectors(parse_query(one["expr"])):
            if selector.name.startswith(of_graphs):
                assert 'tenant=~"$tenant"' in one["expr"], one["expr"]
