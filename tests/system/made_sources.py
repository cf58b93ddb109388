"""The sources that the kill tests read: each is made in the test, and again in the process of a node.

A node starts several times per test, so this module imports neither servers nor pytest.
"""

from typing import Any

import tidemill as tm


def make_websocket(port: int) -> tm.Source:
    """Return a source on a feed that replays."""
    return tm.sources.WebSocket(
        f"ws://127.0.0.1:{port}", sequence="seq", subscribe=lambda last: {"after": last or 0}, ping="1s"
    )


def make_server_sent_events(port: int) -> tm.Source:
    return tm.sources.ServerSentEvents(f"http://127.0.0.1:{port}/events")


def make_tail(path: str) -> tm.Source:
    return tm.sources.Tail(path, every="10ms")


def make_folder(path: str) -> tm.Source:
    return tm.sources.Folder(path, format="csv", follow=True, every="10ms")


def make_postgres(argument: list[Any]) -> tm.sources.Postgres:
    """Return the source on a table: woken by notifications, or by polling alone."""
    url, channel = argument
    every = "20ms" if channel is None else "10s"
    return tm.sources.Postgres(table="numbers", columns=["number", "filler"], channel=channel, every=every, url=url)


def make_redis(argument: list[Any]) -> tm.sources.Redis:
    """Return the source on a stream."""
    url, group = argument
    return tm.sources.Redis(stream="numbers", field="event", group=group, url=url)


def make_mqtt(argument: list[Any]) -> tm.sources.Mqtt:
    """Return the source on a topic."""
    url, qos = argument
    return tm.sources.Mqtt(topic="numbers", qos=qos, client_id="tidemill-source", url=url)
