"""From the archive back into the store: `restored/ID.K`, which counts from the moment at which RESTORED is there.

Each file is created exclusively and read again, so that any number of processes may fill the same half copy, one after the
other was killed or at the same time. A copy in which something wrong has landed is given up; the next one gets the next number.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from policies.facts import CheckpointPhase
from supervisor import durable
from supervisor.checkpoints import places, posix
from supervisor.checkpoints.archive.carrying import Carrier
from supervisor.checkpoints.archive.copying import unmark
from supervisor.checkpoints.archive.documents import DAMAGED, Damaged
from supervisor.checkpoints.archive.looking import ArchiveLooker
from supervisor.checkpoints.archive.shelf import Kept, Shelf, away, filed
from supervisor.checkpoints.manifest import MANIFEST_LIMIT, Archived, FileEntry, Outcome, Restored
from supervisor.checkpoints.objects.bulk import Copied as Landed
from supervisor.checkpoints.objects.bulk import Differs
from supervisor.checkpoints.objects.landing import Pace
from supervisor.checkpoints.objects.port import Missing, NotYet
from supervisor.checkpoints.places import Place
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId
from supervisor.errors import NotRestorable

ASIDE: Final = "aside"
"""Beside the data: what is only half there. In the data's own folder it would be a stray file to whoever checks it."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """Restores saves. `clock`: wall seconds."""

    shelf: Shelf
    store: PosixStore
    looker: ArchiveLooker
    carrier: Carrier
    clock: Callable[[], float]
    step: posix.Step

    def restore(self, save: SaveId, *, again: bool = False) -> None:
        """Bring it back, or finish that. Nothing is done where the store shows this save as completed.

        Raises NotRestorable, OSError.
        """
        if again and save in self.shelf.standing().damaged:
            self.shelf.take_away(DAMAGED, save)  # it is said again if it is so
        kept = self._kept(save)
        above = os.path.dirname(self.store.tree.root)
        if not os.path.isdir(above):
            raise NotRestorable(f"{above}, where the store should be, is not there", not_yet=True)
        self.store.create()
        state = self.store.state(str(save))
        if state.phase is CheckpointPhase.COMPLETED:
            if state.manifest_hash != kept.copied.manifest_sha256:
                raise NotRestorable(f"the store holds another save by the name of {save}")
            return
        number = self._half(save, kept)
        self._require_room(save, kept, number)
        place = self._begin(save, kept, number)
        self.carrier.carry(
            kept.manifest.files,
            lambda name, entry, pace, within_s: self._move(save, place, name, entry, pace, within_s),
            f"restoring {save} from the archive",
        )
        self._finish(save, kept, place)

    def _kept(self, save: SaveId) -> Kept:
        """Raises NotRestorable: for good where there is no such copy, or it is damaged; OSError."""
        self.looker.forget(save)
        standing = self.shelf.standing()
        if save not in standing.known:
            raise NotRestorable(f"the archive has no copy of {save}")
        state = self.looker.state(save, standing)
        if state.phase is not CheckpointPhase.COMPLETED:
            unsure = state.phase is CheckpointPhase.IN_PROGRESS
            raise NotRestorable(f"the archive's copy of {save} is {state.phase}", *state.reasons, not_yet=unsure)
        return self.shelf.kept(save)

    def _half(self, save: SaveId, kept: Kept) -> int | None:
        """The number of a half copy that can be finished: the highest, unless something has been said of it."""
        tree = self.store.tree
        last = places.numbers(tree, save)[-1:]
        if not last:
            return None
        folder = tree.copy(save, last[0])
        if {places.RESTORED, places.REMOVED, places.BROKEN} & set(posix.names_in(folder)):
            return None
        try:
            same = posix.read_bounded(os.path.join(folder, "manifest.json"), MANIFEST_LIMIT) == kept.raw
        except FileNotFoundError:
            same = True
        return last[0] if same else None

    def _require_room(self, save: SaveId, kept: Kept, number: int | None) -> None:
        """Raises NotRestorable, for now, where it would not fit: half of it would help nobody, and fills the store."""
        free = self.store.free_bytes()
        if free is None:
            raise NotRestorable("the room in the store can't be seen", not_yet=True)
        there = 0
        if number is not None:
            data = places.restored(self.store.tree, save, number).data
            there = sum(os.lstat(os.path.join(data, name)).st_size for name in posix.names_in(data))
        missing = kept.manifest.bytes - there - free
        if missing > 0:
            raise NotRestorable(
                f"{save} has {kept.manifest.bytes} bytes, and the store has room for {free}: free {missing} more, as by"
                " `relight checkpoints prune`",
                not_yet=True,
            )

    def _begin(self, save: SaveId, kept: Kept, number: int | None) -> Place:
        """The folder to fill, with the manifest beside it. Raises OSError."""
        tree = self.store.tree
        while number is None:
            following = max(places.taken(tree, save), default=0) + 1
            self.step("before a copy's folder")
            try:
                os.mkdir(tree.copy(save, following), 0o700)
            except FileExistsError:
                continue
            durable.sync_folder(tree.restored)
            number = following
        place = places.restored(tree, save, number)
        posix.create_whole(place.mark("manifest.json"), kept.raw, self.step)
        if posix.read_bounded(place.mark("manifest.json"), MANIFEST_LIMIT) != kept.raw:
            raise OSError(errno.EEXIST, "is being filled from another manifest", place.marks)
        posix.make_folder(place.data)
        posix.make_folder(place.mark(ASIDE))
        return place

    def _move(self, save: SaveId, place: Place, name: str, entry: FileEntry, pace: Pace, within_s: float) -> None:
        target, key = os.path.join(place.data, name), self.shelf.file(save, name)
        aside = place.mark(ASIDE)
        self.step("before file")
        for sure in (False, True):
            answer = self.shelf.bulk.copy_out(key, target, entry.xxh3, within_s=within_s, pace=pace, aside=aside)
            match answer:
                case Landed():
                    self.step("after file")
                    return
                case NotYet():
                    raise away(answer)
                case Differs(landed=True):
                    said = Outcome(outcome="BROKEN", reasons=(answer.why[:500],))
                    posix.create_whole(place.mark(places.BROKEN), said.to_bytes(), self.step)
                    raise OSError(errno.EIO, f"{answer.why}; another copy will be begun", name)
                case Missing() if filed(name) in self.shelf.sizes(save):
                    raise OSError(errno.EAGAIN, "is listed in the archive, and not to be seen", name)
                case Missing() | Differs() if sure:
                    # Read twice: one bad reading must not take the last copy away.
                    why = answer.why if isinstance(answer, Differs) else f"{name!r} is missing in the archive"
                    unmark(self.store, save)
                    self.shelf.put(DAMAGED, save, Damaged(id=str(save), reasons=(why[:200],), at=self.clock()))
                    raise NotRestorable(f"the archive's copy of {save} is damaged: {why}")

    def _finish(self, save: SaveId, kept: Kept, place: Place) -> None:
        """Every file is there, durable, and was read again. Raises OSError, NotRestorable."""
        durable.sync_folder(place.data)
        names = set(posix.names_in(place.data))
        if names != set(kept.manifest.files):
            odd = min(names ^ set(kept.manifest.files))
            raise OSError(errno.EIO, f"{odd!r} is not as in the manifest", place.data)
        shutil.rmtree(place.mark(ASIDE), ignore_errors=True)
        said = Restored(
            id=str(save),
            manifest_sha256=kept.copied.manifest_sha256,
            place=self.shelf.place[:200],
            restored_at=self.clock(),
            completed_at=kept.manifest.completed_at,
        )
        archived = Archived(
            place=self.shelf.place[:200],
            manifest_sha256=kept.copied.manifest_sha256,
            verified_at=kept.copied.verified_at,
        )
        posix.create_whole(place.mark("ARCHIVED"), archived.to_bytes(), self.step)
        posix.create_whole(place.mark(places.RESTORED), said.to_bytes(), self.step)
        self.store.publish()
        state = self.store.state(str(save))
        if state.phase is not CheckpointPhase.COMPLETED:
            raise OSError(errno.EIO, "; ".join(state.reasons) or f"it is {state.phase}", place.marks)
