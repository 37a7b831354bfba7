"""Whoever sleeps is woken again, and then others; once each, whatever becomes of the controller. In the simulated world."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from policies.history import History
from supervisor.bench import simulate
from supervisor.bench.words import at, kill_controller, person
from supervisor.bench.world.desk import SimDesk
from supervisor.bench.world.world import Plant
from supervisor.journal.entries import Carried
from supervisor.ports import Desk
from supervisor.telling.notices import Notice

TARGET = "mailtos (urls 1)"


@dataclass
class Post(Plant):
    """A desk that carries what it is given to one target. `lost`: so many tries fail, which then are still under way."""

    lost: int = 0
    sent: list[tuple[float, Notice]] = field(default_factory=list)

    def desk(self, desk: SimDesk) -> Desk:
        post = self

        class Carrying:
            def __init__(self) -> None:
                self.fared: list[Carried] = []

            def __getattr__(self, name: str) -> Any:
                return getattr(desk, name)

            def tell(self, notice: Notice, story: str, reached: Collection[str] = ()) -> int:
                assert story
                desk.tell(notice, story)
                if TARGET not in reached:
                    post.sent.append((desk.time.now, notice))
                    post.lost -= 1
                    failed = ((TARGET, "no route"),) if post.lost >= 0 else ()
                    self.fared.append(Carried(notice.key, () if failed else (TARGET,), failed, 1, given_up=False))
                return 1

            def carried(self, _: str | None) -> list[Carried]:
                found, self.fared = self.fared, []
                return found

        return Carrying()


def told(until: str, post: Post, *more: object) -> tuple[list[tuple[int, str, bool]], History]:
    """(minutes after the first notice, what, does it escalate) of each notice."""
    scenario = simulate.every()["person-sleeps"]
    outcome = simulate.tell(replace(scenario, until=until, when=(*scenario.when, *more), then=()), plant=post)
    assert outcome.good, outcome.why()
    first = post.sent[0][0]
    return [(round((at - first) / 60), one.what, one.escalates) for at, one in post.sent], outcome.history


EXPECTED = [
    (0, "plan", False),
    (15, "reminder", False),
    (30, "reminder", False),
    (60, "reminder", True),
    (120, "reminder", True),
]


def test_a_plan_that_nobody_answers_is_told_again_and_to_more_people_and_nothing_is_done() -> None:
    sent, history = told("12:30", Post())
    assert sent == EXPECTED
    assert history.attempt is not None
    assert history.attempt.number == 1
    assert {one.reached for one in history.tellings.values()} == {(TARGET,)}
    assert not any(one.under_way for one in history.tellings.values())


@pytest.mark.parametrize("kill", ["09:12", "09:40", "10:20"])
def test_a_controller_that_dies_meanwhile_repeats_nothing(kill: str) -> None:
    assert told("12:30", Post(), at(kill, kill_controller()))[0] == EXPECTED


def test_what_the_dead_controller_had_not_delivered_is_told_by_the_next() -> None:
    sent, history = told("09:20", Post(lost=1), at("09:12", kill_controller()))
    assert [what for _, what, _ in sent][:2] == ["plan", "plan"]
    assert len({one.key for one in history.tellings.values() if one.reached}) == len(history.tellings)


def test_a_fault_in_a_paused_run_is_told_once_and_its_plan_when_it_is_resumed() -> None:
    sent, history = told("10:00", Post(), at("09:03", person("pause", "a switch")), at("09:40", person("resume")))
    assert [what for _, what, _ in sent] == ["paused", "plan", "reminder"]
    assert len(history.attempts) == 1
    again, _ = told("09:30", Post(), at("09:03", person("pause", "a switch")), at("09:15", kill_controller()))
    assert [what for _, what, _ in again] == ["paused"]
