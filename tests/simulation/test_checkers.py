"""Each promise has a checker, and each checker is seen to catch a planted fault. docs/checkers.md is made of this table."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import plants
import pytest

from policies.rules import BudgetRules
from supervisor.bench.checkers import PROMISES
from supervisor.bench.job_words import job_requeued, preempted
from supervisor.bench.simulate import Outcome, Scenario, every, tell
from supervisor.bench.words import (
    at,
    drain,
    falls_ill,
    kill_controller,
    late_requests,
    lose,
    newest_copy_rots,
    person,
    rank_dies,
    store_lost,
)
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.desk import Person
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job
from supervisor.bench.world.points import Points
from supervisor.bench.world.world import Plant

TABLE = Path(__file__).parents[2] / "docs" / "checkers.md"
JOB = Job(save_every=30)
GIVEN = Given(job=JOB)
HELD = GIVEN.but(allocation=Allocation(waits_s=120))


@dataclass(frozen=True)
class Planted:
    """The fault, the story in which it shows, and how it is planted."""

    promise: int
    fault: str
    scenario: Scenario
    plant: Callable[[], Plant]


def story(*when: object, given: Given = GIVEN, until: str = "09:12") -> Scenario:
    return Scenario("planted", "", given, when, (), until)  # type: ignore[arg-type]


def _tight() -> Given:
    return GIVEN.but(rules=profile("auto").model_copy(update={"budget": BudgetRules(infrastructure=1, software=1)}))


RANK, NODE = at("09:05", rank_dies(3)), at("09:05", lose(slot=4))
PLANTED = (
    Planted(
        1,
        "savers that do not ask before they publish",
        story(
            at("09:05", late_requests("stop", 90.0), person("halt", "smoke in the hall")),
            given=GIVEN.but(job=Job(save_every=30, write_s=58.0)),
        ),
        plants.PublishesBehindTheFence,
    ),
    Planted(2, "a store that calls a save in progress completed", story(at("09:04:15", rank_dies(3))), plants.AnySave),
    Planted(
        2,
        "an archive that gives back what it does not look at",
        story(at("09:05", newest_copy_rots(), store_lost()), RANK, given=GIVEN.but(archive=True)),
        plants.GivesBackAnything,
    ),
    Planted(3, "a launch that exchanges two slots", story(RANK), lambda: plants.EffectPlant(plants._exchanged)),
    Planted(
        3,
        "a spare that is believed to be well because it was asked",
        story(at("09:04", falls_ill("n0008")), NODE),
        lambda: plants.EffectPlant(plants._believed),
    ),
    Planted(4, "a seal that also abandons", story(), lambda: plants.EffectPlant(plants._unasked)),
    Planted(5, "the latest error wins", story(RANK), plants.LatestWins),
    Planted(6, "a halt that lifts itself", story(NODE, given=GIVEN.but(spares=0)), plants.LiftsItself),
    Planted(
        7,
        "a controller that forgets the restarts before it",
        story(at("09:03", rank_dies(1)), at("09:05", kill_controller()), at("09:06", rank_dies(2)), given=_tight()),
        plants.Amnesia,
    ),
    Planted(8, "updates that were never made", story(RANK), plants.Embezzled),
    Planted(9, "an innocent node barred beside the guilty one", story(NODE), plants.Scapegoat),
    Planted(10, "a bar over a drain of somebody else", story(at("09:04", drain("n0004")), NODE), plants.Overwrites),
    Planted(11, "retention that keeps nothing", story(), lambda: plants.EffectPlant(plants._deletes)),
    Planted(
        11,
        "an archive whose retention keeps nothing",
        story(given=GIVEN.but(archive=True)),
        plants.ForgetsItsCopies,
    ),
    Planted(
        12,
        "a plan that counts as approved when it is made",
        story(NODE, given=GIVEN.but(rules=profile("approve"), person=Person(answers_s=None))),
        plants.ApprovesItself,
    ),
    Planted(13, "a launch in a job that waits", story(at("09:05", job_requeued()), given=HELD), plants.AlwaysRunning),
    Planted(
        13,
        "a request for the next job that goes through twice",
        story(at("09:05", preempted(120)), given=HELD),
        plants.FollowedTwice,
    ),
    Planted(
        13,
        "another job that is asked for with each launch",
        story(given=HELD),
        lambda: plants.EffectPlant(plants._greedy),
    ),
)


def caught(outcome: Outcome) -> set[int]:
    return {broken.number for broken in outcome.broken}


@pytest.mark.parametrize("one", PLANTED, ids=lambda p: f"{p.promise} {p.fault}")
def test_a_planted_fault_is_caught(one: Planted) -> None:
    assert one.promise in caught(tell(one.scenario, plant=one.plant()))


@pytest.mark.parametrize("one", PLANTED, ids=lambda p: f"{p.promise} {p.fault}")
def test_without_it_the_same_story_breaks_nothing(one: Planted) -> None:
    outcome = tell(one.scenario)
    assert caught(outcome) == set(), outcome.why()


def test_an_entry_that_the_disk_has_lost_is_missed() -> None:
    """Promise 0: what was shown as written must be there for the next controller."""

    class Lossy(plants.LogPlant):
        def log(self, log: object) -> object:  # type: ignore[override]
            class Forgets(plants.Changed):
                def append(self, entries, at):
                    stamped = super().append(entries, at)
                    if any(one.entry.kind == "settled" for one in stamped):
                        seen = log._seen
                        seen([replace(stamped[-1], number=stamped[-1].number + 1, entry=stamped[-1].entry)])
                    return stamped

            return Forgets(log, lambda entry: [entry])  # type: ignore[arg-type]

    outcome = tell(story(at("09:03", rank_dies(1)), at("09:05", kill_controller())), plant=Lossy())
    assert 0 in caught(outcome), outcome.why()


def test_every_promise_is_planted() -> None:
    assert {p.promise for p in PLANTED} | {0} == {one.number for one in PROMISES}


def table() -> str:
    titles = {one.number: one.title for one in PROMISES}
    lines = [
        "# What is checked, and what was planted",
        "",
        "Made by `tests/simulation/test_checkers.py` (`RELIGHT_WRITE=1` writes it anew). Every checker looks on at every turn",
        "of every simulated run (`supervisor/bench/checkers.py`); for each, a fault was planted that it catches.",
        "",
        "| promise | what it says | the planted fault |",
        "|---|---|---|",
        f"| 0 | {titles[0]} | an entry that was shown and is not on the disk |",
    ]
    lines += [f"| {p.promise} | {titles[p.promise]} | {p.fault} |" for p in PLANTED]
    return "\n".join(lines) + "\n"


def test_the_table_in_docs_is_the_one_that_is_tested() -> None:
    if os.environ.get("RELIGHT_WRITE"):
        TABLE.write_text(table())
    assert TABLE.read_text() == table()


def test_there_is_a_scenario_for_all_that_the_issue_lists() -> None:
    assert len(every()) >= 40
    assert Points().passed == 0
