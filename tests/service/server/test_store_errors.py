"""Errors of the store over HTTP: callers learn that it failed, and only the log says where it is and why."""

import logging

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.service.server.graph_samples import market
from tests.service.server.serving_node import served


async def test_a_caller_does_not_learn_the_address_of_the_store(
    own_postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    address = await own_postgres.fresh_store()
    secrets = [address.rpartition("/")[2], str(own_postgres.port), "127.0.0.1", "PostgreSQL"]
    load = market(strategy="sequential", durability="boundary")
    async with tm.Node(address, load=load) as node, served(node) as server:
        own_postgres.stop("immediate")
        with caplog.at_level(logging.WARNING):
            answers = [
                await server.http.get("/variables"),
                await server.http.post("/accumulators/orderbook/events", json={"bid": 1}),
                await server.http.post(
                    "/accumulators/orderbook/events",
                    content=b'{"bid": 1}\n{"bid": 2}\n',
                    headers={"content-type": "application/x-ndjson"},
                ),
            ]
        own_postgres.start()
    assert [one.status_code for one in answers] == [503, 503, 200]
    assert (answers[0].json()["code"], answers[1].json()["code"]) == ("store_unavailable", "not_stored")
    assert {one["outcome"] for one in answers[2].json()["receipts"]} == {"rejected"}
    for answer in answers:
        assert not [one for one in secrets if one in answer.text], answer.text
    assert any(f"{secrets[0]} at 127.0.0.1:{secrets[1]}" in (one.exc_text or "") for one in caplog.records)
