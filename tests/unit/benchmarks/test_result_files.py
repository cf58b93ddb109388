"""The files of results: what is written can be read, and says where it comes from."""

import re
from pathlib import Path

import pytest

from benchmarks import machine
from benchmarks.machine import describe_machine
from benchmarks.measure import verdict
from benchmarks.result_files import KEPT, Result, read_results, write_result
from benchmarks.runner import PREFIX, find_benchmarks

BENCHMARKS = Path(machine.__file__).parent
MOST_BYTES = 16_000


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    """Verdicts and figures come back, rounded to four digits, with the machine."""
    found = verdict("share of the bare loop", 0.123456, 0.7, at_least=True, is_ratio=True)
    result = Result(
        benchmark="paths", seconds=2.0, machine=describe_machine(), verdicts=[found], figures={"us": [1.23456]}
    )

    write_result(result, tmp_path)
    read = read_results(tmp_path)["paths"]

    assert read.verdicts == [found | {"value": 0.1235}]
    assert read.figures == {"us": [1.235]}
    assert read.machine == result.machine


def test_two_verdicts_do_not_share_an_id(tmp_path: Path) -> None:
    """Results are compared by id, so one of two would be lost."""
    twice = [verdict("a share", 0.1, 0.7, at_least=True), verdict("A  share", 0.2, 0.7, at_least=True)]

    with pytest.raises(ValueError, match="several verdicts with the id a-share"):
        write_result(Result(benchmark="paths", seconds=1, machine=describe_machine(), verdicts=twice), tmp_path)


def test_the_machine_has_no_name_and_no_path() -> None:
    """Results are published: they describe the machine, and do not identify it."""
    described = describe_machine()

    text = " ".join(str(getattr(described, field)) for field in described.__struct_fields__)
    assert "/" not in text.replace(described.processor, "")
    assert Path("/proc/sys/kernel/hostname").read_text().strip() not in text.split()
    assert described.cores >= 1
    assert described.file_system != "unknown"


@pytest.mark.parametrize("name", find_benchmarks())
def test_every_benchmark_keeps_its_result_under_its_own_name(name: str) -> None:
    """The runner finds the result of `bench_keys` as `keys`."""
    source = (BENCHMARKS / f"{PREFIX}{name}.py").read_text()

    assert re.search(rf'\bkeep\(\s*"{name}"', source)


def test_kept_results_are_small_and_belong_to_benchmarks() -> None:
    """Summaries are kept, not rounds; and no result outlives its benchmark."""
    for file in KEPT.glob("*.json"):
        assert file.stem in (*find_benchmarks(), "peers")
        assert file.stat().st_size < MOST_BYTES
