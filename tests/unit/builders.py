"""A small run as facts: three ranks in three slots, one spare, and a world that obeys each action at once.

Stories are told by moving the world (`Scene.lose`, `Scene.step`, ...) and letting the controller's pure part look at it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from policies.facts import (
    UNKNOWN,
    AttemptView,
    Batch,
    CaptureView,
    CheckpointPhase,
    CheckpointState,
    Counters,
    Expected,
    FaultClass,
    Finding,
    Loaded,
    NodeState,
    NodeView,
    Phase,
    RankExit,
    StepRow,
    View,
)
from policies.history import History
from policies.layout import Layout
from policies.rules import BudgetRules, QuarantineRules, Rules
from supervisor import actions
from supervisor.actions import Action
from supervisor.fold import fold, fold_all
from supervisor.journal.entries import Entry, EpochBegan, RunStarted, Stamped
from supervisor.tick import Tick, tick

LAYOUT = Layout(1, 1, 3, 1)
AUTO = Rules(mode="auto", cleared=frozenset(FaultClass), budget=BudgetRules(infrastructure=3, software=2))
APPROVE = AUTO.model_copy(update={"mode": "approve", "cleared": frozenset()})
OBSERVE = AUTO.model_copy(update={"mode": "observe", "cleared": frozenset()})
BARS_FOR_AN_HOUR = AUTO.model_copy(update={"quarantine": QuarantineRules(bar_s=3600)})
T0 = 1000.0
SAMPLES = 8  # a step


def node(name: str, state: NodeState = NodeState.UP, since: float = 0.0, *, agent: bool = True) -> NodeView:
    return NodeView(name, state, since, agent, checked_at=0.0 if agent else None)


def nodes(count: int = 4) -> dict[str, NodeView]:
    return {f"n{i}": node(f"n{i}") for i in range(count)}


def batch(step: int) -> Batch:
    """What the step after `step` reads."""
    return Batch(step * SAMPLES, SAMPLES, f"h{step}")


def counters(step: int) -> Counters:
    return Counters(step, step * SAMPLES, step, 0, 0.1)


def row(step: int, attempt: int = 1, at: float = T0, loss: float = 1.0) -> StepRow:
    return StepRow(attempt, step, step * SAMPLES, step, 0, loss, 0.1, 1.0, 1.0, at, batch(step - 1))


def save_id(step: int, attempt: int = 1) -> str:
    return f"a{attempt:04d}-i{step:07d}"


def save(
    step: int, attempt: int = 1, phase: CheckpointPhase = CheckpointPhase.COMPLETED, **more: Any
) -> CheckpointState:
    """`more`: other fields of the state."""
    done = phase is CheckpointPhase.COMPLETED
    return CheckpointState(
        id=save_id(step, attempt),
        attempt=attempt,
        step=step,
        phase=phase,
        completed_at=float(step) if done else None,
        manifest_hash=f"m{step}" if done else None,
        counters=counters(step) if done else None,
        **more,
    )


def expected(step: int, attempt: int = 1) -> Expected:
    ranks = range(LAYOUT.world)
    return Expected(save_id(step, attempt), counters(step), dict.fromkeys(ranks, "d"), {r: batch(step) for r in ranks})


def loaded(rank: int, where: str, attempt: int, checkpoint: str | None, step: int, digest: str = "d") -> Loaded:
    place, told = LAYOUT.place(rank), counters(step)
    return Loaded(rank, where, attempt, place, checkpoint or "", told, digest, batch(step))


def end(
    rank: int, where: str, attempt: int = 1, at: float = T0, *, code: int | None = None, signal: int | None = None
) -> RankExit:
    return RankExit(rank, where, attempt, at, code, signal)


def show(view: View, action: Action) -> View:
    """The world after an action that it obeyed at once."""
    match action:
        case actions.StartAgent() if view.nodes is not UNKNOWN:
            return replace(view, nodes={**view.nodes, action.node: _served(view.nodes[action.node])})
        case actions.Check() if view.nodes is not UNKNOWN:
            answered = replace(view.nodes[action.node], checked_for=action.incident)
            return replace(view, nodes={**view.nodes, action.node: answered})
        case actions.Capture():
            return replace(view, capture=CaptureView(action.incident, True, LAYOUT.world, 0))
        case actions.Fence():
            return replace(view, fenced=view.fenced | {action.attempt})
        case actions.Stop():
            return replace(view, steps_running=view.steps_running - {action.attempt})
        case actions.Seal():
            return _phase(view, {action.checkpoint}, CheckpointPhase.COMPLETED)
        case actions.Abandon():
            return _phase(view, set(action.checkpoints), CheckpointPhase.ABANDONED)
        case actions.Retain():
            assert view.checkpoints is not UNKNOWN
            done = [c for c in view.checkpoints if c.phase is CheckpointPhase.COMPLETED]
            gone = {c.id for c in done[: -action.keep]} - set(action.protect)
            return replace(view, checkpoints=tuple(c for c in view.checkpoints if c.id not in gone))
        case actions.Restore() if view.checkpoints is not UNKNOWN and view.archive is not UNKNOWN:
            back = tuple(replace(c, location="store") for c in view.archive if c.id == action.checkpoint)
            kept = tuple(c for c in view.checkpoints if c.id != action.checkpoint)
            return replace(view, checkpoints=(*kept, *back))
        case actions.Archive() if view.checkpoints is not UNKNOWN and view.archive is not UNKNOWN:
            copy = tuple(replace(c, location="archive") for c in view.checkpoints if c.id == action.checkpoint)
            kept = tuple(c for c in view.archive if c.id != action.checkpoint)
            return replace(view, archive=(*kept, *copy))
        case actions.Scrub() if view.checkpoints is not UNKNOWN:
            at = (action.read_at or 0.0) + 1e9
            read = (replace(c, read_at=at) if c.id == action.checkpoint else c for c in view.checkpoints)
            return replace(view, checkpoints=tuple(read))
        case actions.MakeView():
            return replace(view, views_made={**view.views_made, action.attempt: action.checkpoint})
        case actions.Launch():
            return replace(
                view,
                launched=view.launched | {action.attempt},
                steps_running=view.steps_running | {action.attempt},
                attempt=AttemptView(action.attempt, True, frozenset(range(LAYOUT.world)), phase=Phase.LOAD),
            )
        case actions.AskStop():
            return replace(view, stop_asked=view.stop_asked | {action.attempt})
        case actions.NextJob() if view.job is not None:
            return replace(view, job=replace(view.job, next="13"))
        case actions.Release():
            return replace(view, released=True)
        case _:
            return view


def _served(one: NodeView) -> NodeView:
    """With an agent that has looked at its node."""
    return replace(one, agent=True, checked_at=0.0)


def _phase(view: View, ids: set[str], phase: CheckpointPhase) -> View:
    if view.checkpoints is UNKNOWN:
        return view
    known = {"completed_at": 1e6, "manifest_hash": "m"} if phase is CheckpointPhase.COMPLETED else {}
    return replace(
        view,
        checkpoints=tuple(
            replace(c, phase=phase, counters=counters(c.step), **known) if c.id in ids else c for c in view.checkpoints
        ),
    )


@dataclass
class Scene:
    """One run: its history, what the world shows, and the time. `obeys` says which actions the world carries out."""

    rules: Rules = AUTO
    now: float = T0
    lag_s: float = 0.0
    view: View = field(default_factory=lambda: View(nodes=nodes(), checkpoints=(), store_as_of=T0, cluster_as_of=T0))
    history: History = field(default_factory=History)
    stamped: list[Stamped] = field(default_factory=list)
    done: list[Action] = field(default_factory=list)
    obeys: Callable[[Action], bool] = lambda _: True
    last: Tick | None = None

    def __post_init__(self) -> None:
        one = LAYOUT
        self.epoch(1)
        self.say(RunStarted("demo", self.rules.mode, one.tp, one.pp, one.dp, one.ranks_per_node))

    def epoch(self, number: int) -> None:
        """A new controller: it knows what is journaled and nothing else."""
        self.say(EpochBegan(number, "host", 1, number - 1, ""), epoch=number)
        assert fold_all(History(), self.stamped) == self.history

    def say(self, *entries: Entry, epoch: int | None = None) -> None:
        for entry in entries:
            one = Stamped(len(self.stamped) + 1, epoch or self.history.epoch, self.now, entry)
            self.stamped.append(one)
            self.history = fold(self.history, one)

    def tick(self) -> Tick:
        """One look. What is remembered is what the journal says, and the world obeys."""
        turn = tick(self.history, self.view, LAYOUT, self.rules, self.now, self.lag_s)
        self.say(*turn.entries)
        assert self.history == turn.history
        for action in turn.actions:
            self.done.append(action)
            if self.obeys(action):
                self.view = show(self.view, action)
        self.last = turn
        return turn

    def settle(self, limit: int = 40) -> Tick:
        """Look again until a look changes nothing. The store and the cluster are read anew each time."""
        for _ in range(limit):
            turn = self.tick()
            self.now += 0.01
            self.view = replace(self.view, store_as_of=self.now, cluster_as_of=self.now)
            if not turn.entries:
                return turn
        raise AssertionError(f"it never comes to rest: {[type(e).__name__ for e in turn.entries]}")

    def kinds(self) -> list[str]:
        """What was done, but for the questions to the spares: they are asked beside all else."""
        return [a.kind for a in self.done if a.kind != "check"]

    def of(self, kind: str) -> list[Action]:
        return [a for a in self.done if a.kind == kind]

    # --- the world moves ---

    @property
    def shown(self) -> AttemptView:
        assert self.view.attempt is not None
        return self.view.attempt

    def change(self, **what: object) -> None:
        self.view = replace(self.view, attempt=replace(self.shown, **what))

    def load(self) -> None:
        """Every rank loads what the plan says."""
        attempt = self.history.attempt
        assert attempt is not None
        told = {
            r: loaded(r, attempt.slots[r], attempt.number, attempt.checkpoint, attempt.start_step)
            for r in range(LAYOUT.world)
        }
        self.change(loaded=told, phase=Phase.STEP, last_advance=self.now)
        if attempt.checkpoint is not None:
            made = int(attempt.checkpoint[1:5])
            self.view = replace(self.view, expected=expected(attempt.start_step, made))

    def step(self, number: int) -> None:
        """The ranks have done steps up to `number`."""
        attempt = self.history.attempt
        assert attempt is not None
        first = self.shown.first_step or row(attempt.start_step + 1, attempt.number, self.now)
        last = row(number, attempt.number, self.now)
        self.change(first_step=first, last_step=last, frontier=number, last_advance=self.now, phase=Phase.STEP)

    def store(self, *saves: CheckpointState) -> None:
        assert self.view.checkpoints is not UNKNOWN
        kept = {c.id: c for c in self.view.checkpoints} | {c.id: c for c in saves}
        self.view = replace(self.view, checkpoints=tuple(kept.values()))

    def node(self, name: str, **what: object) -> None:
        assert self.view.nodes is not UNKNOWN
        since = {"since": self.now} if "state" in what else {}
        self.view = replace(self.view, nodes={**self.view.nodes, name: replace(self.view.nodes[name], **since, **what)})

    def lose(self, *names: str) -> None:
        """Nodes go down; the ranks there end with them."""
        for name in names:
            self.node(name, state=NodeState.DOWN, agent=False)

    def die(self, rank: int, signal: int | None = 9, code: int | None = None) -> None:
        attempt = self.history.attempt
        assert attempt is not None
        gone = end(rank, attempt.slots[rank], attempt.number, self.now, signal=signal, code=code)
        self.change(exits=(*self.shown.exits, gone))

    def finish_ranks(self) -> None:
        attempt = self.history.attempt
        assert attempt is not None
        ends = tuple(end(r, attempt.slots[r], attempt.number, self.now, code=0) for r in range(LAYOUT.world))
        self.change(exits=ends, running=False)
        self.view = replace(self.view, steps_running=self.view.steps_running - {attempt.number})

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.view = replace(self.view, store_as_of=self.now, cluster_as_of=self.now)


def training(rules: Rules = AUTO, *, at: int = 45, save_at: int = 40) -> Scene:
    """A run that trains: attempt 1 accepted, a completed save at step `save_at`, now at step `at`."""
    scene = Scene(rules)
    scene.settle()
    scene.load()
    scene.step(1)
    scene.settle()
    scene.wait(100)
    scene.step(at)
    if save_at:
        scene.store(save(save_at))
    scene.settle()
    assert scene.history.attempt is not None
    assert scene.history.attempt.accepted_at is not None
    scene.done.clear()
    return scene


def back(scene: Scene) -> None:
    """The next attempt loads, makes its first update and passes the old frontier."""
    attempt, frontier = scene.history.attempt, scene.history.incidents[-1].frontier
    assert attempt is not None
    scene.load()
    scene.step(attempt.start_step + 1)
    scene.settle()
    scene.step(frontier + 1)
    scene.settle()


def finding(
    kind: str, role: str, rank: int | None, wall: float | None, bound: float = 0.0, attempt: int = 1
) -> Finding:
    return Finding(attempt, kind, role, "software.user", f"{kind} of {rank}", rank=rank, wall=wall, offset_bound=bound)  # type: ignore[arg-type]
