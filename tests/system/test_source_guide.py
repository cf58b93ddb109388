"""The guide to sources of one's own: its server and its tests work as they are written."""

import os
import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "write-your-own-source.md"
NOT_RUN = re.compile(r"<!-- not run: pytest runs it -->\n\n```python\n(.*?)```", re.DOTALL)


def test_the_example_with_a_server_passes_its_checks(tmp_path: Path) -> None:
    """Some of them are enough here: that a check finds a source that breaks it is tested elsewhere."""
    server, tests = NOT_RUN.findall(GUIDE.read_text())
    (tmp_path / "line_server.py").write_text(server)
    (tmp_path / "test_lines.py").write_text(tests)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nasyncio_mode = "auto"\n')
    chosen = "in_order or unreachable"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "pytest_asyncio.plugin",
        "-p",
        "no:cacheprovider",
        "-k",
        chosen,
    ]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # others take seconds to import
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "2 passed" in result.stdout, result.stdout
