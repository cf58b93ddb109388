"""Compares the ratios of a run with kept ones: times depend on the machine, ratios hardly do."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import structs

from benchmarks.result_files import Result, Verdict

TOLERANCE = 0.1
"""The share of a kept ratio that may be lost."""


class Standing(StrEnum):
    """How a ratio compares with the kept one."""

    HELD = "held"
    LOST = "lost"
    MISSING = "missing"
    NEW = "new"


class Comparison(NamedTuple):
    """A ratio then and now."""

    benchmark: str
    what: str
    kept: float | None
    now: float | None
    loss: float
    """The share of the kept ratio that was lost; negative if it got better."""
    standing: Standing

    @property
    def fails(self) -> bool:
        """Whether the check fails by it. A new ratio has nothing to lose."""
        return self.standing in (Standing.LOST, Standing.MISSING)


def compare(kept: Mapping[str, Result], now: Mapping[str, Result]) -> list[Comparison]:
    """Compare every ratio that either side has."""
    before, after = dict(_ratios(kept)), dict(_ratios(now))
    return [_compare(key[0], before.get(key), after.get(key)) for key in {**before, **after}]


def best_of(first: Mapping[str, Result], second: Mapping[str, Result]) -> dict[str, Result]:
    """Return the results with the better one of each verdict: what was reached once, the code can do."""
    merged = {**first, **second}
    for name in first.keys() & second.keys():
        earlier = {one["id"]: one for one in first[name].verdicts}
        verdicts = [_better(earlier.get(one["id"], one), one) for one in second[name].verdicts]
        merged[name] = structs.replace(second[name], verdicts=verdicts)
    return merged


def _ratios(results: Mapping[str, Result]) -> Iterator[tuple[tuple[str, str], Verdict]]:
    for name, result in results.items():
        for one in result.verdicts:
            if one["is_ratio"]:
                yield (name, one["id"]), one


def _compare(benchmark: str, kept: Verdict | None, now: Verdict | None) -> Comparison:
    if kept is None:
        assert now is not None, "one side has it"
        return Comparison(benchmark, now["what"], None, now["value"], 0.0, Standing.NEW)
    if now is None:
        return Comparison(benchmark, kept["what"], kept["value"], None, 0.0, Standing.MISSING)
    loss = 1 - now["value"] / kept["value"] if kept["at_least"] else now["value"] / kept["value"] - 1
    standing = Standing.LOST if loss > TOLERANCE else Standing.HELD
    return Comparison(benchmark, kept["what"], kept["value"], now["value"], loss, standing)


def _better(one: Verdict, other: Verdict) -> Verdict:
    pick = max if other["at_least"] else min
    return pick(one, other, key=lambda verdict: verdict["value"])
