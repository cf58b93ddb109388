"""P-1: the order of the six deploy steps, forwards and backwards; step 6 reports all missing names together."""

import pytest

import tidemill as tm
from tests.service.whole_package import PUT_ORDER, START, module, whole
from tidemill.storage.tables.schedules import ScheduleKey
from tidemill.testing.faults.deploy_steps import DeployFaults

FORTH = list(PUT_ORDER)
BACK = FORTH[::-1]


async def test_load_reload_and_unload_run_the_steps_in_order() -> None:
    """P-1: unloading is loading backwards, and so is retiring what a newer version has no more."""
    async with tm.testing.node(start=START) as node:
        faults = DeployFaults(node)
        for act, put in ((node.load(whole(1).module), FORTH), (node.load(whole(2).module), FORTH)):
            await act
            assert faults.take_effects() == {"apply": put, "roll_back": [], "remove": BACK}
        await node.unload("whole")
        assert faults.take_effects() == {"apply": [], "roll_back": [], "remove": BACK}
        faults.fail("apply", 4, "after")
        with pytest.raises(tm.OperationError):
            await node.load(whole(1).module)
        assert faults.take_effects() == {"apply": FORTH[:4], "roll_back": BACK[2:], "remove": []}


async def test_each_step_finds_what_those_before_it_have_done() -> None:
    """P-1: nothing but this is there between two steps, so that each may rely on those before it."""
    async with tm.testing.node(start=START) as node:
        faults, seen = DeployFaults(node), []

        async def look(_: str, title: str) -> None:
            registry, rows = node.registry, node.probe.packages.store.schedules
            cursor = await rows.get_cursor("public", "daily", "hourly")
            seen.append(
                (
                    title,
                    cursor is not None and cursor.armed,
                    *(bool(one) for one in (registry.triggers(), registry.reactors(), registry.graphs())),
                    bool(node.probe.packages.subscribers("market")),
                    bool(registry.workflows()),
                )
            )

        faults.on_effect = look
        await node.load(whole().module)
        assert seen[:6] == [
            ("schedules", False, False, False, False, False, False),
            ("triggers", False, True, False, False, False, False),
            ("reactors", False, True, True, False, True, False),  # a reactor is never without its graphs
            ("graphs without a reactor", False, True, True, True, True, False),
            ("graphs of reactors", False, True, True, True, True, False),
            ("workflows", True, True, True, True, True, True),
        ]
        seen.clear()
        await node.unload("whole")
        assert seen == [
            ("workflows", True, True, True, True, True, False),
            ("graphs of reactors", True, True, True, True, True, False),
            ("graphs without a reactor", True, True, True, True, True, False),
            ("reactors", True, True, False, False, False, False),
            ("triggers", True, False, False, False, False, False),
            ("schedules", False, False, False, False, False, False),
        ]


async def test_all_missing_names_are_reported_together() -> None:
    """P-1, step 6: every trigger and every graph that a workflow names and that no package has loaded."""
    one, other = tm.Workflow("one", triggers=["no_files", "no_mail"]), tm.Workflow("other", triggers=["no_news"])
    one.call("no_scoring")
    one.call("no_sorting")
    other.call("no_scoring")
    async with tm.testing.node(start=START) as node:
        with pytest.raises(tm.DefinitionError) as caught:
            await node.load(module("m", one, other))
        said = [problem.message for problem in caught.value.problems]
        missing = ["no_files", "no_mail", "no_scoring", "no_sorting", "no_news", "no_scoring"]
        assert sorted(name for name in missing) == sorted(
            name for text in said for name in set(missing) if f"'{name}'" in text
        )
        assert len(said) == len(missing)
        assert str(caught.value).count("\n") >= len(missing) - 1
        assert await node.probe.packages.store.schedules.get_cursor(*ScheduleKey("public", "one", "")) is None
