"""Worlds, faults and profiles drawn from a seed. First anything may go wrong; then the faults stop, and it must come to rest.

At rest means: the run makes new updates, or it has halted and says why, or it waits for a person who has been told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from policies.layout import Layout
from supervisor.bench import swarm_jobs
from supervisor.bench.checkers import Checkers
from supervisor.bench.simulate import Outcome, run_guarded
from supervisor.bench.swarm_jobs import JOB_FAULTS
from supervisor.bench.world.cluster import Delays
from supervisor.bench.world.desk import Person
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Curse, Job
from supervisor.bench.world.machines import Power
from supervisor.bench.world.points import Points
from supervisor.bench.world.store import SAVE_BYTES
from supervisor.bench.world.timeline import clock
from supervisor.bench.world.world import SimWorld

SAFETY_S: Final = 900.0
"""Anything may go wrong for so long."""
LIVENESS_S: Final = 3_600.0
"""After the last fault it must have come to rest within this."""
LOOK_S: Final = 60.0
RESTED: Final = 3
_LAYOUTS: Final = (Layout(1, 1, 4, 1), Layout(2, 1, 2, 2), Layout(2, 2, 2, 1), Layout(1, 2, 3, 1))
Fault = Callable[[SimWorld, Random], None]


def _slot(world: SimWorld, rng: Random) -> str:
    return rng.choice(world.given.node_names)


def _some_save(world: SimWorld, rng: Random, do: Callable[[str], None]) -> None:
    done = world.store.completed()
    if len(done) > 1:  # with the last one lost nothing but a halt is left, and that is a scenario of its own
        do(rng.choice(done).id)


def _delay(world: SimWorld, rng: Random) -> None:
    kind, lag = rng.choice(["exit", "finding", "step", "save", "loaded", "captured"]), rng.choice([0.0, 2.0, 20.0])
    for agent in world.agents.values():
        agent.lag_s[kind] = lag


def _away(world: SimWorld, rng: Random) -> None:
    seconds = rng.choice([5.0, 60.0, 300.0])
    world.cluster.away_until = world.time.now + seconds
    world.cluster.note_change()
    world.time.after(seconds, world.cluster.note_change)


def _freeze(world: SimWorld, rng: Random) -> None:
    node = _slot(world, rng)
    world.freeze_node(node)
    world.time.after(rng.choice([1.0, 4.0, 30.0, 200.0]), lambda: world.thaw_node(node))


def _lose(world: SimWorld, rng: Random) -> None:
    node = _slot(world, rng)
    if world.cluster.nodes[node].power is Power.UP:
        world.lose_node(node)
        if rng.random() < 0.6:
            world.time.after(rng.choice([20.0, 200.0]), lambda: world.return_node(node, bad=rng.random() < 0.2))


def _curse(world: SimWorld, rng: Random) -> None:
    what = rng.choice(["rank-dies", "rank-fails", "stuck", "nan", "off"])
    where: dict[str, Any] = rng.choice(
        [
            {"node": _slot(world, rng), "steps": 5},
            {"slot": rng.randrange(world.given.layout.slots_needed), "steps": 7},
            {"sample": world.given.job.batch * rng.randrange(20, 300)},
        ]
    )
    world.training.curses.append(
        Curse(what, times=rng.choice([1, 2, 5]), by=0.05, words=("RuntimeError: shapes differ",), **where)
    )


FAULTS: Final[dict[str, Fault]] = {
    "rank": lambda w, r: w.training.rank_dies(r.randrange(w.given.layout.world), signal=r.choice([6, 9, 11])),
    "error": lambda w, r: w.training.rank_raises(r.randrange(w.given.layout.world), "ValueError", "bad sample"),
    "stuck": lambda w, r: w.training.rank_sticks(r.randrange(w.given.layout.world)),
    "lose": _lose,
    "freeze": _freeze,
    "drain": lambda w, r: w.drain_node(_slot(w, r)),
    "store": lambda w, r: w.store.away(r.choice([3.0, 40.0, 200.0])),
    "slurm": _away,
    "lost": lambda w, r: w.cluster.lose.update({r.choice(["launch", "stop"]): 1}),
    "late": lambda w, r: w.cluster.late.update({r.choice(["launch", "stop"]): r.choice([0.0, 10.0, 45.0])}),
    "rot": lambda w, r: _some_save(w, r, w.store.rot),
    "vanish": lambda w, r: _some_save(w, r, w.store.vanish),
    "delay": _delay,
    "kill": lambda w, _: w.kill_controller(),
    "second": lambda w, _: w.second_controller(),
    "stranger": lambda w, _: w.stranger(),
    "pause": lambda w, _: w.desk.file("pause", why="look"),
    "resume": lambda w, _: w.desk.file("resume", why="go on"),
    "halt": lambda w, _: w.desk.file("halt", why="stop it"),
    "curse": _curse,
}


def _copy_rots(world: SimWorld, rng: Random) -> None:
    whole = world.archive.whole()
    if len(whole) > 1:
        world.archive.rot(rng.choice(whole).save.id)


ARCHIVE_FAULTS: Final[dict[str, Fault]] = {
    "archive": lambda w, r: w.archive.away(r.choice([3.0, 40.0, 400.0])),
    "hang": lambda w, r: w.archive.hang(r.choice([3.0, 100.0, 1000.0])),
    "full": lambda w, r: w.archive.fail(r.choice([40.0, 400.0])),
    "copy": _copy_rots,
    "all": lambda w, _: w.store.lose_all() if w.archive.whole() else None,
    "room": lambda w, r: w.store.leaves(int(r.choice([0.5, 1.5, 100.0]) * SAVE_BYTES)),
}
"""Of worlds that have an archive, beside the others."""


def _ill(world: SimWorld, rng: Random) -> None:
    """It breaks where no rank shows it; a look finds it."""
    world.cluster.nodes[_slot(world, rng)].fault = "GPU 3 has fallen off the bus"


def _blind(world: SimWorld, rng: Random) -> None:
    """No look at it ends, for a while."""
    node = world.cluster.nodes[_slot(world, rng)]
    node.hangs = True

    def over() -> None:
        node.hangs = False

    world.time.after(rng.choice([1.0, 30.0, 400.0]), over)


def _rights(world: SimWorld, rng: Random) -> None:
    world.cluster.may_drain = rng.random() < 0.3


SPARE_FAULTS: Final[dict[str, Fault]] = {"ill": _ill, "blind": _blind, "rights": _rights}
"""Of some worlds, beside the others."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a seed has drawn."""

    given: Given
    faults: tuple[tuple[float, str], ...]
    kills: frozenset[int]


def draw(seed: int, *, jobs: bool = True) -> Drawn:
    """The world, the profile, the person, the faults and when, and where the controller dies. Without `jobs`: in no job."""
    rng = Random(seed)
    layout = rng.choice(_LAYOUTS)
    job = Job(
        step_s=rng.choice([0.5, 2.0, 5.0]),
        batch=8 * layout.dp,
        start_s=rng.choice([1.0, 8.0]),
        load_s=rng.choice([2.0, 20.0]),
        save_every=rng.choice([10, 30]),
        write_s=rng.choice([1.0, 15.0]),
    )
    answers = rng.choice([5.0, 60.0, 400.0])
    person = Person(
        answers_s=answers,
        refuses=rng.random() < 0.1,
        wrong_first=rng.random() < 0.2,
        resumes_s=rng.choice([None, 60.0]),
    )
    given = Given(
        layout=layout,
        spares=rng.randrange(4),
        job=job,
        rules=profile(rng.choice(["auto", "auto", "approve"]), quarantine={"bar_s": rng.choice([None, 120.0])}),
        delays=Delays(
            launch_s=rng.choice([0.1, 3.0]),
            show_s=rng.choice([0.0, 0.5, 3.0]),
            stop_s=rng.choice([0.1, 4.0]),
            silent_s=rng.choice([1.0, 5.0]),
            down_s=rng.choice([6.0, 60.0]),
        ),
        person=person,
        seal_s=rng.choice([0.5, 20.0]),
        view_s=rng.choice([0.1, 5.0]),
        lag_s=4.0,
        skew_s=rng.choice([0.0, 1.0, 100.0]),
        store_lag_s=rng.choice([0.0, 5.0]),
        twice=rng.random() < 0.2,
    )
    mix = rng.sample(sorted(FAULTS), rng.randrange(1, 7))  # each seed knows few kinds, and those well
    count = rng.randrange(1, 15)
    faults = sorted((rng.uniform(20.0, SAFETY_S), rng.choice(mix)) for _ in range(count))
    kills = frozenset(rng.randrange(1_500) for _ in range(rng.choice([0, 0, 1, 4, 20])))
    drawn = _with_looks(_with_archive(Drawn(given, tuple(faults), kills), seed), seed)
    return _with_job(drawn, seed) if jobs else drawn


def _with_looks(drawn: Drawn, seed: int) -> Drawn:
    """In some worlds machines break unseen, looks at them hang, or the user may not drain. Drawn apart, as the archive is."""
    rng = Random(f"looks {seed}")
    if rng.random() > 0.4:
        return drawn
    more = [(rng.uniform(20.0, SAFETY_S), rng.choice(sorted(SPARE_FAULTS))) for _ in range(rng.randrange(1, 6))]
    return replace(drawn, faults=tuple(sorted((*drawn.faults, *more))))


def _with_job(drawn: Drawn, seed: int) -> Drawn:
    """In some worlds a job holds the nodes. Drawn apart too."""
    found = swarm_jobs.in_some(drawn.given, seed, SAFETY_S)
    if found is None:
        return drawn
    given, more = found
    return Drawn(given, tuple(sorted((*drawn.faults, *more))), drawn.kills)


def _with_archive(drawn: Drawn, seed: int) -> Drawn:
    """Some worlds have one, and more that may go wrong. Drawn apart, so that the others stay as they were."""
    rng = Random(f"with {seed}")
    if rng.random() > 0.3:
        return drawn
    often = {"archive_every_s": rng.choice([60.0, 240.0]), "reread_every_s": rng.choice([60.0, 86_400.0])}
    rules = drawn.given.rules
    given = drawn.given.but(
        archive=True,
        rules=rules.model_copy(update={"checkpoint": rules.checkpoint.model_copy(update=often)}),
        copy_s=rng.choice([1.0, 40.0]),
        restore_s=rng.choice([1.0, 60.0]),
    )
    mix = rng.sample(sorted(ARCHIVE_FAULTS), rng.randrange(1, 4))
    more = [(rng.uniform(60.0, SAFETY_S), rng.choice(mix)) for _ in range(rng.randrange(1, 6))]
    return Drawn(given, tuple(sorted((*drawn.faults, *more))), drawn.kills)


def swarm_one(seed: int, *, jobs: bool = True) -> Outcome:
    """One seed, to its end."""
    drawn = draw(seed, jobs=jobs)
    watch = Checkers()
    world = SimWorld(drawn.given, seed, Points(drawn.kills), watch)
    watch.world = world
    begin, apart, looks, held = clock(drawn.given.start), Random(seed), Random(seed), Random(seed)

    def hit(name: str) -> None:
        if name in FAULTS:
            FAULTS[name](world, world.rng)
        elif name in SPARE_FAULTS:
            SPARE_FAULTS[name](world, looks)
        elif name in JOB_FAULTS:
            JOB_FAULTS[name](world, held)
        else:
            ARCHIVE_FAULTS[name](world, apart)

    def play() -> None:
        for when, name in drawn.faults:
            world.time.at(begin + when, lambda name=name: hit(name))  # type: ignore[misc]
        world.begin()
        world.run_until(begin + SAFETY_S, lambda: world.code is not None)
        calm(world)
        _settle(world, watch)

    return run_guarded(f"seed-{seed}", seed, world, watch, play, (_at_rest,))


def _settle(world: SimWorld, watch: Checkers) -> None:
    """Go on until it has been at rest for two looks, or the time is over."""
    until, rested = world.time.now + LIVENESS_S, 0
    while world.time.now < until and rested < RESTED and world.code is None and not watch.found:
        world.run_until(world.time.now + LOOK_S, lambda: world.code is not None)
        rested = rested + 1 if _at_rest(world, watch.history) is None else 0


def calm(world: SimWorld) -> None:
    """The faults stop: what is frozen thaws, what is away comes back, nothing new goes wrong."""
    world.cluster.lose.clear()
    swarm_jobs.lasts(world)
    if world.given.archive:
        world.archive.recover()
        world.store.leaves(100 * SAVE_BYTES)
    world.cluster.late.clear()
    world.training.curses = [c for c in world.training.curses if c.sample is not None]  # poisoned data stays poisoned
    world.points.stop()
    for agent in world.agents.values():
        agent.lag_s.clear()
    for name, node in world.cluster.nodes.items():
        if node.power is Power.FROZEN:
            world.thaw_node(name)


def _at_rest(world: SimWorld, history: Any) -> str | None:
    """New updates, a halt that says why, the end, or a person who was told and has not answered well."""
    newest = world.training.newest
    if world.code is not None or history.halted is not None or history.paused:
        return None
    if (why := swarm_jobs.unrest(world, history)) is not None:
        return f"not at rest: {why}"
    if history.ended:
        return None
    if newest is not None and newest.moving and history.incident is None:
        return None
    if world.given.person.refuses or history.stop_asked:
        return None
    barred = history.barred(world.time.now)
    job = world.cluster.job
    held = (
        world.cluster.nodes.values()
        if job is None
        else [world.cluster.nodes[n] for n in job.shown if n not in job.left]
    )
    usable = [n for n in held if n.power is Power.UP and not n.drained_by and n.name not in barred]
    if len(usable) < world.given.layout.slots_needed:
        return None  # it waits for nodes: somebody has drained them, or they are gone
    told = [notice.title for _, notice in world.desk.notices[-1:]]
    where = f"incident {history.incident.number} ({history.incident.fault})" if history.incident else "no incident"
    return f"not at rest {LIVENESS_S:.0f} s after the last fault: {where}, decision {type(history.decision).__name__}, told {told}"
