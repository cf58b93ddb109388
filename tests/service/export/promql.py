"""Reads queries with a real parser of PromQL, and compares them with the metrics that servers have."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import promql_parser

from tidemill.server.exposition import METRICS, PREFIX

TARGET_LABELS = {"job", "instance"}
"""What Prometheus adds to each sample."""
DASHBOARD_VARIABLES = re.compile(r"\$__rate_interval")


class Selector(NamedTuple):
    """A selector of a query: the name of its samples, and the labels that it looks at."""

    name: str
    labels: set[str]


def parse(query: str) -> Any:
    """Return the tree of a query, in which a dashboard may have variables; ValueError if it is not PromQL."""
    return promql_parser.parse(DASHBOARD_VARIABLES.sub("5m", query))


def selectors(tree: Any, grouped: frozenset[str] = frozenset()) -> Iterator[Selector]:
    """Yield the selectors of a tree; what an aggregation groups by must be on the samples below it."""
    match type(tree).__name__:
        case "VectorSelector":
            yield Selector(tree.name, {one.name for one in tree.matchers.matchers} | grouped)
        case "MatrixSelector":
            yield from selectors(tree.vector_selector, grouped)
        case "AggregateExpr":
            labels = tree.modifier.labels if tree.modifier else []
            yield from selectors(tree.expr, grouped | frozenset(labels))
        case "Call":
            for argument in tree.args:
                yield from selectors(argument, grouped)
        case "BinaryExpr":
            yield from selectors(tree.lhs, grouped)
            yield from selectors(tree.rhs, grouped)
        case "ParenExpr":
            yield from selectors(tree.expr, grouped)
        case "NumberLiteral" | "StringLiteral":
            return
        case other:
            raise AssertionError(f"queries have no {other} so far")


def sample_labels() -> dict[str, set[str]]:
    """Return the labels of every sample that a server may have, by its name."""
    found: dict[str, set[str]] = {"up": set()}
    for metric in METRICS:
        labels = set(metric.labels)
        match metric.kind:
            case "histogram":
                found |= {f"{PREFIX}{metric.name}_{part}": labels | {"le"} for part in ("bucket", "sum", "count")}
            case "summary":
                found |= {f"{PREFIX}{metric.name}_{part}": labels for part in ("sum", "count")}
                found[f"{PREFIX}{metric.name}"] = labels | {"quantile"}
            case _:
                found[f"{PREFIX}{metric.name}"] = labels
    return found


def problems(query: str) -> list[str]:
    """Return what a query asks for that no server has."""
    known = sample_labels()
    found = []
    for selector in selectors(parse(query)):
        if selector.name not in known:
            found.append(f"there is no sample {selector.name}")
        elif unknown := selector.labels - known[selector.name] - TARGET_LABELS:
            found.append(f"{selector.name} has no label {', '.join(sorted(unknown))}")
    return found
