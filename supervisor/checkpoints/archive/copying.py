"""From the store into the archive. COPIED is put last, when every file was read again where it has landed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from policies.facts import CheckpointPhase
from supervisor import durable
from supervisor.checkpoints import posix
from supervisor.checkpoints.archive.carrying import Carrier
from supervisor.checkpoints.archive.documents import COPIED, DAMAGED, MANIFESTS, Copied
from supervisor.checkpoints.archive.looking import ArchiveLooker
from supervisor.checkpoints.archive.shelf import Shelf, away, filed
from supervisor.checkpoints.manifest import MANIFEST_LIMIT, RECORD_LIMIT, Archived, Committed, FileEntry, UnsoundError
from supervisor.checkpoints.objects.bulk import Copied as Landed
from supervisor.checkpoints.objects.bulk import Differs
from supervisor.checkpoints.objects.landing import Pace
from supervisor.checkpoints.objects.port import NotYet
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId
from supervisor.errors import NotRestorable


@dataclass(frozen=True, slots=True)
class Copying:
    """Copies saves. `clock`: wall seconds."""

    shelf: Shelf
    store: PosixStore
    looker: ArchiveLooker
    carrier: Carrier
    clock: Callable[[], float]
    step: posix.Step

    def copy(self, save: SaveId) -> None:
        """Copy it, or finish a copy, or make one whole again that was found damaged. Raises NotRestorable, OSError."""
        committed = self.store.committed(str(save))
        standing = self.shelf.standing()
        if save in standing.deleted:
            raise NotRestorable(f"{save} was deleted from the archive by retention; an id is never used again")
        self._put_manifest(save, committed, copied=save in standing.copied)
        self.looker.forget(save)
        known = save in standing.known
        if not known or self.looker.state(save, standing).phase is not CheckpointPhase.COMPLETED:
            self.carrier.carry(
                committed.manifest.files,
                lambda name, entry, pace, within_s: self._move(save, committed, name, entry, pace, within_s),
                f"copying {save} into the archive",
            )
            self._vouch(save, committed)
            if save in standing.damaged:
                self.shelf.take_away(DAMAGED, save)
                self.step("after healing")
            self.shelf.bulk.tidy(self.shelf.files(save), within_s=60.0)
        self._mark(save, committed)

    def _vouch(self, save: SaveId, committed: Committed) -> None:
        """Say that every file of it is there; what was said of a damaged copy before is replaced."""
        self.step("before copied")
        size = committed.manifest.bytes
        said = Copied(id=str(save), manifest_sha256=committed.sha256, bytes=size, verified_at=self.clock())
        self.shelf.replace(COPIED, save, said)
        self.step("after copied")

    def _put_manifest(self, save: SaveId, committed: Committed, *, copied: bool) -> None:
        raw = posix.read_bounded(committed.place.mark("manifest.json"), MANIFEST_LIMIT)
        if hashlib.sha256(raw).hexdigest() != committed.sha256:
            raise NotRestorable(f"the manifest of {save} changes while it is copied", not_yet=True)
        self.step("before manifest")
        while not self.shelf.put(MANIFESTS, save, raw):
            try:
                if self.shelf.manifest_bytes(save) == raw:
                    break
                ours = self.shelf.read(COPIED, save, Copied).manifest_sha256 == committed.sha256 if copied else False
            except UnsoundError:
                ours = True
            if not ours:
                raise NotRestorable(f"the archive holds another save by the name of {save}")
            # It is damaged there; what COMMITTED vouches for here takes its place.
            self.shelf.take_away(MANIFESTS, save)
        self.step("after manifest")

    def _move(
        self, save: SaveId, committed: Committed, name: str, entry: FileEntry, pace: Pace, within_s: float
    ) -> None:
        bulk, source = self.shelf.bulk, os.path.join(committed.place.data, name)
        self.step("before file")
        answer = bulk.copy_in(source, self.shelf.file(save, name), entry.xxh3, within_s=within_s, pace=pace)
        if isinstance(answer, Differs) and answer.landed:
            # Nobody counts on it yet, so it is written again.
            bulk.remove(self.shelf.files(save), filed(name), within_s=within_s)
            answer = bulk.copy_in(source, self.shelf.file(save, name), entry.xxh3, within_s=within_s, pace=pace)
        match answer:
            case Landed():
                self.step("after file")
            case Differs(landed=False):
                raise NotRestorable(answer.why)
            case Differs():
                raise OSError(errno.EIO, answer.why, name)
            case NotYet():
                raise away(answer)

    def _mark(self, save: SaveId, committed: Committed) -> None:
        """Say so beside the save: its manifest never changes. Raises NotRestorable when it was deleted meanwhile."""
        if save in self.shelf.standing().deleted:
            raise NotRestorable(f"{save} was deleted from the archive while it was being copied")
        said = Archived(place=self.shelf.place[:200], manifest_sha256=committed.sha256, verified_at=self.clock())
        path = committed.place.mark("ARCHIVED")
        if posix.create_whole(path, said.to_bytes(), self.step):
            return
        try:
            standing = Archived.model_validate_json(posix.read_bounded(path, RECORD_LIMIT))
        except ValueError:
            standing = None
        if standing is None or standing.place != said.place or standing.manifest_sha256 != said.manifest_sha256:
            durable.replace_whole(path, said.to_bytes())


def unmark(store: PosixStore, save: SaveId) -> None:
    """The store must not say of a save that there is a copy of it, when that goes. Raises OSError."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(store.place(str(save)).mark("ARCHIVED"))
