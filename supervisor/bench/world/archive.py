"""The archive as a simulated second place: copies that lag, fail, hang or rot; sometimes away.

Its marks follow `supervisor/checkpoints/archive/`: a copy counts once it was verified, and whoever copies may be killed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from policies.facts import CheckpointPhase, CheckpointState
from slurm.cluster import Unreadable
from supervisor.bench.world.store import SAVE_BYTES, Log, Save, SimStore
from supervisor.bench.world.timeline import Timeline
from supervisor.errors import NotRestorable


@dataclass(slots=True)
class Copy:
    """One copy as it really is. `whole`: verified; until then nothing may come back from it."""

    save: Save
    whole: bool = False
    sound: bool = True
    shown_at: float = field(default=0.0)  # when others see it: a bucket's list may lag


class SimArchive:
    """`ports.Archive` over simulated copies."""

    def __init__(
        self, time: Timeline, store: SimStore, passing: Callable[[str], None], changed: Callable[[], None]
    ) -> None:
        self.copies: dict[str, Copy] = {}
        self.records = 0
        self.away_until = 0.0
        self.hangs_until = 0.0
        self.fails_until = 0.0  # it can be read, and nothing can be copied
        self.lag_s = 0.0
        self.verifies = True  # what comes back is held against its sums
        self.log = Log()
        self.version = 0
        self._time = time
        self._store = store
        self._passing = passing
        self._changed = changed

    def make(self, *, fresh: bool = False) -> None:  # noqa: ARG002 - nothing is there before a world begins
        """It is there."""
        self._there()

    def scan(self) -> tuple[CheckpointState, ...] | Unreadable:
        """Every copy that is known."""
        if self._time.now < self.away_until:
            return Unreadable("no answer from the bucket")
        return tuple(self._state(one) for one in self.copies.values())

    def copy(self, checkpoint: str) -> None:
        """Step by step; what is there already is not copied again."""
        self._there()
        if self._time.now < self.fails_until:
            raise OSError(28, "No space left on device")
        save = self._store.saves.get(checkpoint)
        if save is None or not save.committed or save.condemned:
            raise NotRestorable(f"{checkpoint} is not completed")
        self._passing("copy before data")
        if not save.sound:
            raise NotRestorable(f"{checkpoint}: content differs from the manifest")
        one = self.copies.setdefault(checkpoint, Copy(replace(save)))
        self._note("begun", checkpoint)
        self._passing("copy before mark")
        if not one.whole:
            one.whole, one.shown_at = True, self._time.now + self.lag_s
            self._note("copied", checkpoint)
            if self.lag_s:
                self._time.after(self.lag_s, lambda: self._note("shown", checkpoint))
        self._passing("copy after mark")

    def restore(self, checkpoint: str) -> None:
        """Back into the store. Half a restore is nothing, and is begun anew."""
        self._there()
        one = self.copies.get(checkpoint)
        if one is None or not one.whole:
            raise NotRestorable(f"{checkpoint} has no whole copy in the archive")
        if self._store.free < SAVE_BYTES:
            raise OSError(28, "No space left on device")
        self._passing("restore before data")
        if self.verifies and not one.sound:
            raise NotRestorable(f"{checkpoint}: its copy differs from its sums")
        self._passing("restore before mark")
        self._store.bring_back(replace(one.save, sound=one.sound, condemned=()))
        self._passing("restore after mark")

    def keep_record(self, run_root: str) -> int:  # noqa: ARG002 - the port's signature
        """Count."""
        self._there()
        self.records += 1
        return 0

    def retain(self, keep: int, protect: Collection[str]) -> tuple[str, ...]:
        """The oldest whole copies go."""
        self._there()
        whole = sorted((c for c in self.copies.values() if c.whole), key=_age)
        gone = [c.save.id for c in whole[: max(0, len(whole) - keep)] if c.save.id not in protect]
        for name in gone:
            self._passing("archive before delete")
            self.copies.pop(name)
            self._note("deleted", name)
        return tuple(gone)

    # --- what the world does ----------------------------------------------------------------------------------------

    def away(self, seconds: float) -> None:
        """It says at once that it can't be read."""
        self.away_until = self._time.now + seconds
        self._note("away", "")
        self._time.after(seconds, lambda: self._note("back", ""))

    def hang(self, seconds: float) -> None:
        """It does not answer at all."""
        self.hangs_until = self._time.now + seconds
        self._note("hangs", "")
        self._time.after(seconds, lambda: self._note("back", ""))

    def fail(self, seconds: float) -> None:
        """No copy succeeds."""
        self.fails_until = self._time.now + seconds

    def recover(self) -> None:
        """It answers again, and takes in."""
        self.away_until = self.hangs_until = self.fails_until = 0.0
        self._note("back", "")

    def rot(self, name: str) -> None:
        """A copy's bytes are no longer what was copied."""
        self.copies[name].sound = False
        self._note("rotten", name)

    def whole(self) -> list[Copy]:
        """Copies that are whole and sound, in truth, the newest at the end."""
        return sorted((c for c in self.copies.values() if c.whole and c.sound), key=_age)

    def lag(self) -> float:
        """How long a call that begins now hangs before it does anything, seconds."""
        return max(0.0, self.hangs_until - self._time.now)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _there(self) -> None:
        if self._time.now < self.away_until:
            raise OSError(5, "no answer from the bucket")

    def _state(self, one: Copy) -> CheckpointState:
        save = one.save
        full = one.whole and one.shown_at <= self._time.now
        return CheckpointState(
            save.id,
            save.attempt,
            save.counters.step,
            CheckpointPhase.COMPLETED if full else CheckpointPhase.IN_PROGRESS,
            saved_at=save.done_at,
            completed_at=save.completed_at if full else None,
            manifest_hash=save.manifest if full else None,
            counters=save.counters if full else None,
            bytes=SAVE_BYTES if full else 0,
            location="archive",
        )

    def _note(self, what: str, name: str) -> None:
        self.log.changes.append((self._time.now, what, name))
        self.version += 1
        self._changed()


def _age(one: Copy) -> tuple[int, int]:
    return one.save.attempt, one.save.counters.step
