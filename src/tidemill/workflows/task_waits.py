"""The waits of one attempt: what the task asks, and the answers that it has had."""

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidemill.kernel.author_errors import Fail
from tidemill.kernel.durations import Duration, format_duration, parse_positive_duration
from tidemill.workflows.answerers import parse_answerers
from tidemill.workflows.answers import check_answer
from tidemill.workflows.steps import Procedure, TaskSteps
from tidemill.workflows.wait_types import chosen_members, describe_type
from tidemill.workflows.waits import (
    OPEN_LIMIT,
    TEXT_LIMIT,
    Answer,
    WaitRecord,
    WaitRequest,
)

NO_DEFAULT: Any = msgspec.UNSET
"""The default of `default=`: none."""


class TaskWaits:
    """What one call of a task asks. A request is registered when it is made, so that several are open at once."""

    def __init__(self, steps: TaskSteps, defer: "Callable[[TaskWaits], BaseException]") -> None:
        """Take the records of the task, and what makes the error that ends the execution."""
        self.answers: list[Answer] = []
        """The answers that the task has had, in order."""
        self._steps = steps
        self._defer = defer
        self._calls: Counter[str] = Counter()
        self._requests: dict[tuple[str, int], WaitRequest] = {}

    def register(self, name: str, annotation: Any, **options: Any) -> Procedure:
        """Ask, and return what gives the answer."""
        call = self._add(name, annotation, **options)
        return self._wait(name, call, annotation)

    def ask(self, name: str, annotation: Any, say: Callable[[], Any], **options: Any) -> Procedure:
        """Ask what a function says, which is called once, and return the answer; a value that it returns is that."""
        records = yield from self._steps.load_waits()
        text = ""
        if self._find(records, name, 1) is None:
            said = say()
            if inspect.isawaitable(said):
                said = yield said
            if said is not None and not isinstance(said, str):
                return said
            text = said or ""
        return (yield from self._wait(name, self._add(name, annotation, text=text, **options), annotation))

    def _add(self, name: str, annotation: Any, **options: Any) -> int:
        """Keep what is asked, and return the number of the call under this name."""
        call = self._calls[name] + 1
        request = make_request(name, call, annotation, **options)
        self._calls[name], self._requests[name, call] = call, request
        if len(self._requests) > OPEN_LIMIT:
            raise Fail(f"a task has at most {OPEN_LIMIT} open waits")
        return call

    def _wait(self, name: str, call: int, annotation: Any) -> Procedure:
        records = yield from self._steps.load_waits()
        found = self._find(records, name, call)
        if found is not None and found.answer is not None:
            self._requests.pop((name, call), None)
            answer = msgspec.structs.replace(found.answer, value=_decode(annotation, found.answer))
            self.answers.append(answer)
            return answer.value
        if found is not None and found.state == "expired":
            seconds = self._requests.pop((name, call)).timeout
            raise TimeoutError(f"no answer to '{name}' within {format_duration(seconds or 0.0)}")
        raise self._defer(self)

    def _find(self, records: Sequence[WaitRecord], name: str, call: int) -> WaitRecord | None:
        """Return the last record of a wait; None if it has to be asked, once more if its time was over."""
        found = next((one for one in reversed(records) if (one.name, one.call) == (name, call)), None)
        is_over = found is not None and found.answer is None and found.state in ("expired", "cancelled")
        return None if found is None or (is_over and found.try_number < self._steps.number) else found

    def pending(self) -> tuple[WaitRequest, ...]:
        """Return what is asked and has no answer; that which is open already says when it expires."""
        records = self._steps.known_waits
        pending = []
        for (name, call), request in self._requests.items():
            found = self._find(records, name, call)
            if found is None:
                pending.append(request)
            elif found.state == "open":
                pending.append(msgspec.structs.replace(request, is_open=True, expires_at=found.expires_at))
        return tuple(pending)

    @property
    def ended_count(self) -> int:
        """The number of ended waits that the task knows."""
        return sum(one.state in ("answered", "expired") for one in self._steps.known_waits)


def make_request(
    name: str,
    call: int,
    annotation: Any,
    *,
    text: str = "",
    timeout: Duration | None = None,
    default: Any = NO_DEFAULT,
    by: str | Sequence[str] | None = None,
) -> WaitRequest:
    """Return what is asked; TypeError, ValueError or RequestError if an argument does not fit."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"a wait has a name and a type, not {name!r}")
    if len(text.encode()) > TEXT_LIMIT:
        raise ValueError(f"the text of '{name}' has more than {TEXT_LIMIT:,} bytes")
    if default is not NO_DEFAULT and timeout is None:
        raise TypeError("default= is the answer after timeout=, and there is no timeout=")
    kind = describe_type(annotation)
    checked = None if default is NO_DEFAULT else check_answer(name, kind, default, None)
    return WaitRequest(
        name=name,
        call=call,
        type=kind,
        text=text,
        by=parse_answerers(by),
        timeout=None if timeout is None else parse_positive_duration(timeout),
        default=None if checked is None else checked.value,
        default_variant=None if checked is None else checked.variant,
    )


def _decode(annotation: Any, answer: Answer) -> Any:
    """Return the value of an answer with the type of its wait."""
    members = {one.label: one.annotation for one in chosen_members(annotation)}
    kind = members.get(answer.variant or "", annotation)
    return msgspec.json.decode(msgspec.json.encode(answer.value), type=kind)
