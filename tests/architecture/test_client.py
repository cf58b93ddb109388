"""The blocking client is the asynchronous one, written without `await`."""

from scripts.blocking_client import TARGET, render_modules, to_blocking


def test_the_blocking_client_is_written_from_the_asynchronous_one() -> None:
    """Run `make client` after a change of `client/asynchronous`."""
    written = {path: path.read_text(encoding="utf-8") for path in sorted(TARGET.glob("*.py"))}
    assert written == render_modules()


def test_only_code_is_replaced() -> None:
    """Texts and comments keep their words; `async` and `await` go with the blank after them."""
    source = 'async def f(c: AsyncClient) -> None:\n    """Await it."""\n    await c.aclose()  # await\n'
    assert to_blocking(source) == 'def f(c: Client) -> None:\n    """Await it."""\n    c.close()  # await\n'
