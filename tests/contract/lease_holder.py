"""A program that acquires a lease and renews it: `python -m tests.contract.lease_holder URL`.

It prints the epoch, and then answers every line of input with the outcome of a change under that epoch.
"""

import asyncio
import sys

from tests.contract.run_samples import event_row, history
from tidemill.storage.postgres.store import PostgresStore
from tidemill.workflows.change import Applied, Change, LeaderFence

TTL = 3.0
RENEW_EVERY = 1.0


async def hold(url: str) -> None:
    """Acquire the lease, renew it until another holder has it, and write a change for each line of input."""
    store = PostgresStore(url)
    await store.open()
    epoch = await store.leases.acquire("leader", "holder", TTL)
    assert epoch is not None
    print(epoch, flush=True)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_renew(store, epoch), name="holder: renew")
        tasks.create_task(_write(store, epoch), name="holder: write")


async def _renew(store: PostgresStore, epoch: int) -> None:
    while await store.leases.renew("leader", epoch, TTL):  # noqa: ASYNC110 - as a leader does
        await asyncio.sleep(RENEW_EVERY)


async def _write(store: PostgresStore, epoch: int) -> None:
    while await asyncio.to_thread(sys.stdin.readline):
        result = await store.runs.apply(
            Change(run="r1", fence=LeaderFence("leader", epoch), history=history(event_row()))
        )
        print("applied" if isinstance(result, Applied) else result.reason, flush=True)


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1]))
