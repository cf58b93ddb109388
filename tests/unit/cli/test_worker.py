"""`tidemill worker`: what it refuses, before it connects to anything."""

from pathlib import Path

import pytest

from tests.unit.cli.command_line import run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name a store: --store sqlite:///tidemill.db, or set TIDEMILL_STORE"),
        (["--store", "memory://"], "a store in memory ends with its process: name a database"),
        (["--store", "tidemill.db"], "'tidemill.db' is not an address: write sqlite:///FILE or postgresql://"),
        (["--store", "{file}", "--name", " w "], "worker: a worker has a name, "),
        (["--store", "{file}", "--concurrency", "0"], "--concurrency"),
        (["--store", "{file}", "--drain-timeout", "soon"], "--drain-timeout: "),
        (["--store", "{file}", "--load", "missing.py"], "missing.py"),
    ],
)
def test_a_worker_that_cannot_start_says_why(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bad input: exit code 2, and a sentence without a traceback."""
    monkeypatch.delenv("TIDEMILL_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    given = [one.replace("{file}", f"sqlite:///{tmp_path / 'tidemill.db'}") for one in arguments]
    assert run(monkeypatch, "worker", *given) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert "Traceback" not in captured.err
    assert "is ready" not in captured.out
