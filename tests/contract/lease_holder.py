"""A program that acquires a lease and renews it: `python -m tests.contract.lease_holder URL SECONDS`.

It prints the epoch, and then answers every line of input with the outcome of a change under that epoch.
"""

import asyncio
import sys

from tests.contract.run_samples import event_row, history
from tidemill.storage.postgres.store import PostgresStore
from tidemill.workflows.change import Applied, Change, LeaderFence

RENEWALS = 3
"""How often a lease is renewed while it lasts."""


async def hold(url: str, ttl: float) -> None:
    """Acquire the lease, renew it until another holder has it, and write a change for each line of input."""
    store = PostgresStore(url)
    await store.open()
    epoch = await store.leases.acquire("leader", "holder", ttl)
    assert epoch is not None
    print(epoch, flush=True)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_renew(store, epoch, ttl), name="holder: renew")
        tasks.create_task(_write(store, epoch), name="holder: write")


async def _renew(store: PostgresStore, epoch: int, ttl: float) -> None:
    while await store.leases.renew("leader", epoch, ttl):  # noqa: ASYNC110 - as a leader does
        await asyncio.sleep(ttl / RENEWALS)


async def _write(store: PostgresStore, epoch: int) -> None:
    while await asyncio.to_thread(sys.stdin.readline):
        result = await store.runs.apply(
            Change(run="r1", fence=LeaderFence("leader", epoch), history=history(event_row()))
        )
        print("applied" if isinstance(result, Applied) else result.reason, flush=True)


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], float(sys.argv[2])))
