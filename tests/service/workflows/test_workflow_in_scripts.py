"""`daily.run(...)`: for scripts and tests, here and now."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import tidemill as tm


def script(**options: object) -> tm.Workflow:
    """Return a workflow that a script might run."""
    flow = tm.Workflow("script", schedule=tm.Cron("@daily"))

    @flow.task(**options)
    def work(ctx: tm.Context) -> int:
        if ctx["fails"]:
            raise ValueError("no")
        return 1

    @flow.task
    async def twice(work: int) -> int:
        return 2 * work

    return flow


def test_in_a_script() -> None:
    """api.md, daily.run: a RunResult."""
    result = script().run(fails=False)
    assert (result.ok, result.outputs) == (True, {"work": 1, "twice": 2})
    assert result.raise_for_status() is result


async def test_inside_a_running_loop() -> None:
    """api.md: the same in a notebook; the loop itself is not needed."""
    result = await asyncio.to_thread(script().run, fails=False)
    assert result.outputs == script().run(fails=False).outputs == {"work": 1, "twice": 2}


def test_with_a_failing_task() -> None:
    """api.md, raise_for_status."""
    result = script().run(fails=True)
    assert (result.ok, str(result.state)) == (False, "failed")
    with pytest.raises(tm.OperationError, match="task 'work' failed: ValueError: no"):
        result.raise_for_status()


def test_pools_and_executors_of_the_cluster_do_not_matter() -> None:
    """api.md: it runs here."""
    assert script(pool="warehouse", executor="kubernetes").run(fails=False).ok


def test_retries_are_waited_for() -> None:
    """api.md, tm.Retry, in real time."""
    flow = tm.Workflow("flaky")

    @flow.task(retry=tm.Retry(2, delay="10ms"))
    def work(ctx: tm.Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError("refused")
        return ctx.attempt

    assert flow.run().outputs == {"work": 3}


def test_a_broken_workflow_is_refused() -> None:
    """api.md: a DefinitionError before anything runs."""
    flow = tm.Workflow("broken")

    @flow.task
    def work(absent: int) -> int:
        return absent

    with pytest.raises(tm.DefinitionError, match="names no task of workflow 'broken'"):
        flow.run()


UNGUARDED = """
import asyncio
import subprocess
import sys
from pathlib import Path
import tidemill as tm

print("imported as", __name__, flush=True)
w = tm.Workflow("w")

@w.task(executor="subprocess")
def a() -> int:
    return 1

async def main():
    async with tm.Node(load=[w]) as node:
        return await (await node.start("w")).wait()

result = asyncio.run(main())
print(result.state, result.tasks["a"].error)
"""


def test_a_program_without_the_guard_gets_an_error_and_does_not_start_itself_again(tmp_path: Path) -> None:
    """W-14: a fork server imports a program for its definitions, as multiprocessing does, and starts no node."""
    program = tmp_path / "program.py"
    program.write_text(UNGUARDED)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.count("imported as __main__") == 1
    assert "failed" in done.stdout
    assert "DispatchError" in done.stdout
    assert 'if __name__ == "__main__":' in done.stdout
    assert "imported as __mp_main__" in done.stdout + done.stderr


def test_a_param_may_have_any_name() -> None:
    """api.md, daily.run: any keywords, also those that `node.start` has a meaning for."""
    flow = tm.Workflow("named")

    @flow.task
    def work(ctx: tm.Context) -> list[str]:
        return [ctx[name] for name in ("tenant", "self", "workflow", "given", "params")]

    given = {"tenant": "acme", "self": "a", "workflow": "b", "given": "c", "params": "d"}
    assert flow.run(**given).outputs == {"work": ["acme", "a", "b", "c", "d"]}
