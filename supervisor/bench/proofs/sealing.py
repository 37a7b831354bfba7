"""Sealing, retention, archiving and restoring are killed at every step, alone and in a crowd: no list ever names a broken save.

A completed save is always left, in the store or the archive. The same judge finds the faults of careless ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import connection
from typing import Any, Final

from policies.facts import CheckpointPhase
from supervisor.bench.proofs import sealers
from supervisor.bench.proofs.careless_seals import PLANTED
from supervisor.bench.proofs.sealers import BROKEN, KEEP, NEW, OLD, Operation, Scene, id_of, judge, named, run, states
from supervisor.bench.proofs.work import Work
from supervisor.checkpoints.posix import Step
from supervisor.errors import NotRestorable

SEALERS, PRUNERS, ARCHIVERS = 4, 2, 2
SAVES = 30
DEATHS = 80
WAIT_S: Final = 60.0
CROWD_S: Final = 600.0
"""So long at most the crowd is at work; then what it has not done fails its check."""
WELL: Final = "no list names a broken save, one is left"


def prove(work: Work, saves: int = SAVES, deaths: int = DEATHS) -> None:
    """Every step of each operation; a crowd; and what must be found out."""
    for case in cases(work):
        every_step(work, case, random.Random(work.seed))
    crowd(work, saves, deaths)
    for name, operation in PLANTED.items():
        planted(work, name, operation)


# --- one operation, killed at each step ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """An operation on a scene, and what must be so when it has been done to its end."""

    name: str
    scene: Scene
    operation: Operation
    done: Callable[[Scene], bool]


def cases(work: Work) -> list[Case]:
    """Scenes are made once; each kill has a copy of its own."""
    fresh = Scene(work.path("fresh"))
    fresh.make([*OLD, NEW], [BROKEN], [*OLD, NEW, BROKEN])
    for step in OLD:
        fresh.store().seal(id_of(step))
    archived = fresh.copy_to(work.path("archived"))
    for step in OLD:
        archived.archive(archived.store()).copy(id_of(step))
    lost = archived.copy_to(work.path("lost"))
    shutil.rmtree(lost.tree.root)
    lost.store().create()
    return [
        Case("seal", fresh, seal_all, lambda scene: named(scene) == [*map(id_of, (*OLD, NEW))]),
        Case("retention", fresh, prune, lambda scene: named(scene) == [*map(id_of, OLD[-KEEP:])]),
        Case("copy into the archive", fresh, copy_newest, lambda scene: kept(scene) == {id_of(OLD[-1])}),
        Case("retention of the archive", archived, prune_archive, lambda scene: kept(scene) == {id_of(OLD[-1])}),
        Case("restore from the archive", lost, restore_newest, lambda scene: named(scene) == [id_of(OLD[-1])]),
    ]


def seal_all(scene: Scene, step: Step) -> None:
    """Judge whatever has not been judged."""
    store = scene.store(step)
    for state in states(store):
        if state.phase is CheckpointPhase.FRAMEWORK_DONE:
            store.seal(state.id)
    store.create()  # what died between a mark and the list is healed, as at each start of a controller


def prune(scene: Scene, step: Step) -> None:
    """Retention."""
    store = scene.store(step)
    store.retain(KEEP)
    store.create()


def copy_newest(scene: Scene, step: Step) -> None:
    """The newest completed save goes into the archive."""
    store = scene.store(step)
    scene.archive(store, step).copy(id_of(OLD[-1]))


def prune_archive(scene: Scene, step: Step) -> None:
    """The archive keeps one."""
    scene.archive(scene.store(step), step).retain(1)


def restore_newest(scene: Scene, step: Step) -> None:
    """The newest copy comes back."""
    scene.archive(scene.store(step), step).restore(id_of(OLD[-1]))


def kept(scene: Scene) -> set[str]:
    """What the archive lists as completed."""
    return sealers.archive_faults(scene, scene.truth())[0]


def every_step(work: Work, case: Case, rng: random.Random, stride: int = 1) -> None:
    """Kill it at each step, and what is started again at another; then let it end."""
    steps = steps_of(work, case)
    faults: list[str] = []
    killed = unfinished = 0
    for at in range(0, len(steps), stride):
        scene = case.scene.copy_to(work.path("killed"))
        killed += run(case.operation, scene, at) == -9
        faults += [f"{steps[at]}: {fault}" for fault in judge(scene)]
        killed += run(case.operation, scene, rng.randrange(len(steps))) == -9
        faults += [f"{steps[at]}, killed again: {fault}" for fault in judge(scene)]
        ended = run(case.operation, scene) == 0
        faults += [f"{steps[at]}, ended: {fault}" for fault in judge(scene)]
        unfinished += not (ended and case.done(scene))
        shutil.rmtree(scene.root)
    tried = len(range(0, len(steps), stride))
    work.measured[case.name] = {"steps": len(steps), "deaths": killed}
    told = faults[:3] or WELL
    work.check(
        f"{case.name}: killed at {tried} of {len(steps)} steps, {killed} deaths: {told}",
        ok=not faults and killed >= tried,
    )
    work.check(
        f"{case.name}: done again, it ends as if nothing had been: {tried - unfinished} times", ok=not unfinished
    )


def steps_of(work: Work, case: Case) -> list[str]:
    """The names of its steps, in order, on a scene of its own."""
    scene, log = case.scene.copy_to(work.path("counted")), work.path("steps")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(log)
    run(case.operation, scene, log=log)
    shutil.rmtree(scene.root)
    with open(log, encoding="utf-8") as file:
        return file.read().splitlines()


# --- all at once ---------------------------------------------------------------------------------------------------------


def forever(operation: Operation, scene: Scene, step: Step) -> None:
    """The operation again and again, until the scene says that it is over. What is gone meanwhile is no fault."""
    over = os.path.join(scene.root, "over")
    idle = threading.Event()
    while not os.path.exists(over):
        with contextlib.suppress(OSError, NotRestorable):
            operation(scene, step)
        idle.wait(sealers.IDLE_S)


def archive_some(scene: Scene, step: Step) -> None:
    """The newest completed save into the archive; then its retention."""
    store = scene.store(step)
    archive = scene.archive(store, step)
    done = [state.id for state in states(store) if state.phase is CheckpointPhase.COMPLETED]
    if done:
        archive.copy(done[-1])
    archive.retain(2)


ROLES: Final[Mapping[str, tuple[Operation, int]]] = {
    "sealer": (partial(forever, seal_all), SEALERS),
    "pruner": (partial(forever, prune), PRUNERS),
    "archiver": (partial(forever, archive_some), ARCHIVERS),
}


@dataclass
class Crew:
    """The processes at work. Each dies at a step that is drawn; one that is dead is replaced."""

    scene: Scene
    rng: random.Random
    deaths_left: int
    deaths: int = 0
    crashed: list[str] = field(default_factory=list)
    working: dict[Any, tuple[str, Operation]] = field(default_factory=dict)

    def hire(self, role: str, operation: Operation) -> None:
        """One more."""
        at = self.rng.randrange(3, 80) if self.deaths_left > 0 else None
        child = sealers.context().Process(target=sealers.perform, args=(operation, self.scene.root, None, at))
        child.start()
        self.working[child] = (role, operation)

    def replace_the_dead(self, wait_s: float) -> None:
        """Wait for a death, no longer than `wait_s`, and hire again."""
        over = connection.wait([child.sentinel for child in self.working], wait_s)
        for child in [child for child in self.working if child.sentinel in over]:
            child.join()
            role, operation = self.working.pop(child)
            if child.exitcode == -9:
                self.deaths += 1
                self.deaths_left -= 1
            else:
                self.crashed.append(f"{role} ended with {child.exitcode}")
            self.hire(role, operation)

    def dismiss(self) -> None:
        """Have all of them end."""
        with open(os.path.join(self.scene.root, "over"), "w", encoding="ascii"):
            pass
        for child in self.working:
            child.join(WAIT_S)
            if child.exitcode is None:
                child.kill()
                child.join()
                self.crashed.append(f"{self.working[child][0]} did not end")


def crowd(work: Work, saves: int, deaths: int) -> None:
    """Saves are written, good and broken; sealers, pruners and archivers are killed at random, and the judge looks all the time."""
    rng = random.Random(work.seed)
    steps = range(10, 10 * saves + 10, 10)
    bad = [step for step in steps if rng.random() < 0.25 and step not in (steps[0], steps[-1])]
    scene = Scene(work.path("crowd"))
    scene.make([step for step in steps if step not in bad], bad)
    crew = Crew(scene, rng, deaths)
    for role, (operation, count) in ROLES.items():
        for _ in range(count):
            crew.hire(role, operation)
    left, looks, until, begun = list(steps), 0, work.seconds + CROWD_S, False
    faults: list[str] = []
    try:
        while (left or crew.deaths_left > 0 or not settled(scene, steps)) and work.seconds < until and not faults:
            if left:
                step = left.pop(0)
                scene.write(step, broken=step in bad)
            crew.replace_the_dead(sealers.IDLE_S)
            faults += judge(scene, least=int(begun), deep=False)
            begun = begun or bool(named(scene))
            looks += 1
    finally:
        crew.dismiss()
    prune(scene, lambda _: None)
    faults += judge(scene)
    at_last = named(scene) or []
    good = [id_of(step) for step in steps if step not in bad]
    work.measured["crowd"] = {
        "saves": saves,
        "broken": len(bad),
        "deaths": crew.deaths,
        "looks": looks,
        "kept": at_last,
    }
    what = f"{SEALERS} sealers, {PRUNERS} pruners, {ARCHIVERS} archivers, {crew.deaths} of them killed"
    work.check(f"{what}: {looks} looks: {faults[:3] or WELL}", ok=not faults)
    work.check(f"{what}: nobody ends otherwise {crew.crashed[:3]}", ok=not crew.crashed and crew.deaths >= deaths)
    work.check(f"{what}: what is kept are the newest {KEEP} that were whole", ok=set(at_last) == set(good[-KEEP:]))


def settled(scene: Scene, steps: Sequence[int]) -> bool:
    """Is something final said of each save?"""
    final = {CheckpointPhase.COMPLETED, CheckpointPhase.BROKEN, CheckpointPhase.ABANDONED}
    seen = {state.id: state.phase for state in states(scene.store())}
    gone = set(os.listdir(scene.tree.deleted))
    return all(id_of(step) in gone or seen.get(id_of(step)) in final for step in steps)


# --- careless ones -------------------------------------------------------------------------------------------------------


def planted(work: Work, name: str, operation: Operation) -> None:
    """A careless one is found out at one step at least, and nothing was wrong before."""
    scene = Scene(work.path("fresh"))
    case = Case(name, scene, operation, lambda _: True)
    calm = judge(scene)
    found: list[str] = []
    for at, step in enumerate(steps_of(work, case)):
        copy = scene.copy_to(work.path("killed"))
        run(operation, copy, at)
        found += [f"{step}: {fault}" for fault in judge(copy)]
        shutil.rmtree(copy.root)
    work.check(f"planted: {name}, is found out: {found[:1]}", ok=bool(found) and not calm)
    work.measured.setdefault("planted", {})[name] = json.dumps(found[:3])
