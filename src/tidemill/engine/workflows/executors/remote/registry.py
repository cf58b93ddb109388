"""The launchers that a node can have: each is imported only if its cluster is configured."""

from collections.abc import Callable, Mapping
from importlib import import_module

import msgspec

from tidemill.engine.workflows.executors.remote.interface import AttemptLauncher
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.kernel.settings import Settings

MakeLauncher = Callable[[Settings, Clock], AttemptLauncher]
"""Makes a launcher from settings; it does not connect yet."""


class LauncherKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of launcher, by the name of its executor."""

    setting: str
    """The setting that configures the cluster; without it, the node does not have the executor."""
    module: str
    """The module with `make_launcher`, a MakeLauncher."""
    extra: str
    """The extra that installs its client."""


LAUNCHER_KINDS: Mapping[str, LauncherKind] = {
    "kubernetes": LauncherKind(
        setting="kubernetes_config",
        module="tidemill.engine.workflows.executors.kubernetes.launcher",
        extra="kubernetes",
    ),
    "ray": LauncherKind(setting="ray_address", module="tidemill.engine.workflows.executors.ray.launcher", extra="ray"),
}
"""By the name of the executor."""


def make_launchers(
    settings: Settings, clock: Clock, kinds: Mapping[str, LauncherKind] = LAUNCHER_KINDS
) -> list[AttemptLauncher]:
    """Return the launchers whose clusters are configured."""
    return [
        _make_launcher(name, kind, settings, clock)
        for name, kind in kinds.items()
        if getattr(settings, kind.setting) is not None
    ]


def _make_launcher(name: str, kind: LauncherKind, settings: Settings, clock: Clock) -> AttemptLauncher:
    try:
        make: MakeLauncher = import_module(kind.module).make_launcher
    except ImportError as error:
        raise OperationError(
            f"the executor '{name}' needs its client: pip install 'tidemill[{kind.extra}]' ({error})"
        ) from error
    return make(settings, clock)


def explain_missing(executor: str, kinds: Mapping[str, LauncherKind] = LAUNCHER_KINDS) -> str | None:
    """Return what to set so that a node has a remote executor; None if there is none of this name."""
    kind = kinds.get(executor)
    if kind is None:
        return None
    return f"the executor '{executor}' is not configured: set {kind.setting}, or TIDEMILL_{kind.setting.upper()}"
