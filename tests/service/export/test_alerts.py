"""The alert rules: PromQL over metrics that servers have, with texts that say what to do."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.service.export.promql import parse, problems, selectors
from tests.service.export.tools import exported, has_tool, run_tool

CASES = Path(__file__).with_name("alert_cases.yaml")
LABEL = re.compile(r"\$labels\.(\w+)")
DURATION = re.compile(r"\d+[smh]")


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The exported rules."""
    (file,) = exported("prometheus", tmp_path_factory.mktemp("prometheus")).iterdir()
    (group,) = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_the_rules_cover_what_stops_work(rules: list[dict[str, Any]]) -> None:
    """S-Ops: each alert has a name of its own."""
    names = [one["alert"] for one in rules]
    assert len(set(names)) == len(names)
    wanted = ("ServerDown", "NoLeader", "StoreAway", "RunsFail", "ReactorNotLive", "DeadLetters", "PackageFailed")
    assert {f"Tidemill{one}" for one in wanted} <= set(names)


def test_every_rule_asks_for_what_servers_have(rules: list[dict[str, Any]]) -> None:
    """An alert over a metric that does not exist never fires."""
    assert not [f"{one['alert']}: {problem}" for one in rules for problem in problems(one["expr"])]


def test_prometheus_accepts_the_rules(tmp_path: Path) -> None:
    """Its own tool looks at the texts too, and evaluates cases; without it the other tests have to do."""
    (file,) = exported("prometheus", tmp_path).iterdir()
    if has_tool("promtool"):
        cases = shutil.copy(CASES, tmp_path)
        for words in (("check", "rules", file), ("test", "rules", cases)):
            checked = run_tool("promtool", *words)
            assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_rule_is_complete(rules: list[dict[str, Any]]) -> None:
    """With exactly the fields that Prometheus knows: it refuses a file with any other."""
    for rule in rules:
        assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert DURATION.fullmatch(rule.get("for", "0s"))
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_texts_use_labels_that_the_alert_has(rules: list[dict[str, Any]]) -> None:
    """Prometheus writes an empty word for any other."""
    for rule in rules:
        have = set.union(*(one.labels for one in selectors(parse(rule["expr"])))) | {"instance", "job"}
        assert set(LABEL.findall(str(rule["annotations"]))) <= have, rule["alert"]


def test_alerts_that_compare_are_comparisons(rules: list[dict[str, Any]]) -> None:
    """A rule without a threshold would fire all the time."""
    for rule in rules:
        assert type(tree := parse(rule["expr"])).__name__ == "BinaryExpr", rule["alert"]
        assert str(tree.op) in (">", "<", "==", "or"), rule["alert"]


def test_the_guide_names_no_other_alerts(rules: list[dict[str, Any]]) -> None:
    """docs/how-to/monitor-a-node.md lists the alerts by their names."""
    page = Path(__file__).parents[3] / "docs" / "how-to" / "monitor-a-node.md"
    listed = re.findall(r"^\| `(Tidemill\w+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [one["alert"] for one in rules]


def test_the_rules_of_the_guide_ask_for_what_servers_have() -> None:
    """The page that people copy from."""
    page = Path("docs/how-to/get-alerts.md").read_text(encoding="utf-8")
    (block,) = (one for one in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "groups:" in one)
    rules = yaml.safe_load(block)["groups"][0]["rules"]
    assert len(rules) == 3
    assert [problem for rule in rules for problem in problems(rule["expr"])] == []
