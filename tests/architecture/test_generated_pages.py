"""The pages of the reference that come from the code are current."""

from scripts.command_reference import PAGE, render_page
from scripts.drawings import write as drawings
from scripts.python_reference import FOLDER, render_pages


def test_the_page_of_commands_is_current() -> None:
    """Q-3: `make map` writes it again after a change of a command."""
    assert PAGE.read_text(encoding="utf-8") == render_page(), "run `make map`"


def test_the_pages_of_the_python_api_are_current() -> None:
    """Q-3: `make map` writes them again after a change of a public name or its docstring."""
    written = {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert written == render_pages(), "run `make map`"


def test_the_drawings_are_current() -> None:
    """Q-3: `make map` draws them again. Those of states raise unless they show exactly the engine's transitions."""
    written = {path: path.read_text(encoding="utf-8") for path in drawings.FOLDER.iterdir()}
    assert written == drawings.render_drawings(), "run `make map`"
