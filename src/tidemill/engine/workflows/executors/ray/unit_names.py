"""The names of actors: each says which attempt of which instance the actor runs, so that any node can adopt it."""

from tidemill.workflows.records import AttemptKey


def build_prefix(instance: str) -> str:
    """Return how the names of all attempts of an instance begin."""
    return f"tidemill/{instance}/attempt/"


def build_name(prefix: str, key: AttemptKey) -> str:
    """Return the name of an attempt's actor."""
    return f"{prefix}{key.run}/{key.task}/{key.element}/{key.attempt}"


def parse_name(prefix: str, name: str) -> AttemptKey | None:
    """Return the attempt that an actor runs; None if it is not the name of one."""
    parts = name.removeprefix(prefix).rsplit("/", 3)
    if not name.startswith(prefix) or len(parts) != 4:
        return None
    run, task, element, attempt = parts
    try:
        return AttemptKey(run, task, int(element), int(attempt))
    except ValueError:
        return None
