"""The checkpoint store on a POSIX file system that all nodes share.

A verdict has three values. What was read in full and is wrong is BROKEN; what could not be read is NOT_YET, with the
reason; only what was checked to the end and marked so is COMPLETED.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable

from policies import retention
from policies.facts import CheckpointPhase, CheckpointState, Expected
from slurm.cluster import Unreadable
from supervisor.checkpoints import adopting, pins, places, posix, publishing, scrubbing, sealing, views
from supervisor.checkpoints.looking import Looker, parse_or_none, plain
from supervisor.checkpoints.manifest import Committed, Manifest, Outcome, UnsoundError, expected_of, read_outcome
from supervisor.checkpoints.places import Place
from supervisor.checkpoints.readers_store import StoreReading, by_threads
from supervisor.checkpoints.reading.findings import Finding, Weight
from supervisor.checkpoints.reading.structure import ReaderFault
from supervisor.checkpoints.seal_spec import Question, SpecAwayError, SpecFile, Standard
from supervisor.checkpoints.tree import SaveId, Tree
from supervisor.errors import NotRestorable

SETTLE_S = 60.0
"""Seconds that a missing name or a short file may be a lagging cache: NFS keeps attributes for up to 60 s."""
DEEP_LIMIT = 256 << 30
"""Bytes up to which a view reads all content again: about 4 minutes at the 1.2 GB/s of one cold reader."""
SAMPLE_BYTES = 8 << 30


class PosixStore:
    """One run's saves under `root`. `world` ranks write each; `clock` gives wall seconds.

    `settle_s` should be near 0 where the file system is local. `step` is called at each boundary of a change.
    `rate`: bytes a second at most that seals read, all together, with `threads` threads each (None: no limit).
    `reading`: who reads, and how fast, instead of both.
    `spec`: what every save must hold; without one the first completed save is the baseline of the later ones.
    Methods may be called from several threads and processes at once. Ids are `aNNNN-iNNNNNNN`; another text raises
    ValueError.
    """

    def __init__(
        self,
        root: str,
        world: int,
        clock: Callable[[], float],
        *,
        settle_s: float = SETTLE_S,
        threads: int | None = None,
        rate: float | None = None,
        step: posix.Step = posix.no_step,
        spec: SpecFile | None = None,
        reading: StoreReading | None = None,
    ) -> None:
        self._tree = Tree(os.path.abspath(root))
        self._world = world
        self._clock = clock
        self._settle_s = settle_s
        self.reading = reading or by_threads(threads, rate)
        self._turns = scrubbing.Turns(one=self.reading.rate is not None)
        self._scrubs = scrubbing.Scrubs(self._turns, self.reading.beside, self.reading.pace)
        self._step = step
        self._standard = Standard(self._tree, spec)
        self._looker = Looker(self._tree, clock, settle_s)

    # --- looking -------------------------------------------------------------------------------------------------

    def scan(self) -> tuple[CheckpointState, ...] | Unreadable:
        """Every save that is known and not deleted, in the order in which they were begun. Hashes nothing.

        A store that has vanished, or was never made, is Unreadable; never empty.
        """
        return self._looker.scan()

    def state(self, checkpoint: str) -> CheckpointState:
        """Where one save stands."""
        return self._looker.state(SaveId.parse(checkpoint))

    def expected(self, checkpoint: str) -> Expected:
        """What every rank must have loaded. Raises NotRestorable."""
        return expected_of(self._looker.read_committed(SaveId.parse(checkpoint)))

    def committed(self, checkpoint: str) -> Committed:
        """The manifest of a completed save, and where its data lies. Raises NotRestorable for any other."""
        return self._looker.read_committed(SaveId.parse(checkpoint))

    def place(self, checkpoint: str) -> Place:
        """Where the data of a save lies now. Raises OSError."""
        return places.find(self._tree, SaveId.parse(checkpoint))

    @property
    def tree(self) -> Tree:
        """Its paths."""
        return self._tree

    @property
    def rate(self) -> float | None:
        """Bytes a second at most that are read beside training; None: no limit."""
        return self.reading.rate

    def latest(self) -> str | None:
        """The id that the pointer names; None when there is none. Raises OSError."""
        return publishing.read_latest(self._tree)

    def free_bytes(self) -> int | None:
        """Room that is left for us, in bytes; None when it can't be seen."""
        try:
            found = os.statvfs(self._tree.root)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    # --- changing ------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Make the folders (0700), or leave what is there; bring list and pointer up to the marks. Raises OSError."""
        os.makedirs(self._tree.root, mode=0o700, exist_ok=True)
        tree = self._tree
        for path in (tree.seals, tree.views, tree.deleted, tree.pins, tree.restored, tree.saves):
            posix.make_folder(path)
        self.publish()

    def publish(self) -> None:
        """Bring list and pointer up to the marks. Raises OSError."""
        publishing.publish(self._tree, self._step)

    def begin(self, checkpoint: str) -> bool:
        """Note that a save has begun; True when this call noted it. Raises OSError, ValueError for a deleted id."""
        save = SaveId.parse(checkpoint)
        if posix.exists(self._tree.tombstone(save)):
            raise ValueError(f"{checkpoint} was deleted; an id is never used again")
        posix.make_folder(self._tree.seal(save))
        body = f'{{"schema":1,"id":"{save}","began_at":{self._clock()!r}}}\n'
        return posix.create_whole(self._tree.mark(save, "IN_PROGRESS"), body.encode(), self._step)

    def save_dir(self, attempt: int) -> str:
        """Make the folder that an attempt saves under, and return its path. Raises OSError."""
        path = self._tree.attempt_saves(attempt)
        posix.make_folder(path)
        return path

    def seal(self, checkpoint: str) -> CheckpointState:
        """Check a save to the end and settle what it is.

        It may be killed anywhere and called again, by several at once: all end with the same. Never raises OSError.
        """
        save = SaveId.parse(checkpoint)
        try:
            self._looker.require_folders()
            if places.find(self._tree, save).kind == "restored":
                return self._looker.state(save)
            if posix.exists(self._tree.tombstone(save)):
                return plain(save, CheckpointPhase.BROKEN, "deleted by retention")
            standing = sealing.standing_outcome(self._tree, save)
            if standing is None:
                with self._turns.seal():
                    return self._settle(save, *self._verdict(save))
            return self._settle(save, standing)
        except sealing.UnfinishedError as error:
            return plain(save, CheckpointPhase.IN_PROGRESS, *error.reasons)
        except (sealing.NotYetError, UnsoundError) as error:
            return plain(save, CheckpointPhase.NOT_YET, *map(str, error.args))
        except OSError as error:
            return plain(save, CheckpointPhase.NOT_YET, posix.why(error))

    def abandon(self, checkpoint: str, why: str) -> CheckpointState:
        """Give a save up for good: its attempt is fenced and the framework had not finished. Returns what stands.

        Whatever appears in its folder later, it is never sealed. A save that was settled before stays as it is.
        Raises OSError, UnsoundError.
        """
        return self._settle(SaveId.parse(checkpoint), Outcome(outcome="ABANDONED", reasons=(why,)))

    def condemn(self, checkpoint: str, *reasons: str) -> CheckpointState:
        """Mark a save as broken, also a completed one whose content was found changed. Raises OSError, UnsoundError.

        Of one that has come back from an archive it is that copy which is marked; then what is left of it counts again.
        """
        save = SaveId.parse(checkpoint)
        wanted = Outcome(outcome="BROKEN", reasons=sealing.shorten(reasons))
        place = places.find(self._tree, save)
        if place.kind != "restored":
            self._settle(save, wanted)
        posix.create_whole(place.mark("BROKEN"), wanted.to_bytes(), self._step)
        publishing.publish(self._tree, self._step)
        return self._looker.state(save)

    def adopt(self, path: str) -> CheckpointState:
        """Take in a save from before relight: the folder of one iteration, or the one above it. It stays where it is.

        The whole check of a seal is made first, without sidecars; what fails it leaves nothing behind here. Its id is
        `a0000-iNNNNNNN`, and it is pinned. Raises NotRestorable with what is wrong, OSError.
        """
        found = adopting.locate_outside(self._tree, path)
        save = SaveId(places.ADOPTED, found.step)
        adopting.require_free(self._tree, save, found.path)
        if sealing.standing_outcome(self._tree, save) is None:
            with adopting.told(), self._turns.seal():
                terms = self._terms(save, found.path, adopted=True)
                manifest = sealing.judge(found.path, save, terms)
            adopting.claim(self._tree, save, found.path, self._step)
            # It is older than all that this run saves: retention would let go of it as soon as it is completed.
            self.pin(str(save), "adopted", "relight")
            with adopting.told():
                self._settle(save, self._completed(save, manifest), terms.question)
        else:
            self.seal(str(save))  # whatever was decided before, also by one who died over it
        state = self.state(str(save))
        if state.phase is not CheckpointPhase.COMPLETED:
            raise NotRestorable(*state.reasons, not_yet=state.phase is CheckpointPhase.NOT_YET)
        return state

    def make_view(
        self,
        attempt: int,
        checkpoint: str | None,
        *,
        deep: bool = True,
        deep_limit: int = DEEP_LIMIT,
        sample_bytes: int = SAMPLE_BYTES,
    ) -> str:
        """Check the save again, make the directory that the attempt loads from, and return its path.

        All content is read when `deep` and the save has at most `deep_limit` bytes; else a sample of `sample_bytes`.
        None makes an empty view: a start from nothing. Raises NotRestorable, views.ViewTakenError, OSError.
        """
        committed = None
        if checkpoint is not None:
            committed = self.committed(checkpoint)
            budget = None if deep and committed.manifest.bytes <= deep_limit else sample_bytes
            self._turns.stop_scrub()
            place, manifest, seed = committed.place, committed.manifest, f"{checkpoint}/{attempt}"
            self._require_sound(place, lambda: views.damage(place.data, manifest, budget, seed, self.reading.urgent))
        views.build(self._tree, attempt, committed, self._step)
        return self._tree.view(attempt)

    def scrub(self, checkpoint: str) -> CheckpointState:
        """Read a completed save again in full, at the pace of seals; condemn it when it is not what was sealed.

        It gives way to seals and views, and goes on where it was when it is asked for again. Raises NotRestorable, OSError.
        """
        committed = self.committed(checkpoint)
        try:
            self._require_sound(committed.place, lambda: self._scrubs.read(committed))
        except NotRestorable as error:
            if error.not_yet or self._is_gone(committed):
                raise
            return self.condemn(checkpoint, *error.reasons)
        scrubbing.note_read(committed.place.mark(scrubbing.READ), self._clock())
        return self.state(checkpoint)

    def _is_gone(self, committed: Committed) -> bool:
        """Was it deleted, or put elsewhere, while it was read? Then nothing is wrong with it."""
        save = SaveId.parse(committed.manifest.id)
        place = places.find(self._tree, save)
        deleted = place.kind != "restored" and posix.exists(self._tree.tombstone(save))
        return deleted or place != committed.place

    def drop_view(self, attempt: int) -> None:
        """Remove a view; only for an attempt that was never launched, as when the plan has changed. Raises OSError."""
        views.drop(self._tree, attempt)

    def views(self) -> frozenset[int] | Unreadable:
        """The attempts whose view is whole."""
        try:
            return views.standing(self._tree)
        except OSError as error:
            return Unreadable(f"views: {posix.why(error)}")

    def view_targets(self) -> dict[int, str | None] | Unreadable:
        """Attempt -> the save that its view leads to (None: a start from nothing), for the views that are whole."""
        try:
            return {attempt: views.target(self._tree, attempt) for attempt in views.standing(self._tree)}
        except (OSError, ValueError, IndexError) as error:
            return Unreadable(f"views: {error}")

    def view_dir(self, attempt: int) -> str:
        """The folder that an attempt loads from."""
        return self._tree.view(attempt)

    def retain(self, keep: int, protect: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Delete what is no longer needed (see `policies/retention.py`) and return its ids; finish earlier deletions.

        Each is first named in `deleted/`, from which moment nobody sees it as completed; then it leaves the list; then
        its data goes. What can't be removed now is in `pending_deletions` until a later call can. Raises OSError,
        ValueError.
        """
        states = self.scan()
        if isinstance(states, Unreadable):
            return ()
        chosen = retention.choose(states, keep, protect | pins.pinned(self._tree))
        for checkpoint in chosen:
            posix.create_whole(self._tree.tombstone(SaveId.parse(checkpoint)), b"", self._step)
        spared = self._spare_pinned(chosen)
        spared |= {one for one in set(chosen) - spared if not self._take_copies_away(SaveId.parse(one))}
        publishing.publish(self._tree, self._step)
        for save in self._half_deleted():
            with contextlib.suppress(OSError):
                self._remove(save)
        self._remove_copies(protect)
        return tuple(one for one in chosen if one not in spared)

    def _take_copies_away(self, save: SaveId) -> bool:
        """Have nobody see the restored copies of a save any more; False: it was pinned meanwhile, and they stay. Raises OSError."""
        taken = places.take_away(self._tree, save, self._step)
        if not taken or str(save) not in pins.pinned(self._tree):
            return True
        places.put_back(self._tree, save, taken)
        return False

    def _remove_copies(self, protect: frozenset[str]) -> None:
        """Remove restored copies that no reader counts; what can't be removed now is tried again by a later call."""
        with contextlib.suppress(OSError):
            places.sweep(self._tree)
        for save, number in places.superfluous(self._tree, protect, self._clock()):
            with contextlib.suppress(OSError):
                places.remove(self._tree, save, number, self._step)

    def _spare_pinned(self, marked_now: tuple[str, ...]) -> frozenset[str]:
        """Call back the deletion of what was pinned just before it was marked, while nothing of it is gone. Raises OSError."""
        spared = set()
        for save in self._half_deleted():
            # Removal begins with .metadata: where it still is, the save is whole.
            whole = str(save) in marked_now or posix.exists(os.path.join(self._tree.save(save), ".metadata"))
            if whole and str(save) in pins.pinned(self._tree):
                os.unlink(self._tree.tombstone(save))
                spared.add(str(save))
        return frozenset(spared)

    def pin(self, checkpoint: str, why: str, who: str) -> bool:
        """Keep a save until it is unpinned; False: it was pinned before, and that pin stands.

        Raises pins.BeingDeletedError, OSError, ValueError.
        """
        return pins.pin(self._tree, pins.Pin(checkpoint, why, who, self._clock()), self._step)

    def unpin(self, checkpoint: str) -> bool:
        """Let retention have it again; False: it was not pinned. Raises OSError, ValueError."""
        return pins.unpin(self._tree, checkpoint)

    def pending_deletions(self) -> tuple[str, ...]:
        """Saves of which something is deleted by name, or by mark, and still takes room. Raises OSError."""
        copies = {save for save, _ in places.superfluous(self._tree, frozenset(), self._clock())}
        return tuple(map(str, sorted(copies.union(self._half_deleted()))))

    # --- how -----------------------------------------------------------------------------------------------------

    def _terms(self, save: SaveId, folder: str, *, adopted: bool) -> sealing.Terms:
        """Raises NotYetError."""
        try:
            question = self._standard.question(save, folder)
        except SpecAwayError as error:
            raise sealing.NotYetError(str(error)) from error
        now, settle_s = self._clock(), self._settle_s
        return sealing.Terms(self._world, now, settle_s, self.reading, self._step, adopted, question)

    def _verdict(self, save: SaveId) -> tuple[Outcome, Question | None]:
        """What is to stand, and what it was held against. Raises NotYetError, OSError."""
        try:
            place = places.original(self._tree, save)
            terms = self._terms(save, place.data, adopted=place.kind == "adopted")
            return self._completed(save, sealing.judge(place.data, save, terms)), terms.question
        except UnsoundError as error:
            return Outcome(outcome="BROKEN", reasons=sealing.shorten(tuple(map(str, error.args)))), None

    def _completed(self, save: SaveId, manifest: Manifest) -> Outcome:
        """Put the manifest down; what is to stand then. Raises UnsoundError, OSError."""
        posix.make_folder(self._tree.seal(save))
        digest = sealing.put_manifest(self._tree, manifest, save, self._step)
        told = tuple(f"{name} is written in the view, not in the data" for name in manifest.repairs)
        at = max(self._clock(), self._after_last())
        return Outcome(outcome="COMMITTED", completed_at=at, manifest_sha256=digest, reasons=told)

    def _after_last(self) -> float:
        """The first moment after the last completion. The clock may be set back; the order of completion may not."""
        listed = publishing.read_list(self._tree).completed
        try:
            last = read_outcome(self._tree.mark(SaveId.parse(listed[-1]), "COMMITTED")).completed_at
        except (IndexError, ValueError, OSError, UnsoundError):
            return 0.0
        # A microsecond is the least that a float of today's seconds can hold with room to spare.
        return (last or 0.0) + 1e-6

    def _settle(self, save: SaveId, wanted: Outcome, question: Question | None = None) -> CheckpointState:
        posix.make_folder(self._tree.seal(save))
        standing = sealing.settle(self._tree, save, wanted, self._step)
        if standing.outcome == "COMMITTED":
            publishing.publish(self._tree, self._step)
            if question is not None:
                question.accepted(self._step)
        return self._looker.state(save)

    def _require_sound(self, place: Place, look: Callable[[], tuple[Finding, ...]]) -> None:
        """Raises NotRestorable: for good when the save is not what was sealed, else for now."""
        try:
            found = look()
        except sealing.NotYetError as error:
            raise NotRestorable(*error.reasons, not_yet=True) from error
        except OSError as error:
            raise NotRestorable(posix.why(error), not_yet=True) from error
        except ReaderFault as fault:
            raise NotRestorable(f"our own reader failed: {fault}", not_yet=True) from fault
        broken = sealing.reasons(found, Weight.BROKEN)
        if broken and places.is_away(place):
            raise NotRestorable(f"{place.data}: not there now", not_yet=True)
        if found:
            told = broken or sealing.reasons(found, Weight.NOT_YET)
            raise NotRestorable(*sealing.shorten(told), not_yet=not broken)

    def _half_deleted(self) -> list[SaveId]:
        """Deleted by name, and something of it is left."""
        named = filter(None, map(parse_or_none, posix.names_in(self._tree.deleted)))
        live = set(posix.names_in(self._tree.seals))
        return [save for save in named if str(save) in live or posix.exists(self._tree.save(save))]

    def _remove(self, save: SaveId) -> None:
        self._step("before removal")
        posix.remove_save(self._tree.save(save))
        self._step("after removal")
        # The seal goes last: it is what says that something is left to remove.
        if posix.exists(self._tree.seal(save)):
            shutil.rmtree(self._tree.seal(save))
