"""Reads from an error of Ray why an actor has died.

Ray tells most deaths apart in the text of one error class only. The phrases below are those of Ray 2.54 to 2.60; a text
without any of them means that the worker of the actor has died for a reason that Ray does not know.
"""

from ray import exceptions  # extra: ray

from tidemill.engine.ray.protocol import ProcessCause, ProcessStatus

DEATHS = (
    exceptions.ActorDiedError,
    exceptions.ActorUnschedulableError,
    exceptions.NodeDiedError,
    exceptions.OutOfMemoryError,
    exceptions.RuntimeEnvSetupError,
)
"""The errors that say that an actor is dead. Others, such as ActorUnavailableError, may pass."""

REASON_LIMIT = 1000
"""The length of a reason in characters: Ray adds advice of many lines."""

_PHRASES: tuple[tuple[str, ProcessCause], ...] = (
    ("node running low on memory", "oom"),
    ("NODE_OUT_OF_MEMORY", "oom"),
    ("its node has died", "node_lost"),
    ("node has been preempted", "evicted"),
    ("killed by `ray.kill`", "deleted"),
)


def describe_death(error: Exception) -> ProcessStatus:
    """Return the status of a process whose actor answers with this error."""
    text = _shorten(str(error))
    match error:
        case exceptions.OutOfMemoryError():
            return _ended("oom", f"Ray ended the worker because its node was short of memory: {text}")
        case exceptions.NodeDiedError():
            return _ended("node_lost", f"the node of the cluster has died: {text}")
        case exceptions.RuntimeEnvSetupError():
            return _ended("refused", f"Ray cannot set up the runtime environment of `ray_runtime_env`: {text}")
        case exceptions.ActorUnschedulableError():
            return _ended("refused", f"no node of the cluster can ever run it: {text}")
        case exceptions.ActorDiedError(preempted=True):
            return _ended("evicted", f"the node of the cluster was taken away: {text}")
        case exceptions.ActorDiedError(actor_init_failed=True):
            return _ended("refused", f"the process could not be started: {text}")
    for phrase, cause in _PHRASES:
        if phrase in str(error):
            return _ended(cause, text)
    return ProcessStatus(state="missing", reason=f"the worker of Ray has died: {text}")


def _ended(cause: ProcessCause, reason: str) -> ProcessStatus:
    return ProcessStatus(state="ended", cause=cause, reason=reason)


def _shorten(text: str) -> str:
    """Join the lines that say why: those that name the actor are indented."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\t")]
    joined = " ".join(lines)
    return joined if len(joined) <= REASON_LIMIT else f"{joined[:REASON_LIMIT]} ..."
