"""The archive of one run: copies of completed saves in another place, each verified on its own, and the run's record.

Every call may wait for the place as long as its deadlines let it (minutes): worker threads only.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from policies.facts import CheckpointState
from slurm.cluster import Unreadable
from supervisor.checkpoints import posix
from supervisor.checkpoints.archive.carrying import Carrier, Progress, no_progress
from supervisor.checkpoints.archive.copying import Copying
from supervisor.checkpoints.archive.looking import ArchiveLooker
from supervisor.checkpoints.archive.record import MOST, Record
from supervisor.checkpoints.archive.restoring import Restoring
from supervisor.checkpoints.archive.retaining import Retaining
from supervisor.checkpoints.archive.shelf import Shelf
from supervisor.checkpoints.manifest import UnsoundError
from supervisor.checkpoints.objects.opening import open_bulk, open_objects
from supervisor.checkpoints.objects.port import is_key
from supervisor.checkpoints.objects.posix import LAG_S
from supervisor.checkpoints.reading.folder import lag_of
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId
from supervisor.errors import NotRestorable, UserError

THREADS = 8
"""Files under way at once: a limit of speed, or the disk, is what holds them back."""


class Archive:
    """See `open_archive`."""

    def __init__(
        self,
        shelf: Shelf,
        store: PosixStore,
        clock: Callable[[], float],
        *,
        lag_s: float = LAG_S,
        step: posix.Step = posix.no_step,
        threads: int = THREADS,
        progress: Progress = no_progress,
        record_most: int = MOST,
    ) -> None:
        self._shelf = shelf
        self._store = store
        self._clock = clock
        self._looker = ArchiveLooker(shelf, lag_s)
        # What goes out is read beside training, at one pace with the seals. What comes back is awaited: nothing trains then.
        out = Carrier(threads, store.reading.pace, store.rate, progress)
        back = Carrier(threads, store.reading.urgent_pace, None, progress)
        self._copying = Copying(shelf, store, self._looker, out, clock, step)
        self._restoring = Restoring(shelf, store, self._looker, back, clock, step)
        self._retaining = Retaining(shelf, store, self._looker, clock, step)
        self._record = Record(shelf, clock, step, record_most)

    def make(self, *, fresh: bool = False) -> None:
        """Make the archive, or find it; once, when a run is prepared or first gets one. Raises OSError, UserError.

        Nothing else makes it: a mount that is gone must never look like an archive that is empty. `fresh`: the run has just
        begun, so an archive that already has saves of its name is another run's, and refused.
        """
        self._shelf.make(self._clock())
        standing = self._shelf.standing()
        if fresh and standing.manifests | standing.copied | standing.deleted:
            raise UserError(
                f"{self._shelf.place}: this archive already has saves of a run named {self._shelf.run}: give this one another"
                " name ([run] name), or bring that one back (docs/checkpoints.md, Archive)"
            )

    def scan(self) -> tuple[CheckpointState, ...] | Unreadable:
        """Every copy that is known and not deleted: COMPLETED, IN_PROGRESS while it is being copied, or BROKEN.

        What can't be read, or was never made, is Unreadable; never empty.
        """
        try:
            return self._looker.scan()
        except OSError as error:
            return Unreadable(f"archive {self._shelf.place}: {error.strerror or error}")

    def copy(self, checkpoint: str) -> None:
        """Copy a completed save from the store, read every file again where it has landed, and mark the save ARCHIVED.

        It may be killed anywhere and called again: what is there already is verified, not written. A copy that was found
        damaged is made whole. Raises NotRestorable (not completed; or its data is no longer what was sealed), OSError.
        """
        save = SaveId.parse(checkpoint)
        with _told(save):
            self._copying.copy(save)

    def restore(self, checkpoint: str, *, again: bool = False) -> None:
        """Bring a copy back into the store, every file checked; the store then shows the save as completed.

        It may be killed anywhere and called again; a store that is empty is made. A copy that turns out to be damaged,
        read twice, is BROKEN from then on; `again` reads such a one once more, as on another machine.

        Raises NotRestorable (for now: no room, not readable; or for good), OSError.
        """
        save = SaveId.parse(checkpoint)
        with _told(save):
            self._restoring.restore(save, again=again)

    def retain(self, keep: int, protect: Collection[str] = ()) -> tuple[str, ...]:
        """Delete the oldest copies beyond the newest `keep` that are not protected, and return their ids.

        Raises OSError when the archive can't be read (nothing is deleted then), ValueError when `keep` is below 1.
        """
        return self._retaining.retain(keep, protect)

    def keep_record(self, run_root: str) -> int:
        """Copy the run's journal, settings, manifests, incidents and drills, as far as they have changed; bytes sent.

        Raises OSError.
        """
        return self._record.keep(run_root, self._store.tree)


@contextlib.contextmanager
def _told(save: SaveId) -> Iterator[None]:
    """What contradicts itself in the archive is no good for good. Raises NotRestorable."""
    try:
        yield
    except UnsoundError as error:
        raise NotRestorable(f"the archive's copy of {save}: {error}") from None


def open_archive(
    place: str,
    run: str,
    store: PosixStore,
    clock: Callable[[], float],
    *,
    step: posix.Step = posix.no_step,
    threads: int = THREADS,
    progress: Progress = no_progress,
    config: Mapping[str, str] | None = None,
) -> Archive:
    """The archive of `run` at a path, or at `s3://BUCKET/PREFIX`, `gs://...`, `az://...`. Nothing is touched yet.

    Call `make` once, when the run is prepared or first gets an archive. `clock`: wall seconds.
    `progress(done, total, what)` in bytes, from any thread. `config`: obstore's names, else the environment. Raises UserError.
    """
    shelf, lag_s = _shelf(place, run, config)
    return Archive(shelf, store, clock, lag_s=lag_s, step=step, threads=threads, progress=progress)


def recover_record(place: str, run: str, into: str, config: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Write the record of a run of which nothing is left here into an empty folder; the names of its files.

    Raises OSError, UserError.
    """
    shelf, _ = _shelf(place, run, config)
    return Record(shelf, time.time, posix.no_step).restore(into)


def _shelf(place: str, run: str, config: Mapping[str, str] | None) -> tuple[Shelf, float]:
    """A run's part of an archive, and how far names may be behind there. Raises UserError."""
    if not is_key(run) or "/" in run:
        raise UserError(f"run name {run!r} can't be a name in an archive: letters, digits, dot, dash, underscore")
    lag_s = 0.0 if "://" in place or lag_of(os.path.realpath(place)) == 0.0 else LAG_S
    return Shelf(place, run, open_objects(place, config, lag_s=lag_s), open_bulk(place, config)), lag_s
