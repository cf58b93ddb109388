"""The setting `unread_state="refuse"`: a version that does not read all kept state is not loaded."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tidemill as tm

REFUSE = {"unread_state": "refuse"}


class Spend(tm.Boundary):
    """An event of a customer."""

    customer: str
    amount: float


class OldTotal(tm.Boundary):
    """The older running state."""

    spent: float = 0.0


class Total(tm.Boundary):
    """The newer one, with a field renamed."""

    revenue: float = 0.0


def version(state: Any, upgrade: Any = None, **options: Any) -> ModuleType:
    """Return a package with a running state."""

    def total(event: Spend, state: Any) -> Any:
        return type(state)(getattr(state, type(state).__struct_fields__[0]) + event.amount)

    total.__annotations__ |= {"state": state, "return": state}
    declared = tm.passthrough(state=state, upgrade=upgrade)(total)
    module = ModuleType("package")
    vars(module).update(total=declared, r=tm.Reactor("r", [declared], **options))
    return module


KEYS = {"key": "customer", "partitions": 2}


@pytest.mark.parametrize("options", [{"durability": "none"}, {"durability": "interval"}, {"durability": "boundary"}])
async def test_the_older_version_stays_live_if_the_newer_one_does_not_read_its_state(options: Any) -> None:
    """D9: nothing is lost, nothing was touched, and the error says why."""
    async with tm.testing.node(store="memory://", load=[version(OldTotal, **options)], settings=REFUSE) as node:
        await node.push("total", Spend("c", 5.0))
        with pytest.raises(tm.RequestError, match="does not have, and their values are lost: spent") as raised:
            await node.load(version(Total, **options))
        assert raised.value.code == "unread_state"
        await node.push("total", Spend("c", 6.0))
        assert node.reactor("r").state().cache == {"total": {"spent": 11.0}}
        assert node.reactor("r").events() == []


async def test_the_state_of_every_key_counts_also_of_keys_that_are_only_stored(store: str) -> None:
    """D9: idle keys are read from the store."""
    settings = REFUSE | {"active_keys": 2}
    async with tm.testing.node(store, load=[version(OldTotal, **KEYS)], settings=settings) as node:
        for number in range(6):
            await node.push("total", Spend(f"c{number}", 5.0))
            await node.settle()
        with pytest.raises(tm.RequestError, match=r"accumulator 'total': .*its running state has .* and 5 more\)"):
            await node.load(version(Total, **KEYS))


@pytest.mark.parametrize("options", [{"durability": "interval"}, {"durability": "boundary"}, KEYS])
@pytest.mark.parametrize("is_written", [True, False])
async def test_a_start_refuses_the_newer_version_and_leaves_the_stored_state(
    store: str, options: Any, is_written: bool
) -> None:
    """D9: from snapshots and from the journal; the older version continues with what is stored."""
    async with tm.testing.node(store, load=[version(OldTotal, **options)], settings=REFUSE) as node:
        await node.push("total", Spend("c", 5.0))
        if is_written or options.get("durability") != "boundary":
            await node.settle()
        node.loaded_packages = {("public", "package"): version(Total, **options)}
        with pytest.raises(tm.RequestError, match="spent"):
            await node.crash()
        node.loaded_packages = {("public", "package"): version(OldTotal, **options)}
        node = await node.crash()
        await node.push("total", Spend("c", 6.0))
        await node.settle()
        state = await node.reactor("r").state_of("c") if options is KEYS else node.reactor("r").state()
        assert state.cache == {"total": {"spent": 11.0}}


@pytest.mark.parametrize("options", [{"durability": "none"}, {"durability": "boundary"}, KEYS])
async def test_a_version_that_reads_or_upgrades_everything_is_loaded(store: str, options: Any) -> None:
    """Before the first event there is nothing to lose, and upgrade= loses nothing."""
    async with tm.testing.node(store, load=[version(Total, **options)], settings=REFUSE) as node:
        await node.settle()
        await node.load(version(OldTotal, **options))
        await node.push("total", Spend("c", 5.0))
        await node.settle()
        await node.load(version(Total, lambda stored: Total(stored["spent"]), **options))
        await node.push("total", Spend("c", 1.0))
        state = await node.reactor("r").state_of("c") if options is KEYS else node.reactor("r").state()
        assert state.cache == {"total": {"revenue": 6.0}}


async def test_events_that_a_batch_holds_count_as_state() -> None:
    """D9: a newer class may not read what waits in the buffer."""

    def batched(event: Any) -> ModuleType:
        def recent(events: Any) -> Any:
            return len(events)

        recent.__annotations__ |= {"events": list[event], "return": int}
        declared = tm.batch("1h", max_size=3)(recent)
        module = ModuleType("package")
        vars(module).update(recent=declared, r=tm.Reactor("r", [declared]))
        return module

    async with tm.testing.node(store="memory://", load=[batched(OldTotal)], settings=REFUSE) as node:
        await node.push("recent", OldTotal(5.0))
        with pytest.raises(tm.RequestError, match="an event that it held has fields"):
            await node.load(batched(Total))


SOURCE = """
import tidemill as tm

class Total(tm.Boundary):
    {field}: float = 0.0

@tm.passthrough(state=Total)
def total(event: float, state: Total) -> Total:
    return Total(state.{field} + event)

r = tm.Reactor("r", [total])
"""


async def test_a_saved_file_that_does_not_read_the_state_fails_and_says_why(tmp_path: Path) -> None:
    """D9: a rename in a file under `tidemill dev` reset the state."""
    file = tmp_path / "shop.py"
    file.write_text(SOURCE.format(field="spent"))
    async with tm.testing.node(store="memory://", settings=REFUSE) as node:
        await node.load(str(file))
        await node.push("total", 5.0)
        file.write_text(SOURCE.format(field="revenue"))
        with pytest.raises(tm.RequestError, match="spent"):
            await node.load(str(file))
        assert node.reactor("r").state().cache == {"total": {"spent": 5.0}}
