"""fold: the only way in which the past is remembered."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import get_args

import pytest
from builders import counters, save_id, training

from policies.facts import Counters, FaultClass
from policies.history import Answered, Choice, History, StopWish, Trouble
from policies.reasons import Reason
from supervisor import actions
from supervisor.fold import fold, fold_all
from supervisor.journal.entries import (
    ENTRY,
    Approved,
    AttemptClosed,
    Chosen,
    Ended,
    Entry,
    EpochBegan,
    HaltedEntry,
    IncidentMarked,
    IncidentOpened,
    Intended,
    ModeSet,
    NodeReturned,
    Paused,
    Refused,
    Reopened,
    RequestAnswered,
    Resumed,
    RunStarted,
    Settled,
    Stamped,
    StopAsked,
    Told,
    Withdrawn,
)

LAUNCH = actions.Launch(1, 1, ("n0", "n1", "n2"), None, Counters(0, 0, 0, 0, None), None)
TROUBLE = Trouble(FaultClass.STALL, Reason.STALL, 5.0, 1, died=False, text="")
OPENED = IncidentOpened(1, 1, TROUBLE, 4.0, 5.0, 45, 360, None)


def after(*entries: Entry, history: History | None = None) -> History:
    history = history or History()
    return fold_all(history, [Stamped(n, 1, float(n), e) for n, e in enumerate(entries, 1)])


def test_every_field_of_a_story_comes_from_entries_that_survive_json() -> None:
    """A whole story, through JSON and back, entry by entry: the same history."""
    scene = training()
    scene.lose("n1")
    scene.settle()
    again = [replace(s, entry=ENTRY.validate_json(ENTRY.dump_json(s.entry))) for s in scene.stamped]
    assert fold_all(History(), again) == scene.history


def test_each_kind_of_entry_is_known_by_its_kind() -> None:
    kinds = [next(f.default for f in fields(one) if f.name == "kind") for one in get_args(Entry)]
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize(
    ("entries", "field", "value"),
    [
        ([EpochBegan(3, "h", 1, 2, "x")], "epoch", 3),
        ([RunStarted("demo", "auto", 1, 1, 3, 1)], "run", "demo"),
        ([RunStarted("demo", "auto", 1, 1, 3, 1), ModeSet("observe")], "mode", "observe"),
        ([Paused("li", "")], "paused", True),
        ([Paused("li", ""), Resumed("li", "")], "paused", False),
        ([Paused("li", ""), Resumed("li", "")], "resumed_at", None),  # only a lifted halt gives new budgets
        ([StopAsked("li")], "stop_asked", StopWish("li", 1.0)),
        ([StopAsked("li"), HaltedEntry(Reason.NO_SPARE, "", "", None)], "stop_asked", None),
        ([HaltedEntry(Reason.NO_SPARE, "", "", None)], "asked_to_halt", False),
        ([HaltedEntry(Reason.PERSON_HALTED, "", "", None)], "asked_to_halt", True),
        ([HaltedEntry(Reason.NO_SPARE, "", "", None), Resumed("li", "")], "halted", None),
        ([HaltedEntry(Reason.NO_SPARE, "", "", None), Resumed("li", "")], "resumed_at", 2.0),
        ([Ended("stopped")], "ended", "stopped"),
        ([Ended("stopped"), StopAsked("li"), Reopened("li")], "ended", None),
        ([Ended("stopped"), StopAsked("li"), Reopened("li")], "stop_asked", None),
        ([Told("a", ""), Told("b", "")], "told", frozenset({"a", "b"})),
        ([RequestAnswered("a", "halt", "li", "done", "")], "requests", {"a": Answered("done", "", 0)}),
        ([Approved("d", "li")], "approvals", frozenset({"d"})),
        ([Refused("d", "li", "")], "refused", frozenset({"d"})),
        ([Refused("d", "li", ""), Resumed("li", "")], "refused", frozenset()),
        ([Approved("d", "li"), Refused("e", "li", ""), OPENED], "approvals", frozenset()),
        ([Chosen(Choice("c"), "li"), OPENED], "choice", Choice()),
        ([Chosen(Choice("c"), "li")], "choice", Choice("c")),
    ],
)
def test_one_fact(entries: list[Entry], field: str, value: object) -> None:
    assert getattr(after(*entries), field) == value


def test_a_launch_makes_an_attempt_once() -> None:
    """Asked again by the next epoch: the attempt keeps its epoch, the intent counts its tries."""
    history = after(Intended(LAUNCH))
    assert fold(history, Stamped(2, 2, 9.0, Intended(LAUNCH))).attempts == history.attempts
    assert history.attempts[0].began == LAUNCH.start
    again = fold(history, Stamped(2, 2, 9.0, Intended(LAUNCH)))
    assert (again.intents["launch:1"].tries, again.intents["launch:1"].at, again.intents["launch:1"].epoch) == (
        2,
        9.0,
        2,
    )


def test_an_intent_is_open_until_it_is_settled() -> None:
    seen = after(Intended(LAUNCH), Settled("launch:1", "seen"))
    assert seen.intents == {}
    failed = after(Intended(LAUNCH), Settled("launch:1", "failed", "srun: error"))
    assert failed.intents["launch:1"].failed
    assert after(Settled("launch:1", "failed")).intents == {}


def test_a_checkpoint_that_cannot_be_made_ready_is_unfit() -> None:
    view = actions.MakeView(2, save_id(40))
    history = after(Intended(view), Settled(actions.key(view), "failed", "a file is gone"))
    assert [(r.id, r.why) for r in history.unfit] == [(save_id(40), "a file is gone")]


def test_a_bar_lasts_as_long_as_the_profile_says() -> None:
    history = after(OPENED, Intended(actions.Bar(("n1",), 1, 3600.0)), Intended(actions.Bar(("n2",), 7, None)))
    assert [(b.node, b.until, b.reason) for b in history.bars] == [
        ("n1", 3602.0, Reason.STALL),
        ("n2", None, Reason.NODE_LOST),
    ]
    assert history.barred(3602.0) == {"n1", "n2"}  # its time alone does not bring it back
    back = fold(history, Stamped(9, 1, 3700.0, NodeReturned("n1")))
    assert back.barred(3700.0) == {"n2"}
    assert [b.returned_at for b in back.bars] == [3700.0, None]
    assert fold(back, Stamped(10, 1, 3800.0, NodeReturned("n1"))).bars == back.bars


def test_a_moment_that_is_set_stays() -> None:
    history = after(OPENED, IncidentMarked(1, "evidence"), IncidentMarked(1, "evidence"), IncidentMarked(9, "evidence"))
    assert history.incidents[0].times.evidence == 2.0


def test_an_incident_that_follows_closes_the_one_before_without_an_update() -> None:
    history = after(OPENED, replace(OPENED, number=2, attempt=2, follows=1))
    assert [(i.closed, i.times.next_good) for i in history.incidents] == [(True, None), (False, None)]


def test_the_books_of_two_attempts() -> None:
    """Forty-five steps, back to forty, and two more: 47 were computed, 5 are thrown away."""
    again = actions.Launch(2, 1, LAUNCH.slots, save_id(40), counters(40), None)
    history = after(Intended(LAUNCH), AttemptClosed(1, counters(45)), Intended(again), AttemptClosed(2, counters(42)))
    assert (history.books.computed, history.books.rolled_back, history.books.samples_read_again) == (47, 5, 40)


def test_the_end_of_another_attempt_is_no_moment_of_the_incident() -> None:
    again = actions.Launch(2, 1, LAUNCH.slots, None, LAUNCH.start, 1)
    history = after(Intended(LAUNCH), OPENED, Intended(again), AttemptClosed(2, counters(2)))
    assert history.incidents[0].times.stopped is None
    assert after(AttemptClosed(1, counters(2)), history=history).incidents[0].times.stopped is not None


def test_an_attempt_whose_beginning_is_not_known_counts_from_its_step() -> None:
    history = after(Intended(LAUNCH))
    old = replace(history, attempts=(replace(history.attempts[0], began=None, start_step=40),))
    assert after(AttemptClosed(1, counters(45)), history=old).books.computed == 5
    unclosed = after(Intended(actions.Launch(2, 1, LAUNCH.slots, save_id(40), counters(40), 1)), history=history)
    assert unclosed.books == history.books


def test_an_approval_without_an_incident_is_kept_and_changes_no_incident() -> None:
    assert after(Approved("d", "li")).incidents == ()
    assert after(OPENED, Approved("d", "li")).incidents[0].approved_by == "li"


def test_a_stop_that_was_asked_for_survives_a_fault_and_not_a_new_start() -> None:
    for incident, kept in ((1, True), (None, False)):
        launch = replace(LAUNCH, incident=incident)
        wish = after(OPENED, StopAsked("li"), Intended(launch)).stop_asked
        assert (wish is not None and wish.who == "li") is kept


def test_a_plan_that_comes_back_is_told_again() -> None:
    """The simulated world found it: after a halt was lifted the same plan was open again, and nobody was called."""
    known = replace(History(), told=frozenset({"plan:abc", "plan:def", "halt:x"}))
    resumed = fold(known, Stamped(1, 1, 5.0, Resumed("li", "looked at it")))
    assert resumed.told == {"halt:x"}
    withdrawn = fold(known, Stamped(1, 1, 5.0, Withdrawn("abc", "n3 is gone")))
    assert withdrawn.told == {"plan:def", "halt:x"}
