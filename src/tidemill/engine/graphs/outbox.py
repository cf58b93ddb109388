"""The outbox: firings of one reactor that workflows are to be told of.

A firing of a reactor that is kept becomes part of its next checkpoint, which is written at once, and only then are
workflows told: what a crash undoes has not started anything. It leaves the checkpoint when all of them have had it.
After a crash in between they are told once more, and know by its id whether they had it already.

If workflows cannot keep up, or the store does not answer, the reactor stops firing on criteria until there is room:
its inputs wait or replace each other, as its strategy has it, and nothing is lost here.
"""

from collections.abc import Iterable
from functools import partial
from typing import Protocol

import msgspec

from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.firing_log import Record
from tidemill.engine.graphs.supervision import Component
from tidemill.engine.graphs.wheel import Wheel

LIMIT = 256  # firings on their way
PATIENCE = 5  # checkpoints in a row that could not be written


class Posting(Component, Protocol):
    """The reactor whose firings these are."""

    wheel: Wheel
    persist_failures: int

    @property
    def is_kept(self) -> bool:
        """Whether the store holds what is left undone."""

    def unsaved(self) -> None:
        """Something has changed since the last checkpoint."""


class Post(msgspec.Struct, eq=False):
    """A firing on its way."""

    record: Record
    to: set[str]
    """The workflows that have not had it."""
    is_stored: bool = False
    handed: set[str] = msgspec.field(default_factory=set)
    """Those of them that are being told."""


class Outbox:
    """The firings of one reactor that are on their way to workflows."""

    def __init__(self, reactor: Posting, environment: Environment) -> None:
        self._reactor = reactor
        self._environment = environment
        self._posts: list[Post] = []
        self._is_full = False
        self.followers: frozenset[str] = frozenset()

    @property
    def posts(self) -> tuple[Post, ...]:
        """What a checkpoint holds of it, oldest first."""
        return tuple(self._posts)

    def follow(self, names: frozenset[str]) -> None:
        """Tell these workflows, and no others; who comes late is told of what an earlier life left for it."""
        gone, self.followers = self.followers - names, names
        for post in self.posts:
            for name in post.to & gone:
                self._done(post, name, None)
        self._hand_out()

    def refill(self, posts: Iterable[Post]) -> None:
        """Go on with what an earlier life left."""
        self._posts.extend(posts)
        self._hand_out()

    def put(self, record: Record) -> None:
        """Tell every follower of a firing, as soon as it is safe to."""
        post = Post(record, set(self.followers))
        self._posts.append(post)
        if len(self._posts) >= LIMIT and not self._is_full:
            self._is_full = True
            self._reactor.wheel.hold(+1, always=True)
        self._reactor.unsaved()
        self._when_stored(post)

    def _when_stored(self, post: Post) -> None:
        if self._reactor.is_kept:
            self._environment.keeper.after_write(partial(self._written, post))
        else:
            self._release(post)

    def _written(self, post: Post) -> None:
        """Go on when a firing is stored, or will not be soon: like firings themselves, this does not wait for ever."""
        if 0 < self._reactor.persist_failures < PATIENCE:
            self._when_stored(post)
        else:
            self._release(post)

    def _release(self, post: Post) -> None:
        post.is_stored = True
        self._hand_out()

    def _hand_out(self) -> None:
        log, reactor = self._reactor.wheel.log, self._reactor
        for post in self.posts:
            if not post.is_stored:
                break  # their order stays
            for name in (post.to & self.followers) - post.handed:
                post.handed.add(name)
                done = partial(self._done, post, name)
                self._environment.followers.deliver(reactor.tenant, name, log.view(post.record), done)

    def _done(self, post: Post, name: str, reason: str | None) -> None:
        if name not in post.to:
            return  # it follows no longer
        post.to.discard(name)
        self._reactor.unsaved()
        if reason is not None:
            firing = self._reactor.wheel.log.view(post.record).id
            reason = f"firing {firing} started no run of workflow '{name}': {reason}"
            self._environment.supervisor.undelivered(self._reactor, reason)
        if not post.to:
            self._posts.remove(post)
        if self._is_full and len(self._posts) < LIMIT:
            self._is_full = False
            self._reactor.wheel.hold(-1, always=True)
