"""A node, the asynchronous client and the blocking client have the same verbs, with the same arguments and results."""

import inspect
import re
from typing import Any, NamedTuple

import pytest

import tidemill as tm
from tidemill.api.handles import AsyncAccumulatorHandle, AsyncReactorHandle, AsyncRun
from tidemill.client import AsyncClient, Client
from tidemill.client.synchronous.handles import AccumulatorHandle, ReactorHandle, Run
from tidemill.engine.graphs.client.partitioned_handle import PartitionedHandle

PAIRS = (
    (Run, AsyncRun),
    (ReactorHandle, AsyncReactorHandle),
    (AccumulatorHandle, AsyncAccumulatorHandle),
    (Client, AsyncClient),
)
ONLY_ON_A_NODE = {
    "dead_letter_queues": "what operations read",
    "name": "the client's is an attribute",
    "next_firing": "a cursor of the process",
    "state_of": "`state` of a client reads the store too",
}
ONLY_ON_A_CLIENT = {
    "watch": "a program binds a graph to what its node does",
    "series": "it is kept for pages, and a program counts what it needs itself",
}
AT_A_CLIENT = {
    "Firing": "FiringView",  # a node has values with their classes, a client has plain ones; `output` gives both types
    "list[Firing]": "list[FiringView]",
    "Any": "ReplayResult",  # a Receipt, a Firing or a run
}
OTHER_QUESTIONS = {
    "packages": "a node says what it has loaded, a server what its store has",
    "answer": "a program may say who has answered",
    "waits": "a program asks for those of a handle",
    "push": "a node takes bytes of two formats, a client has the format of HTTP",
    "push_many": "a program may number its pushes, for a client the pusher does",
}
"""What a node and a client both have and answer differently."""
NAMED_BY_OPERATIONS = {"name": "workflow"}
"""A written method has the name that the operation gives a field; it is given by its place."""


class Verb(NamedTuple):
    """What a caller sees of a public method."""

    arguments: list[tuple[str, Any, Any]]
    """Name, default and kind of each."""
    result: str


def verbs(handle: type) -> dict[str, Verb]:
    """Return the public methods and properties of a handle."""
    members = {name: one for name, one in inspect.getmembers(handle) if not name.startswith("_")}
    return {name: _verb(one) for name, one in members.items() if callable(one) or isinstance(one, property)}


def _verb(value: Any) -> Verb:
    form = inspect.signature(value.fget if isinstance(value, property) else value)
    shown = [one for one in form.parameters.values() if one.name != "tenant"]  # the key of a client names it
    named = [(NAMED_BY_OPERATIONS.get(one.name, one.name), one.default, one.kind) for one in shown]
    result = re.sub(r"[\w.]*\.(?=\w)", "", inspect.formatannotation(form.return_annotation))
    return Verb(named, result.replace("Async", ""))


def differences(one: dict[str, Verb], other: dict[str, Verb]) -> dict[str, Any]:
    """Return the verbs that two handles both have, and differently."""
    return {name: (one[name], other[name]) for name in one.keys() & other.keys() if one[name] != other[name]}


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_the_blocking_client_has_the_verbs_of_the_asynchronous_one(blocking: type, asynchronous: type) -> None:
    """Rule 4: the same verbs, arguments, order and results, without `await`."""
    first, second = verbs(blocking), verbs(asynchronous)
    assert first.keys() ^ second.keys() <= {"aclose", "close"}
    assert not differences(first, second)


def test_reactors_have_the_same_verbs() -> None:
    """Rule 4: a node reads its memory, a client asks the server; what they are asked is the same."""
    of_node, of_client = verbs(tm.ReactorHandle), verbs(AsyncReactorHandle)
    assert of_node.keys() - of_client.keys() == ONLY_ON_A_NODE.keys()
    assert of_client.keys() - of_node.keys() == ONLY_ON_A_CLIENT.keys()
    as_client = {name: one._replace(result=AT_A_CLIENT.get(one.result, one.result)) for name, one in of_node.items()}
    assert not differences(as_client, of_client)


def test_keyed_reactors_have_the_verbs_of_others() -> None:
    """The handle of a keyed reactor is used like any other."""
    assert verbs(PartitionedHandle) == verbs(tm.ReactorHandle)


def test_a_node_and_its_client_have_the_same_verbs() -> None:
    """Rule 4: what a program asks its node, it asks a server in the same words, and gets the same."""
    different = differences(verbs(tm.Node), verbs(AsyncClient))
    assert different.keys() == OTHER_QUESTIONS.keys(), different
    assert verbs(tm.Node)["start"].result == verbs(tm.Node)["run_handle"].result == "Run"
