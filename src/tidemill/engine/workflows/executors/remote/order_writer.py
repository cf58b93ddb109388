"""Writes orders: stores what a unit needs to run an attempt, with the code of its version."""

from pathlib import Path
from typing import NamedTuple

from tidemill.access.tokens import digest_token, new_attempt_token
from tidemill.engine.workflows.executors.code import CodeLocation, LoadedWorkflows, VersionCache, locate_code
from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.engine.workflows.executors.remote.interface import SERVER_URL_VARIABLE, Launch
from tidemill.engine.workflows.executors.remote.orders import (
    BundledCode,
    InstalledCode,
    Order,
    digest_bundle,
    pack_folder,
)
from tidemill.engine.workflows.executors.runner import TaskRunner
from tidemill.kernel.backoff import RetryNumbers
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.settings import Settings
from tidemill.storage.tables.orders import AttemptOrder
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.workflows.definition import Task
from tidemill.workflows.workflow import Workflow


class _OrderedVersion(NamedTuple):
    """What the orders of one workflow version share."""

    workflow: Workflow
    runner: TaskRunner
    location: CodeLocation


class OrderWriter:
    """Writes the orders of one node's remote attempts."""

    def __init__(self, store: WorkflowStore, workflows: LoadedWorkflows, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._versions: VersionCache[_OrderedVersion] = VersionCache(workflows, _prepare)
        self._bundles: dict[str, str] = {}
        """By the folder of a loaded package, which never changes: the digest of its bundle."""

    def check(self, request: AttemptRequest) -> None:
        """Raise OperationError if the code of a request is not loaded, or no other process can import it."""
        self._versions.get(request.tenant, request.workflow, request.version)

    async def write(self, request: AttemptRequest, server_url: str) -> Launch:
        """Store the order of an attempt, and return what its launcher needs."""
        version = self._versions.get(request.tenant, request.workflow, request.version)
        task = version.workflow.wired().tasks[request.key.task].task
        code = await self._store_code(request.tenant, version.location)
        order = Order(
            request=version.runner.trim_inputs(request),
            code=code,
            retry=None if task.retry is None else RetryNumbers.of_policy(task.retry),
            lease=self._settings.heartbeat_timeout,
            heartbeat_interval=self._settings.heartbeat_interval,
        )
        token = new_attempt_token()
        await self._store.attempt_orders.put(
            AttemptOrder(
                **request.key._asdict(),
                tenant=request.tenant,
                digest=digest_token(token),
                payload=order.encode(),
                bundle=code.digest if isinstance(code, BundledCode) else None,
                created_at=self._clock.now(),
            )
        )
        return _build_launch(request, task, token, server_url)

    async def _store_code(self, tenant: str, location: CodeLocation) -> BundledCode | InstalledCode:
        """Return where a unit finds the code; the folder of a package is stored as a bundle."""
        tree = location.tree
        if tree is None:
            return InstalledCode(module=location.module, file=location.file, path=location.path)
        digest, now = self._bundles.get(tree.folder), self._clock.now()
        if digest is None or not await self._store.code_bundles.touch(tenant, digest, now):
            archive: bytes = await call_in_thread(pack_folder, Path(tree.folder))
            self._forget_unloaded()
            digest = self._bundles[tree.folder] = digest_bundle(archive)
            await self._store.code_bundles.add(tenant, digest, archive, now)
        return BundledCode(
            digest=digest, shown=tree.shown, tops=tree.tops, modules=location.modules, settings=location.settings
        )

    def _forget_unloaded(self) -> None:
        loaded = {one.location.tree.folder for one in self._versions.values() if one.location.tree is not None}
        self._bundles = {folder: digest for folder, digest in self._bundles.items() if folder in loaded}


def _prepare(workflow: Workflow) -> _OrderedVersion:
    return _OrderedVersion(workflow, TaskRunner(workflow), locate_code(workflow))


def _build_launch(request: AttemptRequest, task: Task, token: str, server_url: str) -> Launch:
    options = {"image": task.image, "pod": task.pod}
    return Launch(
        key=request.key,
        tenant=request.tenant,
        workflow=request.workflow,
        version=request.version,
        token=token,
        environment={SERVER_URL_VARIABLE: server_url},
        resources=task.resources,
        options={name: value for name, value in options.items() if value},
        timeout=request.timeout,
    )
