"""A trial: an installation under load and faults, until it is quiet again, and the audit of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.installation.audit import Findings, audit_all
from tests.installation.evidence import gather_evidence, read_runs
from tests.installation.faults import FaultInjector, make_plan
from tests.installation.front import Front
from tests.installation.journal import Journal
from tests.installation.processes import Installation, descriptors
from tests.installation.producers import SocketProducer, push_over_http, push_with_client
from tests.installation.readers import READERS, Reader, keep_reading
from tests.installation.starters import start_over_http, start_with_client
from tests.postgres import PostgresServer
from tests.system.workflow_nodes import opened, until
from tidemill.kernel.clock import SystemClock

BEGIN_LIMIT = 90.0  # seconds until the installation runs
QUIET_LIMIT = 120.0  # seconds after the last fault until every request is answered, and again until every run has ended
CLOSE_LIMIT = 10.0  # seconds until connections are closed, and processes gone
PROGRESS_INTERVAL = 5.0
MORE_DESCRIPTORS = 30  # that a server may hold in the end, compared with the beginning
ENDED = ("success", "failed", "cancelled")


class Trial:
    """One installation, its clients, and the faults."""

    def __init__(self, installation: Installation, folder: Path, key: str, postgres: PostgresServer | None) -> None:
        self._installation = installation
        self._folder = folder
        self._journal = Journal(folder / "journal")
        self._front = Front(installation, self._journal, key)
        self._injector = FaultInjector(installation, self._front, folder, postgres)
        self._readers = [Reader(self._front, name) for name in READERS]
        self._has_database = postgres is not None
        self._began = time.monotonic()

    async def run(self, seed: int, seconds: float) -> Findings:
        """Inject the faults of a seed for so many seconds, and return what the audit finds."""
        installation = self._installation
        lasting = [*installation.servers, *installation.workers]
        await installation.until_ready(lasting, BEGIN_LIMIT)
        names = [place.name for place in lasting]
        plan = make_plan(seed, seconds, names, has_database=self._has_database)
        async with self._being_read() as before:
            held = max(map(descriptors, installation.servers))
            async with self._under_load():
                await self._injector.run(plan)
            self._say("every request is answered")
            findings = await self._audit(before)
        return [*findings, *await self._audit_end(held)]

    def _say(self, what: str) -> None:
        counts = ", ".join(f"{n} {what}" for what, n in (self._journal.counts | self._injector.counts).items())
        print(f"{time.monotonic() - self._began:.0f} s, {what}: {counts}", flush=True)

    @asynccontextmanager
    async def _being_read(self) -> AsyncIterator[frozenset[str]]:
        """Publish the packages, and let readers follow the feed; yield the runs that some of them may have missed."""
        async with asyncio.TaskGroup() as group:
            reading = [group.create_task(keep_reading(one), name=one.name) for one in self._readers]
            await self._injector.publish("annex")
            await self._injector.publish("mill")
            await until(lambda: all(one.seen for one in self._readers), "all readers read", BEGIN_LIMIT)
            async with opened(self._installation.store) as store:
                yield frozenset(run.id for run in await read_runs(store))
            for task in reading:
                task.cancel()

    @asynccontextmanager
    async def _under_load(self) -> AsyncIterator[None]:
        """Let clients work; in the end, wait until the requests that they repeat are answered."""
        async with asyncio.TaskGroup() as group:
            working = [group.create_task(work, name=name) for name, work in self._clients()]
            progress = group.create_task(self._say_progress(), name="progress")
            yield
            self._front.is_closing.set()
            await asyncio.wait(working, timeout=QUIET_LIMIT)
            self._front.is_over.set()
            await asyncio.wait(working)
            progress.cancel()

    def _clients(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        front = self._front
        for name in ("start-http-1", "start-http-2", "start-http-3"):
            yield name, start_over_http(front, name)
        yield "start-client", start_with_client(front, "start-client")
        for reactor, accumulator in [("ledger", "entries"), ("accounts", "movements")]:
            for name in (f"http-{reactor}-1", f"http-{reactor}-2"):
                yield name, push_over_http(front, name, reactor, accumulator)
            name = f"socket-{reactor}"
            yield name, SocketProducer(front, name, reactor, accumulator).run()
            name = f"pusher-{reactor}"
            yield name, push_with_client(front, name, reactor, accumulator)

    async def _say_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL)  # real time: the trial's
            self._say("closing" if self._front.is_closing.is_set() else "under load")

    async def _audit(self, before: frozenset[str]) -> Findings:
        """Wait until all runs have ended, and compare everything."""
        moment = SystemClock().now()
        async with opened(self._installation.store) as store:

            async def have_ended() -> bool:
                runs = await read_runs(store)
                past = [run for run in runs if run.slot is None or run.slot <= moment]
                return len(past) < len(runs) and all(run.state in ENDED for run in past)

            async def are_read() -> bool:
                runs = {run.id for run in await read_runs(store) if run.slot is None or run.slot <= moment}
                return all(runs - before <= reader.seen for reader in self._readers)

            late = [*await _is_late(have_ended, "every run has ended"), *await _is_late(are_read, "all ends were read")]
            self._say("quiet")
            address = self._installation.store
            found = await gather_evidence(store, address, self._front, self._folder, before=before, until=moment)
        return [*late, *audit_all(found)]

    async def _audit_end(self, held: int) -> Findings:
        """Close all connections, stop all processes in order, and look at what is left."""
        await self._front.aclose()
        self._journal.close()
        findings, limit = Findings(), held + MORE_DESCRIPTORS
        for place in self._installation.servers:
            if await _is_late(lambda place=place: descriptors(place) <= limit, "", CLOSE_LIMIT):  # type: ignore[misc]
                findings.append(f"{place.name} holds {descriptors(place)} descriptors, a new one {held}")
        await self._installation.stop()
        await _is_late(lambda: not self._installation.orphans(), "", CLOSE_LIMIT)
        findings += [f"{one.name} ended with {one.code}" for one in self._installation.exits if one.is_fault]
        return findings + [f"still running: {one}" for one in self._installation.orphans()]


async def _is_late(is_so: Callable[[], bool | Awaitable[bool]], what: str, within: float = QUIET_LIMIT) -> Findings:
    """Return a finding if a condition does not hold in time."""
    try:
        await until(is_so, what, within)
    except AssertionError as error:
        return [str(error)]
    return []
