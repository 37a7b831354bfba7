"""What the archive itself no longer keeps. It never judges what is whole: it counts what a look shows as completed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from policies import retention
from policies.facts import CheckpointPhase
from slurm.cluster import Unreadable
from supervisor.checkpoints import posix
from supervisor.checkpoints.archive.copying import unmark
from supervisor.checkpoints.archive.documents import COPIED, DAMAGED, DELETED, MANIFESTS, Deleted
from supervisor.checkpoints.archive.looking import ArchiveLooker
from supervisor.checkpoints.archive.shelf import Shelf, Standing, sure
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId

REMOVING_S = 600.0
"""Seconds for all files of one copy."""


@dataclass(frozen=True, slots=True)
class Retaining:
    """Deletes copies. `clock`: wall seconds."""

    shelf: Shelf
    store: PosixStore
    looker: ArchiveLooker
    clock: Callable[[], float]
    step: posix.Step

    def retain(self, keep: int, protect: Collection[str]) -> tuple[str, ...]:
        """Delete the oldest copies beyond the newest `keep`, and return their ids; finish earlier deletions.

        Raises OSError, ValueError when `keep` is below 1.
        """
        states = self.looker.scan()
        standing = self.shelf.standing()
        chosen = retention.choose(states, keep, frozenset(protect))
        chosen += self._never_to_be_finished(standing, chosen, protect)
        for checkpoint in chosen:
            save = SaveId.parse(checkpoint)
            unmark(self.store, save)
            self.step("before deleted")
            self.shelf.put(DELETED, save, Deleted(id=checkpoint, at=self.clock()))
            self.step("after deleted")
        for save in sorted(standing.deleted | {SaveId.parse(one) for one in chosen}):
            if save in standing.manifests | standing.copied:
                self._remove(save, standing)
        return chosen

    def _never_to_be_finished(
        self, standing: Standing, chosen: tuple[str, ...], protect: Collection[str]
    ) -> tuple[str, ...]:
        """Half copies of saves that the store no longer has, older than a copy that stays."""
        seen = self.store.scan()
        whole = standing.copied - standing.damaged - standing.deleted - {SaveId.parse(one) for one in chosen}
        if isinstance(seen, Unreadable) or not whole:
            return ()
        may_be = {s.id for s in seen if s.phase is not CheckpointPhase.BROKEN} | set(protect)
        half = standing.manifests - standing.copied - standing.deleted
        return tuple(str(save) for save in sorted(half) if str(save) not in may_be and save < max(whole))

    def _remove(self, save: SaveId, standing: Standing) -> None:
        """What vouches for it goes first, what names it last: that is what says that something is left to remove."""
        self.looker.forget(save)
        self.step("before removal")
        if save in standing.copied:
            self.shelf.take_away(COPIED, save)
        self.step("before removal of files")
        sure(self.shelf.bulk.remove(self.shelf.files(save), within_s=REMOVING_S))
        self.step("after removal of files")
        if save in standing.damaged:
            self.shelf.take_away(DAMAGED, save)
        if save in standing.manifests:
            self.shelf.take_away(MANIFESTS, save)
        self.step("after removal")
