"""Package files and sources of one node: the preparer, and the reconcilers that follow folders and the registry.

The package service imports this module when the first package file is loaded or the first source is watched.
"""

from pathlib import Path

from tidemill.engine.tasks import TaskScope
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings
from tidemill.packages.deploy.installer import Installer
from tidemill.packages.deploy.older_archives import OlderArchives
from tidemill.packages.loading.preparer import PackagePreparer
from tidemill.packages.loading.probe import probe_limits
from tidemill.packages.loading.reader import PackageOrigin
from tidemill.packages.publishing import make_trust
from tidemill.packages.reconcile.decision import PackageSource
from tidemill.packages.reconcile.folder import FolderSource
from tidemill.packages.reconcile.host import PackageHost
from tidemill.packages.reconcile.reconciler import Reconciler
from tidemill.packages.reconcile.registry import RegistrySource
from tidemill.packages.status import StatusListener
from tidemill.storage.store import Store


class PackageFiles:
    """Makes the preparer of a node, and the reconcilers of its sources."""

    def __init__(self, host: PackageHost, store: Store, *, clock: Clock, tasks: TaskScope, settings: Settings) -> None:
        self.trust = make_trust(store.trusted_keys, settings)
        self.preparer = PackagePreparer(None, self.trust, clock, probe_limits(settings))
        self._host = host
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._settings = settings

    def make_folder_reconciler(
        self, path: Path, tenant: str, origin: PackageOrigin, on_status: StatusListener | None
    ) -> Reconciler:
        """Return a reconciler for the packages of a folder; a probe process is kept ready for the next save."""
        self.preparer.keep_warm_probe()
        return self._make_reconciler(FolderSource(path, tenant), origin, on_status)

    def make_registry_reconciler(self, origin: PackageOrigin, on_status: StatusListener) -> Reconciler:
        """Return a reconciler for the packages that are published in the store."""
        source = RegistrySource(self._store, self._clock, self._settings.package_poll_interval)
        return self._make_reconciler(source, origin, on_status)

    def make_older_code(self, installer: Installer) -> OlderArchives:
        """Return what loads older versions of published packages for the runs that need them."""
        older = OlderArchives(self._store, installer, self.preparer, self._clock, self._settings)
        installer.engine.versions.load_older_by(older)
        return older

    def _make_reconciler(
        self, source: PackageSource, origin: PackageOrigin, on_status: StatusListener | None
    ) -> Reconciler:
        return Reconciler(
            source,
            self._host,
            origin,
            self.preparer.limit,
            clock=self._clock,
            tasks=self._tasks,
            settings=self._settings,
            on_status=on_status,
        )
