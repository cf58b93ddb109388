"""The stored generations of reactors and accumulators, checked and decoded."""

from collections.abc import Iterable
from typing import Any

import msgspec

from tidemill.engine.audit_findings import format_time
from tidemill.engine.graphs.durability.checksums import is_part_intact
from tidemill.graphs.snapshot import AccumulatorPart, ReactorPart
from tidemill.storage.graph_ports import PartKey, SnapshotPart

Content = ReactorPart | AccumulatorPart
_CONTENT_TYPES: dict[str, type[Content]] = {"reactor": ReactorPart, "accumulator": AccumulatorPart}


class Generation(msgspec.Struct, frozen=True):
    """One stored generation: whether its checksum is right, and its content if that can be read."""

    part: SnapshotPart
    is_intact: bool
    content: Any = None
    read_error: str = ""
    """Why it cannot be read although it is intact."""

    @property
    def title(self) -> str:
        """Its number and time, for operators."""
        return f"generation {self.part.generation} of {format_time(self.part.taken_at)}"

    @classmethod
    def from_part(cls, part: SnapshotPart) -> "Generation":
        """Check and decode a part."""
        if not is_part_intact(part):
            return cls(part, is_intact=False)
        try:
            return cls(
                part, is_intact=True, content=msgspec.msgpack.decode(part.payload, type=_CONTENT_TYPES[part.key.kind])
            )
        except KeyError:
            return cls(part, is_intact=True, read_error=f"nothing of the kind '{part.key.kind}' is known")
        except msgspec.DecodeError as error:
            return cls(part, is_intact=True, read_error=str(error))


class PartHistory(msgspec.Struct, frozen=True):
    """All stored generations of one reactor or accumulator, newest moment first."""

    key: PartKey
    generations: list[Generation]

    @property
    def subject(self) -> str:
        """The name of the component in findings."""
        return f"{self.key.kind} {self.key.tenant}/{self.key.name}"

    @property
    def intact(self) -> list[Generation]:
        """The generations whose checksums are right."""
        return [one for one in self.generations if one.is_intact]

    @property
    def damaged(self) -> list[Generation]:
        """The generations whose checksums are wrong."""
        return [one for one in self.generations if not one.is_intact]

    @property
    def restore_candidate(self) -> Generation | None:
        """The generation that the next start restores."""
        return next(iter(self.intact), None)

    @property
    def journal_span(self) -> "tuple[Content, Content] | None":
        """The contents of the older and the newest generation, between which the journal must be complete.

        Before the first generation there was nothing. None if a generation is missing, which is another finding.
        """
        contents = [one.content for one in self.generations]
        if None in contents:
            return None
        numbers = [one.part.generation for one in self.generations]
        if numbers == [1] and isinstance(contents[0], AccumulatorPart):
            return AccumulatorPart(sequence=0, position=0), contents[0]
        return (contents[1], contents[0]) if len(numbers) == 2 and numbers[0] == numbers[1] + 1 else None


def read_histories(parts: Iterable[SnapshotPart]) -> dict[PartKey, PartHistory]:
    """Group stored parts by component, and decode them."""
    histories: dict[PartKey, PartHistory] = {}
    for part in sorted(parts, key=lambda part: (part.key, -part.moment, -part.generation)):
        histories.setdefault(part.key, PartHistory(part.key, [])).generations.append(Generation.from_part(part))
    return histories


def accumulators_named_in(content: ReactorPart) -> set[str]:
    """Return the accumulators whose values a reactor's snapshot holds."""
    named = {*content.cache, *content.dirty}
    named.update(name for name, _, _ in content.queue)
    named.update(name for name, _ in content.consumed)
    return named.union(*(firing.inputs for firing in content.firings))
