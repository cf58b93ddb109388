"""Units of Ray: actors are named by their attempts, and ask for what the task asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.engine.ray.hosts import build_host_environment
from tidemill.engine.workflows.executors.ray.launcher import build_actor_options, build_name, build_prefix, parse_name
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.settings import Settings
from tidemill.workflows.records import AttemptKey

NAMES = st.text(st.characters(blacklist_characters="/", blacklist_categories=("Cs",)), min_size=1, max_size=20)
NUMBERS = st.integers(-1, 2**31 - 1)


@given(st.builds(AttemptKey, NAMES, NAMES, NUMBERS, NUMBERS), NAMES)
def test_a_name_says_which_attempt_an_actor_runs(key: AttemptKey, instance: str) -> None:
    """Any node of the instance can adopt it, and no other node sees it."""
    prefix = build_prefix(instance)
    assert parse_name(prefix, build_name(prefix, key)) == key
    assert parse_name(build_prefix(instance + "2"), build_name(prefix, key)) is None


@pytest.mark.parametrize("rest", ["", "run/task/0", "run/task/first/1", "run/task/0/"])
def test_other_names_are_no_attempts(rest: str) -> None:
    assert parse_name("tidemill/i/attempt/", f"tidemill/i/attempt/{rest}") is None


def test_resources_have_the_names_that_ray_gives_them() -> None:
    resources = {"cpu": 0.5, "memory": 2**30, "gpu": 2, "fpga": 1}
    assert build_actor_options(resources, {"pip": ["x"]}) == {
        "num_cpus": 0.5,
        "memory": 2**30,
        "num_gpus": 2,
        "resources": {"fpga": 1},
        "runtime_env": {"pip": ["x"]},
    }


def test_a_task_that_asks_for_nothing_gets_a_core() -> None:
    """Ray would run any number of such actors on one node."""
    assert build_actor_options({}, {}) == {"num_cpus": 1}


def test_the_runtime_environment_is_an_object() -> None:
    text = '{"pip": ["tidemill"]}'
    assert Settings.read(environment={"TIDEMILL_RAY_RUNTIME_ENV": text}).ray_runtime_env == {"pip": ["tidemill"]}
    assert Settings(ray_runtime_env={"pip": []}).ray_runtime_env == {"pip": []}
    for wrong in ("pip", '["pip"]', 3):
        with pytest.raises(DefinitionError, match="ray_runtime_env"):
            Settings.read({"ray_runtime_env": wrong}, environment={})


def test_a_host_gets_the_settings_that_mean_something_to_it() -> None:
    given = {"ray_hosts": 2, "ray_address": "head:6379", "partition_weight": 0, "packages": "/here", "edition": "pro"}
    settings = Settings(**given, lease_ttl="2s", kafka_servers="broker:9092", load_published=True, allow_downgrade=True)
    environment = build_host_environment(settings, "postgresql://here/t")
    assert environment == {
        "TIDEMILL_ALLOW_DOWNGRADE": "True",
        "TIDEMILL_DISPATCH_QUEUE": "256",
        "TIDEMILL_DISPATCH_WORKERS": "16",
        "TIDEMILL_KAFKA_SERVERS": "broker:9092",
        "TIDEMILL_LEASE_TTL": "2.0",
        "TIDEMILL_STORE": "postgresql://here/t",
    }
    read = Settings.read(environment=environment)
    assert (read.lease_ttl, read.kafka_servers, read.allow_downgrade) == (2.0, "broker:9092", True)
    elsewhere = build_host_environment(Settings(ray_host_store="postgresql://there/t"), "postgresql://here/t")
    assert elsewhere == {"TIDEMILL_STORE": "postgresql://there/t"}
