"""Systems without the modules of Unix: nodes and `tidemill run` work, other commands say what they need."""

import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT

WORKS = [
    "run flow.py",
    "workflow check flow.py",
    "db upgrade --store sqlite:///a.db",
    "doctor --store sqlite:///a.db",
    "package new hello",
    "package build hello",
]
NEEDS_POSIX = [
    "package check hello",
    "dev flow.py",
    "demo",
    "server --store sqlite:///a.db",
    "worker --store sqlite:///a.db",
    "host --store sqlite:///a.db",
]


def test_every_command_works_or_says_in_one_sentence_that_it_needs_another_system(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tests" / "system" / "without_posix.py")]
    given = "\n".join(WORKS + NEEDS_POSIX)
    ended = subprocess.run(command, check=False, input=given, capture_output=True, text=True, cwd=tmp_path, timeout=100)
    assert "Traceback" not in ended.stderr, ended.stderr
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    for one in WORKS:
        assert f"0: {one}" in lines, ended
    for one in NEEDS_POSIX:
        assert f"2: {one}" in lines, ended
    assert ended.stderr.count("needs Linux or macOS") == len(NEEDS_POSIX)
    assert lines[-1] == "{'prices': 3} {'answer': 42}"
