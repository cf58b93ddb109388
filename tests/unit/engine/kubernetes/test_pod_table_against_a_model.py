"""Whatever a watch misses, a list heals: the table against a cluster that a state machine drives."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.engine.kubernetes.launches import CONFIG, KEY
from tests.unit.engine.kubernetes.pods import FAILED, RUNNING, SUCCEEDED, stored_pod
from tidemill.engine.workflows.executors.kubernetes.pod_names import read_key
from tidemill.engine.workflows.executors.kubernetes.pod_table import PodTable
from tidemill.workflows.records import AttemptKey

NEXT = {"Pending": [RUNNING, FAILED], "Running": [SUCCEEDED, FAILED], "Succeeded": [], "Failed": []}


class Cluster(RuleBasedStateMachine):
    """Pods begin, end and are deleted; changes wait in a stream that may break, and lists may be out of date."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PodTable(CONFIG)
        self.pods: dict[AttemptKey, dict[str, Any]] = {}
        self.created: set[AttemptKey] = set()
        self.stream: list[tuple[str, dict[str, Any]]] | None = []
        """Changes that the watch has not delivered yet; None while it is interrupted."""
        self.list: tuple[float, list[dict[str, Any]]] | None = None
        """A list that was asked for, and has not arrived."""
        self.ends: dict[AttemptKey, list[str]] = {}
        self.now = 0.0

    def _send(self, kind: str, pod: dict[str, Any]) -> None:
        if self.stream is not None:
            self.stream.append((kind, pod))

    def _hear(self, news: Any) -> None:
        if news is not None and news[1].is_over:
            self.ends.setdefault(news[0].key, []).append(news[1].cause)

    @rule(is_fast=st.booleans())
    def create(self, is_fast: bool) -> None:
        """The launcher creates a pod; the watch may see it before the answer arrives."""
        self.now += 1
        key = KEY._replace(attempt=len(self.created) + 1)
        pod = self.pods[key] = stored_pod({"phase": "Pending"}, key, f"uid-{key.attempt}")
        self.created.add(key)
        self._send("ADDED", pod)
        if is_fast and self.list is None:
            self.deliver_all()
        self.table.add_created(pod, self.now)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def move_on(self, data: st.DataObject) -> None:
        """A pod begins or ends."""
        key = data.draw(st.sampled_from(sorted(self.pods)))
        if not (following := NEXT[self.pods[key]["status"]["phase"]]):
            return
        self.pods[key] = {**self.pods[key], "status": data.draw(st.sampled_from(following))}
        self._send("MODIFIED", self.pods[key])

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """A pod is deleted, whatever it does."""
        self._send("DELETED", self.pods.pop(data.draw(st.sampled_from(sorted(self.pods)))))

    @precondition(lambda self: self.stream and self.list is None)
    @rule()
    def deliver(self) -> None:
        """The watch delivers one change."""
        assert self.stream
        kind, pod = self.stream.pop(0)
        self._hear(self.table.remove(pod, self.now) if kind == "DELETED" else self.table.see(pod, self.now))

    @rule()
    def interrupt(self) -> None:
        """The watch breaks; what it has not delivered is lost."""
        self.stream, self.list = None, None

    @precondition(lambda self: self.stream is None and self.list is None)
    @rule()
    def ask_for_list(self) -> None:
        """A new list is read; changes after it will come from the watch."""
        self.list, self.stream = (self.now, list(self.pods.values())), []

    @precondition(lambda self: self.list is not None)
    @rule()
    def receive_list(self) -> None:
        """The list arrives, perhaps after other things have happened."""
        assert self.list is not None
        (asked_at, pods), self.list = self.list, None
        for news in self.table.take_list("tasks", pods, asked_at, self.now):
            self._hear(news)

    def deliver_all(self) -> None:
        """The watch delivers everything."""
        while self.stream:
            self.deliver()

    @invariant()
    def each_end_is_reported_once_and_is_true(self) -> None:
        """No attempt that may still run is declared over, and none ends twice."""
        for key, causes in self.ends.items():
            assert len(causes) == 1
            assert key not in self.pods or self.pods[key]["status"]["phase"] in ("Succeeded", "Failed")

    def teardown(self) -> None:
        """With a last list nothing stays unknown: every pod that is over was reported."""
        self.now += 1
        if self.list is not None:
            self.receive_list()
        self.interrupt()
        self.ask_for_list()
        self.receive_list()
        over = {key for key in self.created if key not in self.pods or self._has_ended(key)}
        assert set(self.ends) == over
        assert {read_key(pod) for pod in self.pods.values()} == {key for key in self.created if self.table.get(key)}

    def _has_ended(self, key: AttemptKey) -> bool:
        return self.pods[key]["status"]["phase"] in ("Succeeded", "Failed")


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=30)
