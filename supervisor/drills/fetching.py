"""The save of a drill, brought into a scratch store: from the archive as a recovery does, from the shared store by links.

A recovery from the shared store moves nothing, so neither does its drill: the files are linked where the file system can,
else copied, and then read in full as before any start.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time

from policies.facts import CheckpointPhase, CheckpointState
from policies.retention import by_age
from slurm.cluster import Unreadable
from supervisor import durable
from supervisor.checkpoints import places, posix
from supervisor.checkpoints.archive import Archive
from supervisor.checkpoints.manifest import MANIFEST_LIMIT, Restored
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId
from supervisor.errors import NOT_YET_EXIT, NotRestorable, UserError


def choose(seen: tuple[CheckpointState, ...] | Unreadable, where: str, checkpoint: str) -> CheckpointState:
    """This completed save, or the newest. Raises UserError: exit 3 while nothing can be read, else 1."""
    if isinstance(seen, Unreadable):
        raise UserError(f"the {where} can't be read: {seen.why}", NOT_YET_EXIT)
    done = [one for one in by_age(seen) if checkpoint in {"", one.id}]
    if not done:
        raise UserError(f"the {where} has no completed save{f' {checkpoint}' if checkpoint else ''}", 1)
    return done[-1]


def from_archive(archive: Archive, scratch: PosixStore, checkpoint: str) -> None:
    """`archive` was opened over the scratch store. Raises NotRestorable, OSError."""
    archive.restore(checkpoint)
    _require(scratch, checkpoint)


def from_store(store: PosixStore, scratch: PosixStore, checkpoint: str) -> None:
    """Link (or copy) a completed save into the scratch store. Raises NotRestorable, OSError."""
    save = SaveId.parse(checkpoint)
    committed = store.committed(checkpoint)
    raw = posix.read_bounded(committed.place.mark("manifest.json"), MANIFEST_LIMIT)
    if hashlib.sha256(raw).hexdigest() != committed.sha256:
        raise NotRestorable(f"the manifest of {checkpoint} is not the one that was sealed")
    scratch.create()
    folder = scratch.tree.copy(save, 1)
    os.mkdir(folder, 0o700)
    place = places.restored(scratch.tree, save, 1)
    os.mkdir(place.data, 0o700)
    posix.create_whole(place.mark("manifest.json"), raw, posix.no_step)
    for name in committed.manifest.files:
        _bring(os.path.join(committed.place.data, name), os.path.join(place.data, name))
    durable.sync_folder(place.data)
    said = Restored(
        id=checkpoint,
        manifest_sha256=committed.sha256,
        place=committed.place.data[:200],
        restored_at=time.time(),
        completed_at=committed.manifest.completed_at,
    )
    posix.create_whole(place.mark(places.RESTORED), said.to_bytes(), posix.no_step)
    scratch.publish()
    _require(scratch, checkpoint)


def _bring(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES}:
            raise
        shutil.copyfile(source, target, follow_symlinks=False)


def _require(scratch: PosixStore, checkpoint: str) -> None:
    state = scratch.state(checkpoint)
    if state.phase is not CheckpointPhase.COMPLETED:
        raise NotRestorable(f"in the scratch place {checkpoint} is {state.phase}", *state.reasons)
