"""The checkpoint store as a simulated shared file system: saves in progress, finished, torn, vanished; sometimes away.

Its marks follow `supervisor/checkpoints/`: one exclusive outcome decides, and a sealer may be killed between any two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from policies.facts import Batch, CheckpointPhase, CheckpointState, Counters, Expected
from policies.layout import Layout
from slurm.cluster import Unreadable
from supervisor.bench.world.timeline import Timeline
from supervisor.errors import NotRestorable

SAVE_BYTES = 7_000_000_000_000
"""500B parameters with their moments: 14 bytes each."""


@dataclass(slots=True)
class Save:
    """One save as it really is. `state` stands for the weights; `sound`: the bytes are what was written."""

    id: str
    attempt: int
    counters: Counters
    state: str
    begun_at: float
    done_at: float | None = None
    shown_at: float | None = None  # when others see that it is done: caches lag
    sound: bool = True
    rotten_at: float | None = None  # when it ceased to be
    outcome: str = ""  # COMMITTED, BROKEN, ABANDONED: the first stands
    committed: bool = False  # the mark that follows the outcome
    manifest: str = ""
    completed_at: float | None = None
    read_at: float | None = None
    condemned: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(slots=True)
class Log:
    """What has been changed, for those who check: (when, what, save)."""

    changes: list[tuple[float, str, str]] = field(default_factory=list)


def digest_of(state: str, rank: int) -> str:
    """The digest of one rank's part of the weights."""
    return f"{state}-{rank:05d}"


class SimStore:
    """`ports.Store` over simulated saves."""

    def __init__(
        self, time: Timeline, layout: Layout, batch: int, passing: Callable[[str], None], changed: Callable[[], None]
    ) -> None:
        self.saves: dict[str, Save] = {}
        self.deleted: set[str] = set()
        self.vanished: set[str] = set()
        self.views: dict[int, str | None] = {}
        self.viewed_at: dict[int, float] = {}  # when what a view leads to was read for it
        self.listed: tuple[str, ...] = ()
        self.away_until = 0.0
        self.free = 100 * SAVE_BYTES
        self.lag_s = 0.0
        self.deep = True  # a view reads all content again
        self.log = Log()
        self.version = 0
        self._time = time
        self._layout = layout
        self._batch = batch
        self._passing = passing
        self._changed = changed
        self._cached: tuple[CheckpointState, ...] | None = None

    # --- looking ----------------------------------------------------------------------------------------------------

    def scan(self) -> tuple[CheckpointState, ...] | Unreadable:
        """Every save that is known."""
        if self._time.now < self.away_until:
            return Unreadable("Stale file handle")
        if self._cached is None:
            self._cached = tuple(self._state(one) for one in self.saves.values())
        return self._cached

    def expected(self, checkpoint: str) -> Expected:
        """What the manifest says."""
        one = self._restorable(checkpoint)
        ranks = range(self._layout.world)
        share = self._batch // self._layout.dp
        first = one.counters.samples
        return Expected(
            checkpoint,
            one.counters,
            {rank: digest_of(one.state, rank) for rank in ranks},
            {rank: next_batch(first, share, self._layout.place(rank).dp) for rank in ranks},
        )

    def view_targets(self) -> Mapping[int, str | None] | Unreadable:
        """Attempt -> save."""
        return Unreadable("Stale file handle") if self._time.now < self.away_until else dict(self.views)

    def free_bytes(self) -> int | None:
        """What was said of it."""
        return None if self._time.now < self.away_until else self.free

    def save_dir(self, attempt: int) -> str:
        """A name."""
        return f"/store/saves/a{attempt:04d}"

    def view_dir(self, attempt: int) -> str:
        """A name."""
        return f"/store/views/a{attempt:04d}"

    # --- changing ---------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """The list follows the marks."""
        self._there()
        self._publish()

    def begin(self, checkpoint: str) -> bool:
        """The mark of a save that has begun; what it says is seen from the save itself."""
        self._there()
        return checkpoint in self.saves

    def seal(self, checkpoint: str) -> CheckpointState:
        """Verify and publish, step by step."""
        self._there()
        one = self.saves.get(checkpoint)
        if one is None:
            raise ValueError(f"{checkpoint} was deleted; an id is never used again")
        if not one.outcome:
            if not self._is_done(one):
                return self._state(one)
            self._passing("seal before content")
            good, why = one.sound, "rank 3: content differs from its sum"
            self._passing("seal after content")
            if good:
                one.manifest = one.manifest or blake2b(f"{one.id} {one.state}".encode(), digest_size=16).hexdigest()
            self._passing("seal before outcome")
            self._decide(one, "COMMITTED" if good else "BROKEN", () if good else (why,))
        self._passing("seal before mark")
        self._mark(one)
        self._passing("seal before list")
        self._publish()
        self._passing("seal after list")
        return self._state(one)

    def abandon(self, checkpoint: str, why: str) -> CheckpointState:
        """Whatever appears in it later is void."""
        self._there()
        one = self.saves[checkpoint]
        self._passing("abandon before outcome")
        self._decide(one, "ABANDONED", (why,))
        self._mark(one)
        return self._state(one)

    def condemn(self, checkpoint: str, *reasons: str) -> CheckpointState:
        """It is no longer what was sealed."""
        self._there()
        one = self.saves[checkpoint]
        one.condemned = reasons or ("condemned",)
        self._note("condemn", checkpoint)
        self._publish()
        return self._state(one)

    def make_view(self, attempt: int, checkpoint: str | None) -> str:
        """The only folder that an attempt loads from. What it leads to is read once more."""
        self._there()
        self._passing("view before")
        if checkpoint is not None:
            one = self._restorable(checkpoint)
            if self.deep and not one.sound:
                raise NotRestorable(f"{checkpoint}: content differs from the manifest")
        self.views.setdefault(attempt, checkpoint)
        self.viewed_at.setdefault(attempt, self._time.now)
        self._note("view", checkpoint or "")
        self._passing("view after")
        return self.view_dir(attempt)

    def scrub(self, checkpoint: str) -> CheckpointState:
        """All its bytes once more."""
        self._there()
        one = self._restorable(checkpoint)
        self._passing("scrub before mark")
        if not one.sound:
            return self.condemn(checkpoint, "rank 3: content differs from its sum")
        one.read_at = self._time.now
        self._note("read", checkpoint)
        self._passing("scrub after mark")
        return self._state(one)

    def drop_view(self, attempt: int) -> None:
        """Take a view away."""
        self._there()
        self.viewed_at.pop(attempt, None)
        if self.views.pop(attempt, None) is not None:
            self._note("drop-view", str(attempt))

    def retain(self, keep: int, protect: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Delete completed saves beyond the newest `keep`."""
        self._there()
        done = sorted(
            (s for s in self.saves.values() if self._state(s).phase is CheckpointPhase.COMPLETED),
            key=lambda s: (s.attempt, s.counters.step),
        )
        gone = [s.id for s in done[: max(0, len(done) - keep)] if s.id not in protect]
        for name in gone:
            self._passing("retain before delete")
            self._remove(name, "deleted")
        return tuple(gone)

    # --- what the ranks and the world do ----------------------------------------------------------------------------

    def write(self, save: Save) -> None:
        """The first byte of a save."""
        self.saves[save.id] = save
        self._note("begun", save.id)

    def finish(self, name: str) -> None:
        """The framework has published a save."""
        one = self.saves.get(name)
        if one is not None and one.done_at is None:
            one.done_at = self._time.now
            one.shown_at = self._time.now + self.lag_s
            self._note("done", name)
            if self.lag_s:
                self._time.after(self.lag_s, lambda: self._note("shown", name))

    def bring_back(self, save: Save) -> None:
        """A verified copy has come from the archive."""
        if save.id not in self.saves or self.saves[save.id].condemned or not self.saves[save.id].committed:
            self.saves[save.id] = save
            self.deleted.discard(save.id)
            self.vanished.discard(save.id)
            self._note("restored", save.id)
            self._publish()

    def lose_all(self) -> None:
        """The store is there, and empty."""
        for name in tuple(self.saves):
            self.vanish(name)

    def _remove(self, name: str, what: str) -> None:
        self.saves.pop(name, None)
        self.deleted.add(name)
        self._note(what, name)

    def vanish(self, name: str) -> None:
        """Somebody else has deleted it."""
        self.vanished.add(name)
        self._remove(name, "vanished")

    def rot(self, name: str) -> None:
        """Its bytes are no longer what was written."""
        one = self.saves[name]
        one.sound, one.rotten_at = False, one.rotten_at or self._time.now
        self._note("rotten", name)

    def away(self, seconds: float) -> None:
        """Nothing can be read or written for so long."""
        self.away_until = self._time.now + seconds
        self._note("away", "")
        self._time.after(seconds, lambda: self._note("back", ""))

    def leaves(self, free: int) -> None:
        """So many bytes are free from now on."""
        self.free = free
        self._note("room", "")

    def completed(self) -> list[Save]:
        """Saves that are completed and sound, in truth, by step."""
        done = [s for s in self.saves.values() if s.committed and not s.condemned and s.sound]
        return sorted(done, key=lambda s: (s.counters.step, s.attempt))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _there(self) -> None:
        if self._time.now < self.away_until:
            raise OSError(116, "Stale file handle")

    def _is_done(self, one: Save) -> bool:
        return one.shown_at is not None and one.shown_at <= self._time.now

    def _decide(self, one: Save, outcome: str, reasons: tuple[str, ...]) -> None:
        if not one.outcome:
            one.outcome, one.reasons = outcome, reasons
            self._note(outcome.lower(), one.id)

    def _mark(self, one: Save) -> None:
        if one.outcome == "COMMITTED" and not one.committed:
            one.committed = True
            one.completed_at = self._time.now
            self._note("completed", one.id)

    def _publish(self) -> None:
        self.listed = tuple(s.id for s in self.saves.values() if s.committed and not s.condemned)

    def _state(self, one: Save) -> CheckpointState:
        reasons: tuple[str, ...] = one.condemned or one.reasons
        if one.condemned or (one.outcome == "BROKEN"):
            phase = CheckpointPhase.BROKEN
        elif one.outcome == "ABANDONED":
            phase = CheckpointPhase.ABANDONED
        elif one.committed:
            phase = CheckpointPhase.COMPLETED
        elif self._is_done(one):
            phase = CheckpointPhase.FRAMEWORK_DONE
        else:
            phase, reasons = CheckpointPhase.IN_PROGRESS, ("no .metadata",)
        full = phase is CheckpointPhase.COMPLETED
        return CheckpointState(
            one.id,
            one.attempt,
            one.counters.step,
            phase,
            saved_at=one.done_at if full else None,
            completed_at=one.completed_at if full else None,
            manifest_hash=one.manifest if full else None,
            counters=one.counters if full else None,
            reasons=() if full else reasons,
            bytes=SAVE_BYTES if full else 0,
            read_at=one.read_at if full else None,
        )

    def _restorable(self, checkpoint: str) -> Save:
        if self._time.now < self.away_until:
            raise NotRestorable("Stale file handle", not_yet=True)
        one = self.saves.get(checkpoint)
        if one is None:
            raise NotRestorable(f"{checkpoint} is not there")
        phase = self._state(one).phase
        if phase is not CheckpointPhase.COMPLETED:
            raise NotRestorable(f"{checkpoint} is {phase}", not_yet=phase is CheckpointPhase.FRAMEWORK_DONE)
        return one

    def _note(self, what: str, name: str) -> None:
        self.log.changes.append((self._time.now, what, name))
        self.version += 1
        self._cached = None
        self._changed()


def next_batch(first: int, share: int, replica: int) -> Batch:
    """The samples that one data-parallel replica reads next; `first` is where the whole batch begins."""
    begin = first + replica * share
    return Batch(begin, share, f"h{begin:x}")
