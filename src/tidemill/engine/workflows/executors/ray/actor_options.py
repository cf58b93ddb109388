"""The options of the actor of an attempt: what its task asks for, in Ray's words."""

from collections.abc import Mapping
from typing import Any

RAY_NAMES = {"cpu": "num_cpus", "memory": "memory", "gpu": "num_gpus"}
"""Resources that Ray has an option for; it calls all others custom resources."""

DEFAULT_CPUS = 1
"""The cores of a task that asks for none: Ray would reserve none, and start any number of them at once."""


def build_actor_options(resources: Mapping[str, Any], runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an actor for the resources of a task: cores, bytes, GPUs, and custom resources."""
    options: dict[str, Any] = {"num_cpus": DEFAULT_CPUS}
    options |= {RAY_NAMES[name]: quantity for name, quantity in resources.items() if name in RAY_NAMES}
    if custom := {name: quantity for name, quantity in resources.items() if name not in RAY_NAMES}:
        options["resources"] = custom
    if runtime_env:
        options["runtime_env"] = dict(runtime_env)
    return options
