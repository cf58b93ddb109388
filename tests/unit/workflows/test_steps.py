"""Names of steps, keys, and what crosses the border of a process."""

import pickle
from functools import partial
from typing import Any

import msgspec
import pytest

import tidemill as tm
from tidemill.workflows.capabilities import Grants
from tidemill.workflows.node_calls import StepsCall
from tidemill.workflows.records import TaskError
from tidemill.workflows.step_records import StepFailure, StepName, decode_key
from tidemill.workflows.steps import StepNames, encode_key


def fetch() -> None:
    """Do nothing."""


class Callable:
    """An object that is called like a function."""

    def __call__(self) -> None:
        return None


def test_a_step_is_named_by_function_and_key_else_by_the_number_of_its_call() -> None:
    """L-1: calls without a key are counted for each function, those with a key not at all."""
    names = StepNames()
    made = [names.name(fetch, None), names.name(fetch, "a"), names.name(encode_key, None), names.name(fetch, None)]
    assert made == [
        StepName("step", "fetch", "", 1),
        StepName("step", "fetch", '"a"', 0),
        StepName("step", "encode_key", "", 1),
        StepName("step", "fetch", "", 2),
    ]
    assert [one.shown for one in made[:2]] == ["step 'fetch'", "step 'fetch' with the key \"a\""]


@pytest.mark.parametrize("nameless", [lambda: None, partial(fetch), Callable()])
def test_a_function_without_a_name_needs_a_key(nameless: Any) -> None:
    """API: else TypeError; a partial has the name of its function."""
    with pytest.raises(TypeError, match="has no name: give the step one"):
        StepNames().name(nameless, None)
    assert StepNames().name(nameless, 1).key == "1"


def test_a_step_takes_a_function() -> None:
    with pytest.raises(TypeError, match=r"ctx\.step takes a function and its arguments, not 5"):
        StepNames().name(5, None)


@pytest.mark.parametrize("key", [0, -1, True, "", "a", "ü\0", 2**70, "x" * 200])
def test_a_key_is_stored_as_it_is(key: Any) -> None:
    """A text, a number and a bool that look alike are three keys."""
    assert decode_key(encode_key(key)) == key
    assert len({encode_key(one) for one in (1, True, "1")}) == 3


@pytest.mark.parametrize(("key", "error"), [(1.5, TypeError), (("a",), TypeError), ("x" * 201, ValueError)])
def test_other_keys_are_errors(key: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="key= takes"):
        encode_key(key)


def test_an_error_of_a_step_can_be_sent_to_another_process() -> None:
    failure = StepFailure(TaskError("ValueError", "bad"), may_retry=False)
    error = tm.StepError("fetch", failure, shown="step 'fetch' with the key 3")
    copied = pickle.loads(pickle.dumps(error))
    assert str(copied) == "step 'fetch' with the key 3 failed: ValueError: bad"
    assert (copied.name, copied.type, copied.message, copied.run) == ("fetch", "ValueError", "bad", None)
    assert isinstance(copied, tm.OperationError)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=StepFailure) == failure


def test_steps_need_no_capability() -> None:
    """Packages: a task may always record what it has done."""
    Grants("acme", ()).check(StepsCall())
