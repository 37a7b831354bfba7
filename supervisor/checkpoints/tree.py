"""Where things lie in the store, and the name of a save. See docs/contracts.md, section 5."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_ID = re.compile(r"a([0-9]{4,9})-i([0-9]{7,15})")
_ATTEMPT = re.compile(r"a([0-9]{4,9})")
_STEP = re.compile(r"iter_([0-9]{7,15})")


@dataclass(frozen=True, slots=True, order=True)
class SaveId:
    """The attempt that wrote a save, and the step it was taken after. Ordered as saves are begun."""

    attempt: int
    step: int

    @classmethod
    def parse(cls, text: str) -> SaveId:
        """Read `aNNNN-iNNNNNNN`. Raises ValueError for anything else, also for a second spelling of the same save."""
        found = _ID.fullmatch(text)
        save = cls(int(found[1]), int(found[2])) if found else None
        if save is None or str(save) != text:
            raise ValueError(f"{text[:80]!r} is not the id of a save, such as a0003-i0000040")
        return save

    def __str__(self) -> str:
        return f"a{self.attempt:04d}-i{self.step:07d}"


def attempt_of(name: str) -> int | None:
    """The attempt of a folder `aNNNN`; None when the name is another one."""
    found = _ATTEMPT.fullmatch(name)
    return int(found[1]) if found and name == f"a{int(found[1]):04d}" else None


def copy_of(name: str) -> tuple[SaveId, int] | None:
    """The save and the number of a restored copy's folder `aNNNN-iNNNNNNN.K`; None when the name is another one."""
    text, _, number = name.partition(".")
    try:
        found = SaveId.parse(text), int(number)
    except ValueError:
        return None
    return found if number == str(found[1]) and found[1] > 0 else None


def step_of(name: str) -> int | None:
    """The step of a folder `iter_NNNNNNN`; None when the name is another one."""
    found = _STEP.fullmatch(name)
    return int(found[1]) if found and name == step_name(int(found[1])) else None


def step_name(step: int) -> str:
    """Megatron's own folder name."""
    return f"iter_{step:07d}"


@dataclass(frozen=True, slots=True)
class Tree:
    """The paths of one store."""

    root: str

    @property
    def saves(self) -> str:
        """What the ranks write, one folder an attempt."""
        return os.path.join(self.root, "saves")

    @property
    def seals(self) -> str:
        """What relight says about saves, one folder a save."""
        return os.path.join(self.root, "seals")

    @property
    def views(self) -> str:
        """What the ranks load from, one folder an attempt."""
        return os.path.join(self.root, "views")

    @property
    def deleted(self) -> str:
        """One empty file for each save that is deleted or being deleted; a save's id is never used again."""
        return os.path.join(self.root, "deleted")

    @property
    def pins(self) -> str:
        """One file for each save that a person wants to be kept; see `pins.py`."""
        return os.path.join(self.root, "pins")

    @property
    def restored(self) -> str:
        """What came back from an archive, one folder a copy; see `places.py`."""
        return os.path.join(self.root, "restored")

    @property
    def baseline(self) -> str:
        """What the first completed save held; see `seal_spec.py`."""
        return os.path.join(self.seals, "baseline.json")

    @property
    def completed(self) -> str:
        """The published list."""
        return os.path.join(self.root, "completed.json")

    @property
    def latest(self) -> str:
        """The published pointer."""
        return os.path.join(self.root, "latest")

    def attempt_saves(self, attempt: int) -> str:
        """The save directory of an attempt."""
        return os.path.join(self.saves, f"a{attempt:04d}")

    def save(self, save: SaveId) -> str:
        """The folder of one save."""
        return os.path.join(self.attempt_saves(save.attempt), step_name(save.step))

    def seal(self, save: SaveId) -> str:
        """The folder of what is said about one save."""
        return os.path.join(self.seals, str(save))

    def mark(self, save: SaveId, name: str) -> str:
        """One file of that folder."""
        return os.path.join(self.seal(save), name)

    def copy(self, save: SaveId, number: int) -> str:
        """The folder of the restored copy of this number, 1 or more: its data, and what is said about it."""
        return os.path.join(self.restored, f"{save}.{number}")

    def tombstone(self, save: SaveId) -> str:
        """Exists: the save is deleted, wholly or not yet wholly."""
        return os.path.join(self.deleted, str(save))

    def view(self, attempt: int) -> str:
        """The load directory of an attempt."""
        return os.path.join(self.views, f"a{attempt:04d}")
