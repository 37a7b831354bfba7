"""The whole pure core in a toy world: lag, faults, and a controller that is killed after any entry or effect.

Each promise is checked at every turn, and each check is seen to fail on a planted fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import ledger
from policies.decisions import Recover
from policies.facts import (
    AttemptView,
    Batch,
    CaptureView,
    CheckpointPhase,
    CheckpointState,
    Counters,
    Expected,
    FaultClass,
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
from policies.reasons import Reason
from policies.rules import BudgetRules, QuarantineRules, Rules
from supervisor import actions
from supervisor.actions import Action
from supervisor.fold import fold_all
from supervisor.journal.entries import (
    ENTRY,
    Approved,
    AttemptClosed,
    Entry,
    EpochBegan,
    HaltedEntry,
    Intended,
    Resumed,
    RunStarted,
    Stamped,
)
from supervisor.tick import tick

LAYOUT = Layout(1, 1, 3, 1)
NODES = tuple(f"n{i}" for i in range(5))
LAG_S = 3.0
BUDGET = BudgetRules(infrastructure=4, software=2, no_progress_attempts=4)
FULL, DONE, GOING = CheckpointPhase.COMPLETED, CheckpointPhase.FRAMEWORK_DONE, CheckpointPhase.IN_PROGRESS
LOOK = tuple[History, View, Rules]


class BrokenError(AssertionError):
    """A promise is broken; its name is the message."""


def promise(name: str, *, kept: bool) -> None:
    if not kept:
        raise BrokenError(name)


def counters(step: int) -> Counters:
    return Counters(step, step * 8, step, 0, 0.1)


class World:
    """Nodes, ranks, saves; and the controller with its journal. `plant` changes what the controller looks at, `drop` what it journals."""

    def __init__(
        self, mode: str, lags: list[float], plant: Callable[..., LOOK] | None = None, drop: type | None = None
    ) -> None:
        self.rules = Rules(mode=mode, cleared=frozenset(FaultClass) if mode == "auto" else frozenset(), budget=BUDGET)  # type: ignore[arg-type]
        self.now, self.lags, self.plant, self.drop = 1000.0, lags, plant, drop
        self.nodes = dict.fromkeys(NODES, (NodeState.UP, 0.0))
        self.ranks: dict[int, dict[int, str]] = {}  # attempt -> living rank -> node
        self.came: dict[int, actions.Launch] = {}
        self.exits: dict[int, list[RankExit]] = {}
        self.steps: dict[int, StepRow] = {}
        self.firsts: dict[int, StepRow] = {}
        self.saves: dict[str, CheckpointState] = {}
        self.fenced: set[int] = set()
        self.views: dict[int, str | None] = {}
        self.capture: CaptureView | None = None
        self.looked: dict[str, int] = {}  # node -> the newest incident for which it has looked at itself anew
        self.under_way: list[tuple[float, Action]] = []
        self.stamped: list[Stamped] = []
        self.history = History()
        self.write([EpochBegan(1, "h", 1, 0, ""), RunStarted("toy", mode, 1, 1, 3, 1)])

    # --- what the controller sees and does ---

    def view(self) -> View:
        number = self.history.attempt.number if self.history.attempt else 0
        launch = self.came.get(number)
        shown = AttemptView(number, running=UNSEEN) if number else None
        if launch is not None:
            start, last = launch.start.step, self.steps.get(number)
            told = {
                r: Loaded(r, n, number, LAYOUT.place(r), launch.checkpoint or "", counters(start), "d", batch(start))
                for r, n in enumerate(launch.slots)
            }
            shown = AttemptView(
                number,
                running=bool(self.ranks[number]),
                started=frozenset(range(LAYOUT.world)),
                exits=tuple(self.exits[number]),
                loaded=told if number in self.firsts else {},
                phase=Phase.STEP if last else Phase.LOAD,
                frontier=last.step if last else 0,
                first_step=self.firsts.get(number),
                last_step=last,
                last_advance=last.at if last else None,
            )
        wanted = self.history.attempt.checkpoint if self.history.attempt else None
        ranks = range(LAYOUT.world)
        return View(
            nodes={n: self.node(n, s, since) for n, (s, since) in self.nodes.items()},
            attempt=shown,
            checkpoints=tuple(self.saves.values()),
            expected=Expected(
                wanted, counters(int(wanted[7:])), dict.fromkeys(ranks, "d"), {r: batch(int(wanted[7:])) for r in ranks}
            )
            if wanted
            else None,
            capture=self.capture,
            views_made=dict(self.views),
            fenced=frozenset(self.fenced),
            launched=frozenset(self.came),
            steps_running=frozenset(a for a in self.ranks if self.reachable(a)),
            cluster_as_of=self.now,
            store_as_of=self.now,
        )

    def node(self, name: str, state: NodeState, since: float) -> NodeView:
        seen = NodeView(name, state, since, state is NodeState.UP, checked_at=0.0)
        return replace(seen, checked_for=self.looked.get(name, 0))

    def reachable(self, attempt: int) -> bool:
        return any(self.nodes[n][0] is NodeState.UP for n in self.ranks[attempt].values())

    def write(self, entries: list[Entry]) -> None:
        for entry in entries:
            one = Stamped(len(self.stamped) + 1, self.history.epoch or 1, self.now, entry)
            self.stamped.append(one)
            self.history = fold_all(self.history, [one])

    def look(self, killed_after: int | None = None) -> None:
        """One turn; with `killed_after`, the controller dies after so many entries and effects, and another begins."""
        self.move()
        history, view, rules = self.history, self.view(), self.rules
        if self.plant:
            history, view, rules = self.plant(history, view, rules)
        turn = tick(history, view, LAYOUT, rules, self.now, LAG_S)
        entries = [e for e in turn.entries if not (self.drop and isinstance(e, self.drop))]
        limit = len(entries) + len(turn.actions) if killed_after is None else killed_after
        self.write(entries[:limit])
        for action in turn.actions[: max(0, limit - len(entries))]:
            self.perform(action)
        if killed_after is not None:
            again = [replace(s, entry=ENTRY.validate_json(ENTRY.dump_json(s.entry))) for s in self.stamped]
            promise("the journal rebuilds the history", kept=fold_all(History(), again) == self.history)
            self.capture = None
            self.write([EpochBegan(self.history.epoch + 1, "h", 1, self.history.epoch, "")])
        self.check()

    def perform(self, action: Action) -> None:
        journaled = any(isinstance(s.entry, Intended) and s.entry.action == action for s in self.stamped)
        promise("no effect without an intent", kept=journaled)
        if isinstance(action, actions.Launch | actions.MakeView):
            promise("halted stays halted", kept=self.history.halted is None)
        if isinstance(action, actions.Launch) and all(a != action for _, a in self.under_way):
            self.check_launch(action)
        lag = self.lags[len(self.stamped) % len(self.lags)]
        self.under_way.append((self.now + lag, action))

    def check_launch(self, launch: actions.Launch) -> None:
        if launch.attempt not in self.came:
            barred = self.history.barred(self.now)
            good = len(set(launch.slots)) == LAYOUT.slots_needed and not barred & set(launch.slots)
            promise("slots hold distinct nodes that are not barred", kept=good)
            held, own = self.history.attempts[-2:-1], self.history.incidents[-1:]
            new = set(launch.slots) - set(held[0].slots) if held and own and own[0].number == launch.incident else set()
            looked = all(self.looked.get(n, 0) >= (launch.incident or 0) for n in new)
            promise("a spare looks anew before it takes a slot", kept=looked)
        whole = [c.id for c in self.saves.values() if c.phase is FULL]
        promise(
            "only from a completed save", kept=launch.checkpoint in whole or (launch.checkpoint is None and not whole)
        )

    def check(self) -> None:
        history = self.history
        promise("one attempt has reachable ranks", kept=sum(self.reachable(a) for a in self.ranks) <= 1)
        closed = history.attempt is not None and history.attempt.ended is not None
        if closed:
            promise("the ledger adds up", kept=ledger.lineage(history.books) == history.attempt.ended.updates)  # type: ignore[union-attr]
        lifted = history.resumed_at or 0.0
        restarts = [
            a
            for a in history.attempts
            if a.incident is not None and a.intended_at > max(lifted, self.now - BUDGET.window_s)
        ]
        promise("budgets hold", kept=len(restarts) <= BUDGET.infrastructure + BUDGET.software)

    # --- what the world does ---

    def move(self) -> None:
        """A second passes: what is under way arrives, whole attempts step and save."""
        self.now += 1.0
        due = [a for at, a in self.under_way if at <= self.now]
        self.under_way = [(at, a) for at, a in self.under_way if at > self.now]
        for action in due:
            self.arrive(action)
        for number, ranks in self.ranks.items():
            if len(ranks) < LAYOUT.world or any(self.nodes[n][0] is not NodeState.UP for n in ranks.values()):
                continue
            last = self.steps[number].step if number in self.steps else self.came[number].start.step
            row = StepRow(number, last + 1, last * 8 + 8, last + 1, 0, 1.0, 0.1, None, 1.0, self.now, batch(last))
            self.firsts.setdefault(number, row)
            self.steps[number] = row
            name = f"a{number:04d}-i{row.step:07d}"
            for other in [c for c in self.saves.values() if c.attempt == number and c.phase is GOING]:
                self.saves[other.id] = replace(other, phase=DONE)
            if row.step % 5 == 0:
                self.saves[name] = CheckpointState(name, number, row.step, GOING, counters=counters(row.step))

    def arrive(self, action: Action) -> None:
        match action:
            case actions.Capture():
                self.capture = CaptureView(action.incident, done=True, kept=3, unknown=0)
            case actions.Check() if self.nodes[action.node][0] is NodeState.UP:
                self.looked[action.node] = action.incident
            case actions.Fence():
                self.fenced.add(action.attempt)
            case actions.Stop() if action.attempt in self.ranks:
                for rank, n in list(self.ranks[action.attempt].items()):
                    if self.nodes[n][0] is NodeState.UP:
                        self.end(action.attempt, rank, signal=9)
            case actions.MakeView():
                self.views[action.attempt] = action.checkpoint
            case actions.Launch() if action.attempt not in self.came:
                self.came[action.attempt] = action
                refused = action.attempt in self.fenced
                up = {r: n for r, n in enumerate(action.slots) if self.nodes[n][0] is NodeState.UP}
                self.ranks[action.attempt] = {} if refused else up
                self.exits[action.attempt] = (
                    [RankExit(r, n, action.attempt, self.now, 94) for r, n in up.items()] if refused else []
                )
            case actions.Seal() if self.saves[action.checkpoint].phase is DONE:
                done = replace(self.saves[action.checkpoint], phase=FULL, completed_at=self.now, manifest_hash="m")
                self.saves[action.checkpoint] = done
            case actions.Abandon():
                for one in action.checkpoints:
                    if self.saves[one].phase is GOING:
                        self.saves[one] = replace(self.saves[one], phase=CheckpointPhase.ABANDONED)
            case actions.Retain():
                for one in actions.superfluous(self.view(), action.keep, action.protect):
                    del self.saves[one]
            case _:
                pass

    def end(self, attempt: int, rank: int, **how: int) -> None:
        where = self.ranks[attempt].pop(rank)
        self.exits[attempt].append(RankExit(rank, where, attempt, self.now, how.get("code"), how.get("signal")))

    def fault(self, kind: str, which: int) -> None:
        """Something happens to a rank or a node, or a person says something."""
        name = NODES[which % len(NODES)]
        if kind in {"die", "fail"}:
            for number, ranks in self.ranks.items():
                if which % 3 in ranks and self.nodes[ranks[which % 3]][0] is NodeState.UP:
                    self.end(number, which % 3, **({"signal": 11} if kind == "die" else {"code": 1}))
        elif kind in {"lose", "freeze", "up"}:
            state = {"lose": NodeState.DOWN, "freeze": NodeState.SILENT, "up": NodeState.UP}[kind]
            self.nodes[name] = (state, self.now)
            for number, ranks in self.ranks.items():
                if state is NodeState.DOWN or number in self.fenced:  # the agent of a thawed node kills fenced ranks
                    for rank in [r for r, n in ranks.items() if n == name]:
                        del ranks[rank]
        elif kind == "approve" and isinstance(self.history.decision, Recover) and self.history.decision_digest:
            self.write([Approved(self.history.decision_digest, "li")])
        elif kind == "halt" and self.history.halted is None:
            self.write([HaltedEntry(Reason.PERSON_HALTED, "li", "", None)])
        elif kind == "resume" and self.history.halted is not None:
            self.write([Resumed("li", "go on")])

    def play(self, script: list[tuple[str, int, int]]) -> None:
        for kind, which, looks in script:
            if kind == "kill":
                self.look(killed_after=which)
            else:
                self.fault(kind, which)
            for _ in range(looks):
                self.look()


UNSEEN = False


def batch(step: int) -> Batch:
    return Batch(step * 8, 8, f"h{step}")


KINDS = ["die", "fail", "lose", "freeze", "up", "kill", "kill", "kill", "approve", "halt", "resume", "wait"]
events = st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 12))


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(["auto", "approve"]),
    st.lists(st.sampled_from([0.0, 1.0, LAG_S]), min_size=1, max_size=5),
    st.lists(events, max_size=25),
)
def test_the_promises_hold_whatever_happens(mode: str, lags: list[float], script: list[tuple[str, int, int]]) -> None:
    world = World(mode, lags)
    world.play([("wait", 0, 20), *script, ("wait", 0, 20)])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, LAG_S]), min_size=1, max_size=5), st.lists(events, max_size=25))
def test_when_the_faults_end_it_trains_or_says_why_not(lags: list[float], script: list[tuple[str, int, int]]) -> None:
    """Every node is back and every plan is approved: within ten minutes steps are made again, or it has halted."""
    world = World("approve", lags)
    world.play([("wait", 0, 20), *script, *(("up", n, 0) for n in range(len(NODES))), ("resume", 0, 0)])
    world.play([("approve", 0, 1)] * 600)
    number = world.history.attempt.number if world.history.attempt else 0
    steps = number in world.steps and world.steps[number].at >= world.now - 1.0
    assert steps or world.history.halted is not None


def test_the_toy_world_can_recover() -> None:
    """Or the promises would be kept by doing nothing."""
    world = World("auto", [1.0])
    world.play([("wait", 0, 30), ("die", 1, 30), ("lose", 1, 40), ("kill", 3, 40)])
    assert [i.closed for i in world.history.incidents] == [True, True]
    assert world.history.attempt is not None
    assert world.history.attempt.slots == ("n0", "n3", "n2")
    assert world.history.books.rolled_back > 0


def blind_to_old_ranks(history: History, view: View, rules: Rules) -> LOOK:
    """The fence and the stop are taken for done."""
    everyone = frozenset(range(1, 9))
    return history, replace(view, fenced=everyone, steps_running=frozenset()), rules


def believes_all_spares(history: History, view: View, rules: Rules) -> LOOK:
    assert not isinstance(view.nodes, str)
    return history, replace(view, nodes={n: replace(one, checked_for=99) for n, one in view.nodes.items()}), rules


def unfinished_is_completed(history: History, view: View, rules: Rules) -> LOOK:
    assert isinstance(view.checkpoints, tuple)
    lied = tuple(replace(c, phase=FULL, manifest_hash="m", completed_at=9e9) for c in view.checkpoints)
    return history, replace(view, checkpoints=lied), rules


def forgets_the_halt(history: History, view: View, rules: Rules) -> LOOK:
    return replace(history, halted=None), view, rules


def forgets_the_bars(history: History, view: View, rules: Rules) -> LOOK:
    number = history.incident.number if history.incident else 0
    return replace(history, bars=tuple(b for b in history.bars if b.incident == number)), view, rules


def spends_freely(history: History, view: View, rules: Rules) -> LOOK:
    much = BudgetRules(infrastructure=99, software=99, no_progress_attempts=99)
    anywhere = QuarantineRules(soon_steps=0)  # else a person is asked before the budget is spent
    return history, view, rules.model_copy(update={"budget": much, "quarantine": anywhere})


DEATHS = [("wait", 0, 20), *(("die", rank, 20) for rank in (0, 1, 2, 0, 1, 0, 1))]
LOSSES = [("wait", 0, 20), ("lose", 1, 20), ("up", 1, 5), ("lose", 0, 20)]
PLANTED = [
    ("one attempt has reachable ranks", blind_to_old_ranks, None, [("wait", 0, 20), ("die", 1, 20)]),
    ("only from a completed save", unfinished_is_completed, None, [("wait", 0, 7), ("die", 1, 20)]),
    ("a spare looks anew", believes_all_spares, None, [("wait", 0, 20), ("lose", 1, 20)]),
    ("halted stays halted", forgets_the_halt, None, [("wait", 0, 20), ("halt", 0, 0), ("die", 1, 20)]),
    ("slots hold distinct nodes that are not barred", forgets_the_bars, None, LOSSES),
    ("no effect without an intent", None, Intended, [("wait", 0, 5)]),
    ("budgets hold", spends_freely, None, DEATHS),
]


@pytest.mark.parametrize(("name", "plant", "drop", "script"), PLANTED, ids=[p[0] for p in PLANTED])
def test_each_check_fails_on_a_planted_fault(
    name: str, plant: Callable[..., LOOK] | None, drop: type | None, script: list[tuple[str, int, int]]
) -> None:
    World("auto", [0.0]).play(script)
    with pytest.raises(BrokenError, match=name):
        World("auto", [0.0], plant, drop).play(script)


def test_the_check_of_the_ledger_fails_on_a_close_that_is_lost() -> None:
    """The same entries, but for one close that tells of one update less."""
    world = World("auto", [0.0])
    world.play([("wait", 0, 20), ("die", 1, 1)])
    while not any(isinstance(s.entry, AttemptClosed) for s in world.stamped):
        world.look()
    at = next(i for i, s in enumerate(world.stamped) if isinstance(s.entry, AttemptClosed))
    world.history = fold_all(History(), [*world.stamped[: at + 1], world.stamped[at], *world.stamped[at + 1 :]])
    with pytest.raises(BrokenError, match="the ledger adds up"):
        world.check()
