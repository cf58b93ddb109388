"""The handles of a node and of the client have the same verbs, with the same arguments."""

import inspect

import tidemill as tm
from tidemill.api.handles import AsyncReactorHandle
from tidemill.engine.graphs.client.partitioned_handle import PartitionedHandle

ONLY_ON_A_NODE = {
    "dead_letter_queues": "what operations read",
    "next_firing": "a cursor of the process",
    "state_of": "`state` of a client reads the store too",
}
ONLY_ON_A_CLIENT = {"watch": "a connection to the server"}


def test_reactors_have_the_same_verbs() -> None:
    """Issue 24, table of parity: name, arguments and defaults."""
    of_node, of_client = signatures(tm.ReactorHandle), signatures(AsyncReactorHandle)
    assert of_node.keys() - of_client.keys() == ONLY_ON_A_NODE.keys() | {"name"}  # the client's is an attribute
    assert of_client.keys() - of_node.keys() == ONLY_ON_A_CLIENT.keys()
    different = {name: (of_node[name], of_client[name]) for name in of_node.keys() & of_client.keys()}
    assert not {name: two for name, two in different.items() if two[0] != two[1]}


def test_keyed_reactors_have_the_verbs_of_others() -> None:
    """The handle of a keyed reactor is used like any other."""
    assert signatures(PartitionedHandle) == signatures(tm.ReactorHandle)


def signatures(handle: type) -> dict[str, list[tuple[str, object]]]:
    """Return the arguments of each public verb, with their defaults."""
    return {
        name: []
        if isinstance(value, property)
        else [(one.name, one.default) for one in inspect.signature(value).parameters.values()]
        for name, value in inspect.getmembers(handle)
        if not name.startswith("_")
    }
