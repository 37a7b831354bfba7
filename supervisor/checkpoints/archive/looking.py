"""What is in the archive, for one run. Nothing is read but documents and the names and sizes of files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from policies.facts import CheckpointPhase, CheckpointState
from supervisor.checkpoints.archive.documents import DAMAGED, Damaged
from supervisor.checkpoints.archive.shelf import Kept, Shelf, Standing, filed
from supervisor.checkpoints.manifest import Manifest, UnsoundError, counters_of
from supervisor.checkpoints.objects.lag import Lag
from supervisor.checkpoints.tree import SaveId

LOOKED_S: Final = 600.0
"""Seconds for which a copy that was found well is not listed again: one of 5,120 files costs as many stats on some file
systems, and nothing but retention ever takes a file away."""


class ArchiveLooker:
    """Sees the copies of one run. `lag_s`: how far names and sizes may be behind there."""

    def __init__(self, shelf: Shelf, lag_s: float, ticks: Callable[[], float] = time.monotonic) -> None:
        self._shelf = shelf
        self._lag = Lag(lag_s, ticks)
        self._ticks = ticks
        self._well: dict[SaveId, tuple[float, CheckpointState]] = {}

    def scan(self) -> tuple[CheckpointState, ...]:
        """Every copy that is known and not deleted, in the order in which the saves were begun. Raises OSError."""
        standing = self._shelf.standing()
        self._well = {save: seen for save, seen in self._well.items() if save in standing.copied}
        return tuple(self.state(save, standing) for save in sorted(standing.known))

    def state(self, save: SaveId, standing: Standing) -> CheckpointState:
        """One copy that is known. Raises OSError."""
        try:
            if save in standing.damaged:
                return _plain(save, CheckpointPhase.BROKEN, *self._shelf.read(DAMAGED, save, Damaged).reasons)
            if save not in standing.copied:
                return _plain(save, CheckpointPhase.IN_PROGRESS, "it is being copied, or was")
            return self._copied(save)
        except UnsoundError as error:
            return _plain(save, CheckpointPhase.BROKEN, *map(str, error.args))

    def _copied(self, save: SaveId) -> CheckpointState:
        at, state = self._well.get(save, (float("-inf"), None))
        if state is not None and self._ticks() - at < LOOKED_S:
            return state
        kept = self._shelf.kept(save)
        wrong = astray(kept.manifest, self._shelf.sizes(save))
        if wrong and not self._lag.passed(str(save)):
            raise OSError(11, f"{wrong}, or not visible yet", str(save))
        if wrong:
            raise UnsoundError(wrong)
        self._lag.well(str(save))
        state = _completed(save, kept)
        self._well[save] = (self._ticks(), state)
        return state

    def forget(self, save: SaveId) -> None:
        """Look again next time."""
        self._well.pop(save, None)


def astray(manifest: Manifest, sizes: Mapping[str, int]) -> str:
    """The first file that is missing or of another size, and how many are; empty when none is. Pure."""
    wrong = [
        f"{name!r} is missing in the archive" if size is None else f"{name!r} has {size} of {entry.size} bytes there"
        for name, entry in sorted(manifest.files.items())
        if (size := sizes.get(filed(name))) != entry.size
    ]
    if not wrong:
        return ""
    return wrong[0] if len(wrong) == 1 else f"{wrong[0]}, and {len(wrong) - 1} more are not as they were"


def _plain(save: SaveId, phase: CheckpointPhase, *reasons: str) -> CheckpointState:
    return CheckpointState(str(save), save.attempt, save.step, phase, reasons=reasons, location="archive")


def _completed(save: SaveId, kept: Kept) -> CheckpointState:
    return CheckpointState(
        str(save),
        save.attempt,
        save.step,
        CheckpointPhase.COMPLETED,
        saved_at=kept.manifest.saved_at,
        completed_at=kept.manifest.completed_at,
        manifest_hash=kept.copied.manifest_sha256,
        counters=counters_of(kept.manifest),
        bytes=kept.manifest.bytes,
        limited=kept.manifest.limited,
        location="archive",
        archived=True,
    )
