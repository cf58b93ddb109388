"""Stored parts as an audit sees them: the generations of one reactor or accumulator, checked and decoded."""

from collections.abc import Iterable
from typing import Any

import msgspec

from tidemill.engine.graphs.checkpoints.sealing import is_entry_intact, is_intact
from tidemill.graphs.snapshot import AccumulatorPart, JournalRecord, ReactorPart
from tidemill.storage.ports import JournalEntry, Part, PartKey

Content = ReactorPart | AccumulatorPart
_CONTENTS: dict[str, type[Content]] = {"reactor": ReactorPart, "accumulator": AccumulatorPart}


class Generation(msgspec.Struct, frozen=True):
    """One stored generation: whether its checksum is right, and what it holds, if that can be read."""

    part: Part
    is_intact: bool
    content: Any = None
    fault: str = ""
    """Why it cannot be read although it is intact."""

    @classmethod
    def of(cls, part: Part) -> "Generation":
        """Check and decode a part."""
        if not is_intact(part):
            return cls(part, is_intact=False)
        try:
            return cls(
                part, is_intact=True, content=msgspec.msgpack.decode(part.payload, type=_CONTENTS[part.key.kind])
            )
        except KeyError:
            return cls(part, is_intact=True, fault=f"nothing of the kind '{part.key.kind}' is known")
        except msgspec.DecodeError as error:
            return cls(part, is_intact=True, fault=str(error))


class History(msgspec.Struct, frozen=True):
    """Everything stored of one reactor or accumulator, newest moment first."""

    key: PartKey
    generations: list[Generation]

    @property
    def subject(self) -> str:
        """What it is called in findings."""
        return f"{self.key.kind} {self.key.tenant}/{self.key.name}"

    @property
    def sound(self) -> list[Generation]:
        """Those whose checksums are right."""
        return [one for one in self.generations if one.is_intact]

    @property
    def damaged(self) -> list[Generation]:
        """Those whose checksums are wrong."""
        return [one for one in self.generations if not one.is_intact]

    @property
    def used(self) -> Generation | None:
        """What the next start takes."""
        return next(iter(self.sound), None)

    @property
    def span(self) -> "tuple[Content, Content] | None":
        """What the older and the newest generation hold, if the journal must reach from one to the other.

        Before the first generation there was nothing. None if something is missing: then that is to be said, not more.
        """
        contents = [one.content for one in self.generations]
        if None in contents:
            return None
        numbers = [one.part.generation for one in self.generations]
        if numbers == [1] and isinstance(contents[0], AccumulatorPart):
            return AccumulatorPart(sequence=0, position=0), contents[0]
        return (contents[1], contents[0]) if len(numbers) == 2 and numbers[0] == numbers[1] + 1 else None


def read_histories(parts: Iterable[Part]) -> dict[PartKey, History]:
    """Sort stored parts by whose they are, and read them."""
    found: dict[PartKey, History] = {}
    for part in sorted(parts, key=lambda part: (part.key, -part.moment, -part.generation)):
        found.setdefault(part.key, History(part.key, [])).generations.append(Generation.of(part))
    return found


def read_entry(entry: JournalEntry) -> JournalRecord | str | None:
    """Return what a journal entry records, why it cannot be read, or None if it is damaged."""
    if not is_entry_intact(entry):
        return None
    try:
        return msgspec.msgpack.decode(entry.payload, type=JournalRecord)
    except msgspec.DecodeError as error:
        return str(error)
