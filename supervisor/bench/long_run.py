"""A long run as facts: what its journal says after weeks, and what the whole of it shows at one moment.

It stands for the reference run: TP8 x PP8 x DP80 on 640 nodes of 8, 16 spares, 76 days, a save an hour.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.decisions import Contain, Recover
from policies.facts import (
    AttemptView,
    Batch,
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
    SaveCost,
    StepRow,
    View,
)
from policies.history import Diagnosis, History, Trouble
from policies.layout import Layout
from policies.reasons import Reason
from supervisor import actions
from supervisor.journal import entries as e

LAYOUT = Layout(8, 8, 80, 8)
NODES = 640
SPARES = 16
STEPS_A_SAVE = 400
SAVES_AN_INCIDENT = 17
"""76 days with a save an hour and 100 incidents: about 17 saves from one incident to the next."""


def _name(number: int) -> str:
    return f"n{number:04d}"


def _counters(step: int) -> Counters:
    return Counters(step, step * 2048, step, 0, 1.42e-4)


def _done(action: actions.Action) -> tuple[e.Entry, ...]:
    return e.Intended(action), e.Settled(actions.key(action), "seen")


def _saves(attempt: int, first: int) -> Iterator[e.Entry]:
    """The saves of one attempt, each begun, sealed and paid for with an older one."""
    for step in range(first, first + SAVES_AN_INCIDENT * STEPS_A_SAVE, STEPS_A_SAVE):
        name = f"a{attempt:04d}-i{step:07d}"
        yield from _done(actions.Begin((name,)))
        yield from _done(actions.Seal(name))
        yield e.CheckpointCompleted(SaveCost(name, 7 << 40, 1.5, 240.0, 410.0, 19.2), step)
        yield from _done(actions.Retain(name, 3, (name,)))


def _start(attempt: int, slots: tuple[str, ...], saved: tuple[str, int] | None, incident: int | None) -> list[e.Entry]:
    """The plan of an attempt, its launch and its acceptance."""
    name, step = saved or (None, 0)
    swaps = ((417, _name(417), slots[417]),) if incident else ()
    plan = Recover(
        reason=Reason.NODE_LOST if incident else Reason.FIRST_START,
        incident=incident,
        fault=FaultClass.NODE_LOST if incident else None,
        died=True,
        stops=None,
        attempt=attempt,
        slots=slots,
        bars=(_name(417),) if incident else (),
        checkpoint=name,
        checkpoint_step=step,
        manifest_hash="5f" * 32 if name else None,
        swaps=swaps,
        redo_steps=120,
        start=_counters(step) if name else None,
    )
    launch = actions.Launch(attempt, 1, slots, name, _counters(step), incident)
    told: list[e.Entry] = [e.Decided(plan, "8f3a1c" * 5), *_done(actions.MakeView(attempt, name)), *_done(launch)]
    return [*told, e.AttemptAccepted(attempt, limited=False, text="all ranks as in the manifest")]


def _incident(number: int, attempt: int, frontier: int) -> Iterator[e.Entry]:
    """From the loss of a node until nothing of the attempt is left."""
    node = _name(417)
    text = f"rank 3338 on {node} ended by SIGKILL; NVRM: Xid 79, GPU has fallen off the bus"
    trouble = Trouble(FaultClass.NODE_LOST, Reason.NODE_LOST, 1e9, attempt, True, text, (3338,), (node,))
    first = Finding(attempt, "xid-79", "root", "gpu.lost", text, rank=3338, node=node, wall=1e9, monotonic=8e4)
    yield e.IncidentOpened(number, attempt, trouble, 1e9, 1e9, frontier, frontier * 2048, None)
    yield e.Decided(Contain(Reason.NODE_LOST, number, attempt, died=True), "c0ffee" * 5)
    yield from _done(actions.Capture(number, attempt, stacks=False))
    yield e.IncidentMarked(number, "evidence", "5112 ranks, 8 unknown")
    yield e.Diagnosed(number, Diagnosis((first,), (node,), "gpu.lost", (frontier * 2048, 2048), 0.9, "5112 timeouts"))
    yield from _done(actions.Fence(attempt))
    yield from _done(actions.Stop(attempt))
    yield e.AttemptClosed(attempt, _counters(frontier))
    yield from _done(actions.Bar((node,), number, 86_400.0))


def long_run(count: int) -> list[e.Entry]:
    """The first `count` entries of a long run: saves by the hour, and now and then a lost node and a restart."""
    slots = tuple(_name(i) for i in range(NODES))
    found: list[e.Entry] = [e.RunStarted("llm500b", "auto", LAYOUT.tp, LAYOUT.pp, LAYOUT.dp, LAYOUT.ranks_per_node)]
    for node in range(NODES + SPARES):
        found += _done(actions.StartAgent(_name(node)))
    found += _start(1, slots, None, None)
    attempt = 1
    step = STEPS_A_SAVE
    while len(found) < count:
        found += _saves(attempt, step)
        step += SAVES_AN_INCIDENT * STEPS_A_SAVE
        found += _incident(attempt, attempt, step - 280)
        spare = _name(NODES + attempt % SPARES)
        saved = f"a{attempt:04d}-i{step - STEPS_A_SAVE:07d}", step - STEPS_A_SAVE
        attempt += 1
        found += _start(attempt, (*slots[:417], spare, *slots[418:]), saved, attempt - 1)
        found += [e.IncidentClosed(attempt - 1, step - STEPS_A_SAVE + 1), e.CaughtUp(attempt - 1, attempt, None)]
    return found[:count]


def view_of(history: History, now: float) -> View:
    """The whole run as it trains: 5,120 ranks in their places, loaded from what the manifest says."""
    attempt = history.attempts[-1]
    nodes = {n: NodeView(n, NodeState.UP, 0.0, True, now) for n in (_name(i) for i in range(NODES + SPARES))}
    step, world = attempt.start_step, LAYOUT.world
    batch = Batch(step * 2048, 2048, "9c" * 16)
    loaded = {
        rank: Loaded(
            rank,
            attempt.slots[LAYOUT.slot_of(rank)],
            attempt.number,
            LAYOUT.place(rank),
            attempt.checkpoint or "",
            _counters(step),
            "ab" * 16,
            batch,
        )
        for rank in range(world)
    }
    row = StepRow(attempt.number, step + 1, (step + 1) * 2048, step + 1, 0, 2.1, 1.4e-4, 0.3, 19.0, now, batch)
    shown = AttemptView(
        attempt.number,
        True,
        frozenset(range(world)),
        loaded=loaded,
        phases={Phase.STEP: world},
        frontier=step + 1,
        first_step=row,
        last_step=row,
        last_advance=now,
        phase=Phase.STEP,
        phase_since=now - 60,
        slowest_step_s=20.0,
    )
    saves = tuple(
        CheckpointState(name, attempt.number, step, CheckpointPhase.COMPLETED, now, now, "5f" * 32, _counters(step))
        for name in history.completed[-3:]
    )
    ranks = range(world)
    expected = Expected(
        attempt.checkpoint or "", _counters(step), dict.fromkeys(ranks, "ab" * 16), dict.fromkeys(ranks, batch)
    )
    return View(
        nodes=nodes,
        attempt=shown,
        checkpoints=saves,
        expected=expected,
        launched=frozenset({attempt.number}),
        steps_running=frozenset({attempt.number}),
        cluster_as_of=now,
        store_as_of=now,
    )
