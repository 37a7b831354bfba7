"""Where one attempt stands: an aggregate that is kept up to date message by message, and read at any time. Pure.

`at` and `now` are seconds of the controller's clock. Cost: a few microseconds a message, under 2 ms a view at 5,120
ranks (`supervisor.bench.agents` measures it).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Literal

from policies.facts import EMPTY, AttemptView, Loaded, Phase, RankExit, Replay, SaveView, StepRow, Unknown
from supervisor.observe.replay import Overlay

SaveState = Literal["begin", "blocked", "written", "failed"]

_EARLY: Final = 3
"""The first steps of an attempt are slow for reasons of their own (compilation, allocation, connections)."""

_ORDINARY: Final = 3.0
"""A step longer than this many medians is no ordinary one: a rank that was stopped and went on must not stretch the
limit by which the next stall is seen."""

_WINDOW: Final = 255
_ENOUGH: Final = 8
_SAVES: Final = 16
_STATES: Final[Mapping[str, SaveState]] = {
    "begin": "begin",
    "blocked": "blocked",
    "failed": "failed",
    "written": "written",
}
_RANKING: Final = {"begin": 0, "blocked": 1, "failed": 2, "written": 3}
PHASES: Final = {phase.value: phase for phase in Phase}


class Pace:
    """How long ordinary steps take, in seconds, over the last 255 of them; it outlives an attempt."""

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=_WINDOW)
        self._early = 0.0

    def add(self, seconds: float, *, ordinary: bool) -> None:
        """Note one step."""
        if ordinary:
            self._steps.append(seconds)
        else:
            self._early = max(self._early, seconds)

    def slowest(self) -> float:
        """The slowest ordinary step; before there is any, the slowest of the others; 0 when there is none at all."""
        if not self._steps:
            return self._early
        if len(self._steps) < _ENOUGH:
            return max(self._steps)
        limit = _ORDINARY * sorted(self._steps)[len(self._steps) // 2]
        return max(seconds for seconds in self._steps if seconds <= limit)


_STANDS_S: Final = 1.0

_AFTER_S: Final = 5.0
"""Two beats and more: the last word of a node about the memory of a save may come so much after its end."""


class Progress:
    """One attempt of `world` ranks. `pace` and `reference` are what earlier attempts have shown."""

    def __init__(self, attempt: int, world: int, pace: Pace | None = None, overlay: Overlay | None = None) -> None:
        self.attempt = attempt
        self.world = world
        self.pace = pace or Pace()
        self._overlay = overlay or Overlay()
        self._phase: list[Phase] = [Phase.START_UP] * world
        self._step: list[int] = [-1] * world
        self._pid: dict[int, int] = {}
        self._phases: Counter[Phase] = Counter({Phase.START_UP: world})
        self._steps: Counter[int] = Counter({-1: world})
        self._modal = Phase.START_UP
        self._modal_since: float | None = None
        self._changes = 0  # of any rank's step or phase
        self._behind_of: tuple[tuple[int, int], tuple[int, ...]] | None = None
        self._started: set[int] = set()
        self._done: set[int] = set()
        self._exits: dict[int, RankExit] = {}
        self._loaded: dict[int, Loaded] = {}
        self._loaded_view: Mapping[int, Loaded] | None = None
        self._saves: dict[int, SaveView] = {}
        self._since_save = 2
        self._rows = 0
        self._spoke = False  # some rank uses the training call
        self._from_log = False
        self.last_advance: float | None = None
        self.first_row: StepRow | None = None
        self.last_row: StepRow | None = None
        self.non_finite: StepRow | None = None

    # --- what comes in ---------------------------------------------------------------------------------------------

    def heard(self, rank: int, at: float, pid: int | None = None, *, speaks: bool = False) -> None:
        """A rank has started (or said hello). Another pid than before: it was started again inside the attempt."""
        if pid is not None and self._pid.get(rank, pid) != pid:
            self._set_step(rank, -1)
            self._done.discard(rank)
            self._set_phase(rank, Phase.START_UP, at)
        if pid is not None:
            self._pid[rank] = pid
        self._spoke = self._spoke or speaks
        if rank not in self._started:
            self._started.add(rank)
            self._modal_since = at if self._modal_since is None else self._modal_since
            self._advance(at)

    def moved(self, rank: int, phase: Phase | None, step: int, at: float) -> None:
        """A rank is in this phase and has finished this step (-1: none told). Steps never go back."""
        if phase is not None and phase is not self._phase[rank]:
            self._set_phase(rank, phase, at)
            self._advance(at)
        if step > self._step[rank]:
            self._set_step(rank, step)
            self._advance(at)

    def row(self, row: StepRow, *, non_finite: bool, from_log: bool) -> StepRow | None:
        """The reporter's row of a step. Returns it as it is to be kept, or None when it is known already.

        Rows from a log count only while no rank speaks for itself.
        """
        if from_log and self._spoke:
            return None
        if self.last_row is not None and row.step <= self.last_row.step:
            return self._told_late(row)
        self._spoke = self._spoke or not from_log
        self._from_log = from_log
        self._rows += 1
        if row.seconds > 0:
            self.pace.add(row.seconds, ordinary=self._rows > _EARLY and self._since_save >= 2)
            self._beside_saves(row.seconds)
        self._since_save += 1
        self.first_row = self.first_row or row
        self.last_row = row
        if non_finite and self.non_finite is None:
            self.non_finite = row
        self._overlay.add(row)
        self._advance(row.at)
        return row

    def _told_late(self, row: StepRow) -> StepRow | None:
        """An agent tells its last rows again, and a newer one may have come first. The first row is what acceptance looks at."""
        if self.first_row is None or row.step >= self.first_row.step:
            return None
        self.first_row = row
        return row

    def loaded(self, loaded: Loaded, at: float) -> None:
        """What a rank says it has loaded."""
        self._spoke = True
        if self._loaded.get(loaded.rank) != loaded:
            self._loaded[loaded.rank] = loaded
            self._loaded_view = None
            self._advance(at)

    def exited(self, end: RankExit) -> bool:
        """How a rank has ended; True when that is new. The first record of a rank stands."""
        if end.rank in self._exits:
            return False
        self._exits[end.rank] = end
        return True

    def done(self, rank: int, at: float) -> None:
        """A rank has reached the end of training."""
        if rank not in self._done:
            self._done.add(rank)
            self._advance(at)

    def save(self, step: int, state: str, at: float, seconds: float | None = None, size: int | None = None) -> None:
        """A save has got to this state, as any rank says it. Written stands above failed, failed above the others."""
        new = _STATES.get(state)
        if new is None:
            return
        self._since_save = 0
        known = self._saves.get(step)
        if known is None:
            if len(self._saves) >= _SAVES:
                del self._saves[min(self._saves)]
            known = SaveView(step, self.attempt, at, new)
        if _RANKING[new] > _RANKING[known.state]:
            known = replace(known, state=new)
        if new == "blocked" and seconds is not None:
            known = replace(known, blocked_s=max(seconds, known.blocked_s or 0.0))
        elif new == "written":
            known = replace(known, written_s=seconds, bytes=size)
        self._saves[step] = known

    def save_memory(self, step: int, peak: int, at: float) -> None:
        """A node tells how many bytes its ranks have taken at most since this save began. What comes after its end is not of it."""
        known = self._saves.get(step)
        if known is None or (known.written_s is not None and at > known.began_at + known.written_s + _AFTER_S):
            return
        if peak > (known.host_peak_bytes or 0):
            self._saves[step] = replace(known, host_peak_bytes=peak)

    def _beside_saves(self, seconds: float) -> None:
        """An ordinary step while a save is written in the background."""
        for step, save in self._saves.items():
            if save.state == "blocked" and save.blocked_s is not None:
                count = save.steps_beside + 1
                mean = save.step_s_beside + (seconds - save.step_s_beside) / count
                self._saves[step] = replace(save, steps_beside=count, step_s_beside=mean)

    def lay_over(
        self, reference: Mapping[int, StepRow], tolerance: float, rows: Iterable[StepRow] = (), window: int = 16
    ) -> None:
        """Compare with these rows from now on; `rows` of this attempt that are known already are compared at once."""
        self._overlay = Overlay(reference, tolerance, window)
        for row in rows:
            self._overlay.add(row)

    # --- what is read ----------------------------------------------------------------------------------------------

    def replay(self) -> Replay | None:
        """How the steps so far compare with the reference."""
        return self._overlay.result()

    def exits(self) -> frozenset[int]:
        """The ranks whose end is known."""
        return frozenset(self._exits)

    def view(
        self, running: bool | Unknown, silent_agents: frozenset[str] = frozenset(), now: float = float("inf")
    ) -> AttemptView:
        """The attempt as it stands at `now`. `running` is what the cluster shows."""
        if self._loaded_view is None:
            self._loaded_view = MappingProxyType(dict(self._loaded)) if self._loaded else EMPTY
        limited = not self._spoke
        by_log = limited and self._from_log
        return AttemptView(
            number=self.attempt,
            running=running,
            started=frozenset(self._started),
            exits=tuple(self._exits.values()),
            loaded=self._loaded_view,
            phases=MappingProxyType(
                {Phase.STEP: self.world} if by_log else {phase: n for phase, n in self._phases.items() if n > 0}
            ),
            frontier=self.last_row.step if self.last_row is not None else 0,
            first_step=self.first_row,
            last_step=self.last_row,
            last_advance=self.last_advance,
            behind=() if limited or self._moves(now) else self._behind(),
            phase=Phase.STEP if by_log else self._modal,
            phase_since=self.first_row.at if by_log and self.first_row is not None else self._modal_since,
            slowest_step_s=self.pace.slowest(),
            saves=tuple(self._saves.values()),
            non_finite=self.non_finite,
            replay=self._overlay.result(),
            done=len(self._done),
            silent_agents=silent_agents,
            limited=limited,
        )

    # --- inside ----------------------------------------------------------------------------------------------------

    def _advance(self, at: float) -> None:
        if self.last_advance is None or at > self.last_advance:
            self.last_advance = at

    def _set_step(self, rank: int, step: int) -> None:
        self._changes += 1
        before = self._step[rank]
        self._step[rank] = step
        self._steps[step] += 1
        if self._steps[before] > 1:
            self._steps[before] -= 1
        else:
            del self._steps[before]

    def _set_phase(self, rank: int, phase: Phase, at: float) -> None:
        self._changes += 1
        self._phases[self._phase[rank]] -= 1
        self._phases[phase] += 1
        self._phase[rank] = phase
        most = max(self._phases, key=self._phases.__getitem__)
        # On a tie the phase stays: half of the ranks being elsewhere is no change yet.
        if self._phases[most] > self._phases[self._modal]:
            self._modal = most
            self._modal_since = at

    def _moves(self, now: float) -> bool:
        """While ranks move, some are always behind; it means something when they stand still."""
        return self.last_advance is not None and now - self.last_advance < _STANDS_S

    def _behind(self) -> tuple[int, ...]:
        """Ranks below the most common step, or at it but not in the most common phase.

        In a stall the few that are elsewhere are those that the many wait for. Ranks that are done are not behind.
        """
        if len(self._steps) == 1 and self._phases[self._modal] == self.world:
            return ()
        if self._behind_of is not None and self._behind_of[0] == (self._changes, len(self._done)):
            return self._behind_of[1]
        common = max(self._steps, key=lambda step: (self._steps[step], step))
        odd = [
            rank
            for rank, (step, phase) in enumerate(zip(self._step, self._phase, strict=True))
            if step < common or (step == common and phase is not self._modal)
        ]
        found = tuple(rank for rank in odd if rank not in self._done)
        self._behind_of = ((self._changes, len(self._done)), found)
        return found


def phase_of(value: object) -> Phase | None:
    """Return the phase of this name, or None."""
    return PHASES.get(value) if isinstance(value, str) else None
