"""Addresses and client libraries of sources: from the call, from a setting, or an error that says what to do."""

from pathlib import Path

import pytest

import tidemill as tm
from tidemill.engine.graphs.sources.reader import IteratorReader
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.settings import Settings
from tidemill.sources.clients import explaining_errors, import_client, resolve_url, server_name
from tidemill.sources.interface import SourceContext

URLS = {
    "postgres_url": "postgresql://u:hunter2@db/app",
    "redis_url": "rediss://u:hunter2@cache",
    "mqtt_url": "mqtts://u:hunter2@broker",
}


def context(**settings: str) -> SourceContext:
    return SourceContext("orders", Settings.read(settings, environment={}), VirtualClock(), lambda reason: None)


@pytest.mark.parametrize("setting", URLS)
def test_the_address_of_the_call_counts_more_than_the_setting(setting: str) -> None:
    """As with the servers of Kafka and NATS."""
    system = setting.removesuffix("_url")
    assert resolve_url(system, None, context(**URLS)) == URLS[setting]
    assert resolve_url(system, "here", context(**URLS)) == "here"


@pytest.mark.parametrize("setting", URLS)
def test_without_an_address_the_error_names_the_setting(setting: str) -> None:
    """A retry cannot help."""
    with pytest.raises(tm.Fail, match=rf"accumulator 'orders' .*set {setting} \(TIDEMILL_{setting.upper()}\)"):
        resolve_url(setting.removesuffix("_url"), None, context())


@pytest.mark.parametrize("setting", URLS)
def test_an_address_comes_from_a_file_and_is_shown_without_its_password(setting: str, tmp_path: Path) -> None:
    """Secrets are mounted as files, and settings are logged."""
    file = tmp_path / "url"
    file.write_text(URLS[setting] + "\n")
    settings = Settings.read(environment={f"TIDEMILL_{setting.upper()}_FILE": str(file)})
    assert getattr(settings, setting) == URLS[setting]
    assert "hunter2" not in repr(settings)
    assert "u:…@" in repr(settings)


def test_a_client_that_is_not_installed_names_its_extra() -> None:
    """A retry cannot help."""
    with pytest.raises(tm.Fail, match=r"pip install 'tidemill\[carrier\]'"):
        import_client("no_such_client", extra="carrier")


@pytest.mark.parametrize(
    "source",
    [
        tm.sources.Postgres(table="t", url="x://u:hunter2@h"),
        tm.sources.Redis(stream="s", url="x://u:hunter2@h"),
        tm.sources.Mqtt(topic="t", url="x://u:hunter2@h"),
    ],
)
def test_a_source_shows_no_password(source: tm.Source) -> None:
    """A declaration may be logged."""
    assert "hunter2" not in repr(source)
    assert server_name("x://u:hunter2@h:1/name") == "h:1"


@pytest.mark.parametrize(
    ("source", "replays"),
    [
        (tm.sources.Postgres(table="t"), True),
        (tm.sources.Redis(stream="s"), True),
        (tm.sources.Redis(stream="s", group="g"), False),
        (tm.sources.Mqtt(topic="t"), False),
        (tm.sources.WebSocket("ws://h", sequence="n"), False),
        (tm.sources.WebSocket("ws://h", sequence="n", subscribe=str), True),
        (tm.sources.ServerSentEvents("http://h"), None),
        (tm.sources.Tail("f"), True),
        (tm.sources.Folder("f", format="csv"), True),
    ],
)
def test_a_source_declares_whether_it_sends_events_again(source: tm.Source, replays: bool | None) -> None:
    """G-4: new events must not be taken for repeated ones."""
    assert IteratorReader(source, "orders", Settings(), VirtualClock()).replays is replays


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError("2 s"), tm.sources.Disconnected("orders: no answer in time")),
        (ConnectionError(), tm.sources.Disconnected("orders: ConnectionError")),
        (ConnectionError("away"), tm.sources.Disconnected("orders: away")),
        (KeyError("password"), tm.Fail("orders: 'password'; correct it")),
        (KeyError(""), tm.Fail("orders: ''")),
    ],
)
def test_an_error_of_a_client_is_a_lost_connection_unless_a_retry_cannot_help(
    error: Exception, expected: Exception
) -> None:
    """The reason has the type of an error that says nothing, and the remedy where there is one."""

    def find_remedy(found: Exception) -> str | None:
        return None if isinstance(found, OSError) else "correct it" if found.args[0] else ""

    with pytest.raises(type(expected)) as raised, explaining_errors("orders", KeyError, find_remedy=find_remedy):
        raise error
    assert str(raised.value) == str(expected)
    with pytest.raises(ValueError, match="other"), explaining_errors("orders", KeyError):
        raise ValueError("other")
