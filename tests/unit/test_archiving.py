"""The archive in the loop's decisions: what is copied when, what comes back, what waits, and who is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import APPROVE, AUTO, OBSERVE, Scene, back, save, save_id, training

from policies import archiving
from policies.archiving import Due
from policies.decisions import Continue, Halt, Recover, Restores, Wait
from policies.facts import UNKNOWN, CheckpointPhase, CheckpointState, Copied, Rejected, View
from policies.history import Choice, History, Intent
from policies.reasons import Reason
from policies.rules import Rules
from supervisor import actions
from supervisor.gate import digest
from supervisor.journal.entries import Chosen, Settled
from supervisor.plan import chores_at, upkeep

DAY = AUTO.checkpoint.archive_every_s
P = CheckpointPhase


def copy(step: int, attempt: int = 1, phase: CheckpointPhase = P.COMPLETED, **more: object) -> CheckpointState:
    return save(step, attempt, phase, location="archive", **more)


def with_archive(scene: Scene, *copies: CheckpointState) -> Scene:
    scene.view = replace(scene.view, has_archive=True, archive=copies, archive_as_of=scene.now)
    return scene


def lost(*copies: CheckpointState, rules: Rules = AUTO) -> Scene:
    """The store has lost everything when a rank dies."""
    scene = with_archive(training(rules), *copies)
    scene.view = replace(scene.view, checkpoints=())
    scene.die(1)
    return scene


def plan_of(scene: Scene) -> Recover:
    assert isinstance(scene.history.decision, Recover)
    return scene.history.decision


# --- the way back ---------------------------------------------------------------------------------------------------


def test_a_store_that_is_lost_comes_back_from_the_archive() -> None:
    scene = lost(copy(20), copy(30))
    scene.settle()
    kinds = scene.kinds()
    assert kinds[kinds.index("restore") :] == ["restore", "make-view", "launch"]
    assert scene.of("restore") == [actions.Restore(save_id(30))]
    attempt = scene.history.attempt
    assert attempt is not None
    assert (attempt.checkpoint, attempt.start_step) == (save_id(30), 30)
    assert [c.id for c in scene.history.restored] == [save_id(30)]
    assert scene.history.incidents[-1].rejected == (Rejected(save_id(40), "was completed; no longer in the store"),)
    back(scene)
    assert scene.history.incident is None


def test_nothing_is_made_ready_before_the_store_shows_it() -> None:
    scene = lost(copy(20))
    scene.obeys = lambda a: a.kind != "restore"
    scene.settle()
    scene.wait(1000)
    scene.settle()
    assert "make-view" not in scene.kinds()
    assert len(scene.of("restore")) > 1  # it is asked for again


def test_one_that_is_at_work_is_not_asked_for_again() -> None:
    scene = lost(copy(20))
    scene.obeys = lambda a: a.kind != "restore"
    scene.settle()
    scene.view = replace(scene.view, at_work=frozenset({f"restore:{save_id(20)}"}))
    scene.wait(1000)
    scene.settle()
    assert len(scene.of("restore")) == 1


def test_the_archives_copy_of_what_is_broken_in_the_store_is_a_rung() -> None:
    scene = with_archive(training(), copy(40), copy(20))
    scene.store(save(40, phase=P.BROKEN, reasons=("SUM x",)))
    scene.die(1)
    scene.settle()
    assert scene.of("restore") == [actions.Restore(save_id(40))]
    assert scene.history.incidents[-1].rejected == (Rejected(save_id(40), "broken: SUM x"),)


def test_the_store_is_used_before_the_archive() -> None:
    scene = with_archive(training(), copy(44))
    scene.die(1)
    scene.settle()
    assert scene.of("restore") == []
    assert scene.history.attempt is not None
    assert scene.history.attempt.checkpoint == save_id(40)


def test_an_archive_that_cannot_be_read_is_waited_for_and_told() -> None:
    scene = lost()
    scene.view = replace(scene.view, archive=UNKNOWN, archive_why="no answer", archive_as_of=None)
    turn = scene.settle()
    assert isinstance(turn.decision, Wait)
    assert (turn.decision.reason, turn.decision.tells) == (Reason.ARCHIVE_BLIND, True)
    assert "no answer" in turn.decision.text
    assert scene.history.halted is None
    scene.view = replace(scene.view, archive=(copy(20),))
    scene.settle()
    assert scene.of("restore") == [actions.Restore(save_id(20))]


def test_one_that_is_slow_for_a_moment_wakes_nobody() -> None:
    scene = lost()
    scene.view = replace(scene.view, archive=UNKNOWN, archive_as_of=scene.now - 1)
    turn = scene.settle()
    assert isinstance(turn.decision, Wait)
    assert not turn.decision.tells


def test_an_empty_archive_is_no_reason_to_wait() -> None:
    scene = lost()
    scene.settle()
    assert scene.history.halted is not None
    assert scene.history.halted.reason is Reason.NO_CHECKPOINT


def test_a_first_start_waits_for_the_archive_and_takes_what_it_finds() -> None:
    """The journal is new, and so is the store: what is in the archive must not be passed over, nor its ids used again."""
    scene = Scene()
    with_archive(scene)
    scene.view = replace(scene.view, archive=UNKNOWN)
    turn = scene.settle()
    assert isinstance(turn.decision, Wait)
    assert turn.decision.reason is Reason.ARCHIVE_BLIND
    scene.view = replace(scene.view, archive=(copy(20, 3), copy(40, 4)))
    scene.settle()
    assert scene.history.attempt is not None
    assert (scene.history.attempt.number, scene.history.attempt.checkpoint) == (5, save_id(40, 4))


def test_a_store_with_a_completed_save_needs_no_archive() -> None:
    scene = with_archive(training())
    scene.view = replace(scene.view, archive=UNKNOWN)
    scene.die(1)
    scene.settle()
    assert scene.kinds()[-1] == "launch"


def test_a_copy_that_is_refused_is_passed_over() -> None:
    scene = lost(copy(20), copy(30))
    scene.obeys = lambda a: a != actions.Restore(save_id(30))
    scene.settle()
    scene.view = replace(scene.view, failures=((f"restore:{save_id(30)}", "its copy is damaged"),))
    scene.settle()
    assert scene.of("restore") == [actions.Restore(save_id(30)), actions.Restore(save_id(20))]
    assert Rejected(save_id(30), "its copy is damaged", "archive") in scene.history.incidents[-1].rejected


def test_what_came_back_and_is_no_good_is_not_fetched_again() -> None:
    scene = lost(copy(20), copy(30))
    scene.obeys = lambda a: a != actions.MakeView(2, save_id(30))
    scene.settle()
    broken = save(30, phase=P.BROKEN)
    scene.view = replace(scene.view, failures=((f"make-view:2:{save_id(30)}", "SUM y"),))
    scene.store(broken)
    scene.settle()
    assert scene.of("restore") == [actions.Restore(save_id(30)), actions.Restore(save_id(20))]
    assert scene.history.attempt is not None
    assert scene.history.attempt.checkpoint == save_id(20)


def test_one_that_rotted_in_the_store_is_fetched_and_then_used() -> None:
    """The save in the store could not be made ready; its own copy is good, and what was wrong with the first is over."""
    scene = with_archive(training(), copy(40))
    refused = actions.MakeView(2, save_id(40))
    scene.obeys = lambda a: a != refused
    scene.die(1)
    scene.settle()
    scene.view = replace(scene.view, failures=((actions.key(refused), "SUM y"),))
    scene.store(save(40, phase=P.BROKEN))
    scene.obeys = lambda _: True
    first = plan_of(scene)
    scene.tick()
    scene.view = replace(scene.view, failures=())
    scene.settle()
    assert first.restores is None
    assert scene.of("restore") == [actions.Restore(save_id(40))]
    assert scene.history.unfit == ()
    assert scene.history.attempt is not None
    assert scene.history.attempt.checkpoint == save_id(40)


def test_a_restore_is_another_plan_and_is_approved_anew() -> None:
    scene = lost(copy(40), rules=APPROVE)
    scene.settle()
    plan = plan_of(scene)
    assert plan.restores == Restores(0)
    assert digest(plan) != digest(replace(plan, restores=None))
    assert "restore" not in scene.kinds()


def test_nothing_is_restored_in_observe_mode() -> None:
    scene = lost(copy(40), rules=OBSERVE)
    scene.settle()
    assert "restore" not in scene.kinds()


def test_a_plan_that_restores_stands_while_the_archive_is_away_and_falls_with_its_copy() -> None:
    scene = lost(copy(40), rules=APPROVE)
    scene.settle()
    plan = plan_of(scene)
    scene.view = replace(scene.view, archive=UNKNOWN)
    assert scene.settle().decision == plan
    scene.view = replace(scene.view, archive=(replace(copy(40), manifest_hash="other"),))
    scene.settle()
    assert plan_of(scene).manifest_hash == "other"


def test_a_person_may_choose_a_copy() -> None:
    scene = lost(copy(20), copy(30), rules=APPROVE)
    scene.settle()
    scene.say(Chosen(Choice(checkpoint=save_id(20)), "li.wei"))
    scene.settle()
    assert (plan_of(scene).checkpoint, plan_of(scene).restores) == (save_id(20), Restores(0))


# --- room and time --------------------------------------------------------------------------------------------------

TB = 10**12


def short_of_room(free: float, rules: Rules = AUTO) -> Scene:
    scene = lost(copy(20, bytes=7 * TB), rules=rules)
    scene.store(save(44, phase=P.BROKEN))
    scene.view = replace(scene.view, store_free_bytes=int(free * TB))
    return scene


def test_a_restore_that_would_not_fit_says_what_to_free() -> None:
    scene = short_of_room(10)
    turn = scene.settle()
    assert isinstance(turn.decision, Wait)
    assert (turn.decision.reason, turn.decision.tells) == (Reason.NO_ROOM, True)
    assert "Free 4.7e+03 GB" in turn.decision.text
    assert save_id(44) in turn.decision.text
    assert "restore" not in scene.kinds()
    scene.view = replace(scene.view, store_free_bytes=15 * TB)
    scene.settle()
    assert scene.of("restore") == [actions.Restore(save_id(20))]


def test_where_a_person_has_chosen_it_only_has_to_fit_itself() -> None:
    one = copy(20, bytes=7 * TB)
    view = View(store_free_bytes=10 * TB)
    assert archiving.no_room(one, view, History(), AUTO)
    assert not archiving.no_room(one, view, History(choice=Choice(checkpoint=one.id)), AUTO)
    assert archiving.no_room(one, View(store_free_bytes=6 * TB), History(choice=Choice(checkpoint=one.id)), AUTO)
    assert not archiving.no_room(one, View(store_free_bytes=None), History(), AUTO)


def test_what_has_come_so_far_takes_room_already() -> None:
    one = copy(20, bytes=7 * TB)
    begun = History(intents={f"restore:{one.id}": Intent(f"restore:{one.id}", 1.0, 1)})
    assert not archiving.no_room(one, View(store_free_bytes=1), begun, AUTO)


def test_how_long_a_restore_takes_is_told_at_the_pace_of_the_last_copy() -> None:
    one = copy(20, bytes=7 * TB)
    out, home = Copied("a", 10.0, TB, 100.0), Copied("b", 20.0, TB, 200.0)
    dark = View()
    assert archiving.restores(one, dark, History()) == Restores(7 * TB, None)
    assert archiving.restores(one, dark, History(archived=out)).about_s == 700.0
    assert archiving.restores(one, dark, History(archived=out, restored=(home,))).about_s == 1400.0
    assert archiving.restores(one, dark, History(archived=Copied("a", 10.0, TB, None))).about_s is None
    drilled = View(drilled=Copied("c", 15.0, TB, 50.0))
    assert archiving.restores(one, drilled, History(archived=out)).about_s == 350.0
    assert archiving.restores(one, drilled, History(restored=(home,))).about_s == 1400.0  # which is newer


# --- the daily copy -------------------------------------------------------------------------------------------------


def chores(scene: Scene) -> list[actions.Action]:
    found = upkeep(scene.history, scene.view, scene.rules, scene.now)
    return [a for a in found if isinstance(a, actions.SLOW)]


def test_the_first_completed_save_is_copied_at_once_and_the_next_a_day_later() -> None:
    scene = with_archive(training())
    assert chores(scene) == [actions.Archive(save_id(40))]
    scene.settle()
    copied = scene.history.archived
    assert copied is not None
    assert (copied.id, copied.took_s is not None) == (save_id(40), True)
    assert chores(scene) == []
    scene.store(save(60))
    assert chores(scene) == []
    assert chores_at(scene.history, scene.view, AUTO) <= copied.at + DAY
    scene.now = copied.at + DAY
    assert actions.Archive(save_id(60)) in chores(scene)


def test_a_clock_that_was_a_year_ahead_for_a_while_holds_up_no_copy() -> None:
    scene = with_archive(training())
    scene.settle()
    copied, ahead = scene.history.archived, scene.now + 365 * DAY
    assert copied is not None
    scene.history = replace(scene.history, archived=replace(copied, at=ahead))
    scene.store(save(60))
    assert chores(scene) == []
    assert chores_at(scene.history, scene.view, AUTO, scene.now) <= copied.at + DAY
    scene.now = copied.at + DAY
    assert actions.Archive(save_id(60)) in chores(scene)
    assert archiving.late(replace(scene.view, archive=()), scene.history, AUTO, copied.at + 3 * DAY) != ""


def test_nothing_is_copied_without_an_archive_in_sight() -> None:
    scene = training()
    assert chores(scene) == []
    with_archive(scene)
    scene.view = replace(scene.view, archive=UNKNOWN)
    assert chores(scene) == []
    assert chores(Scene()) == []


@pytest.mark.parametrize("what", ["incident", "halted", "ended", "observe", "plan", "down"])
def test_nothing_is_copied_or_read_while_something_else_matters(what: str) -> None:
    scene = with_archive(training())
    scene.now += 2 * DAY
    assert {a.kind for a in chores(scene)} == {"archive", "scrub"}
    hurt = lost()
    hurt.settle()
    match what:
        case "incident":
            scene.history = replace(scene.history, incidents=hurt.history.incidents)
        case "halted":
            scene.history = replace(scene.history, halted=hurt.history.halted)
        case "ended":
            scene.history = replace(scene.history, ended="stopped")
        case "observe":
            scene.history = replace(scene.history, mode="observe")
        case "plan":
            plan = Recover(Reason.FIRST_START, None, None, True, None, 2, (), (), None, 0, None)
            scene.history = replace(scene.history, decision=plan)
        case "down":
            (one,) = scene.history.attempts
            scene.history = replace(scene.history, attempts=(replace(one, closed_at=1.0),))
    assert chores(scene) == []


def test_a_copy_that_was_begun_is_finished_before_a_newer_one() -> None:
    scene = with_archive(training())
    scene.obeys = lambda a: a.kind != "archive"
    scene.settle()
    scene.store(save(60))
    assert archiving.to_archive(scene.view, scene.history, AUTO) == Due(save_id(40), 0.0)
    key = f"archive:{save_id(40)}"
    scene.view = replace(scene.view, failures=((key, "No space left on device"),))
    scene.settle()
    assert key not in scene.history.intents  # it has given way to the newest
    assert f"archive:{save_id(60)}" in scene.history.intents


def test_what_is_being_copied_is_not_deleted() -> None:
    scene = with_archive(training())
    scene.obeys = lambda a: a.kind != "archive"
    scene.settle()
    scene.view = replace(scene.view, at_work=frozenset({f"archive:{save_id(40)}"}))
    scene.store(*(save(step) for step in (50, 60, 70, 80)))
    scene.settle()
    assert scene.view.checkpoints is not UNKNOWN
    assert save_id(40) in {c.id for c in scene.view.checkpoints}
    retain = [a for a in scene.done if isinstance(a, actions.Retain)]
    assert retain
    assert all(save_id(40) in a.protect for a in retain)


def test_a_copy_of_a_save_that_is_gone_is_forgotten() -> None:
    scene = with_archive(training())
    scene.obeys = lambda a: a.kind != "archive"
    scene.settle()
    scene.view = replace(scene.view, checkpoints=(save(60),))
    scene.settle()
    assert f"archive:{save_id(40)}" not in scene.history.intents


def test_a_restart_of_the_controller_asks_again() -> None:
    scene = with_archive(training())
    scene.obeys = lambda a: a.kind != "archive"
    scene.settle()
    scene.view = replace(scene.view, at_work=frozenset({f"archive:{save_id(40)}"}))
    scene.wait(7200)
    scene.step(50)
    scene.settle()
    assert len(scene.of("archive")) == 1
    scene.epoch(2)
    scene.view = replace(scene.view, at_work=frozenset())
    scene.settle()
    assert len(scene.of("archive")) == 2


def test_copies_that_fail_for_two_days_are_told_and_stop_nothing() -> None:
    scene = with_archive(training())
    scene.obeys = lambda a: a.kind != "archive"
    scene.settle()
    scene.view = replace(scene.view, failures=((f"archive:{save_id(40)}", "No space left on device"),))
    scene.wait(2 * DAY - 200)
    scene.step(50)
    assert scene.settle().decision.reason is not Reason.ARCHIVE_LATE
    scene.wait(400)
    scene.step(60)
    decision = scene.settle().decision
    assert isinstance(decision, Continue)
    assert decision.reason is Reason.ARCHIVE_LATE
    assert "No space left on device" in decision.text


def test_nothing_is_late_where_nothing_is_to_be_copied() -> None:
    far = 100 * DAY
    old = History(started_at=0.0)
    done = View(checkpoints=(save(40),), has_archive=True, archive=(copy(40),))
    assert archiving.late(done, old, AUTO, far) == ""
    assert archiving.late(replace(done, has_archive=False), old, AUTO, far) == ""
    assert archiving.late(replace(done, checkpoints=()), old, AUTO, far) == ""
    assert archiving.late(replace(done, archive=()), old, AUTO, far) != ""
    away = replace(done, archive=UNKNOWN, archive_why="no answer")
    assert "no answer" in archiving.late(away, old, AUTO, far)
    assert archiving.late(replace(away, checkpoints=(save(40, archived=True),)), old, AUTO, far) == ""
    assert archiving.late(away, replace(old, resumed_at=far - 1), AUTO, far) == ""


# --- reading again --------------------------------------------------------------------------------------------------


def test_the_one_that_was_not_read_for_the_longest_is_read_first() -> None:
    view = View(checkpoints=(save(20, read_at=500.0), save(30, read_at=100.0), save(40), save(50, phase=P.BROKEN)))
    every = AUTO.checkpoint.reread_every_s
    assert archiving.to_read(view, AUTO) == Due(save_id(40), 40 + every)  # its seal was the first reading
    assert archiving.to_read(View(), AUTO) is None


def test_a_reading_is_done_when_the_store_says_so_and_asked_for_one_at_a_time() -> None:
    scene = training()
    scene.store(save(20), save(40))
    scene.now += 2 * DAY
    scene.step(60)
    scene.settle()
    assert scene.of("scrub") == [actions.Scrub(save_id(20), None), actions.Scrub(save_id(40), None)]


def test_a_restore_that_nobody_wants_any_more_is_forgotten() -> None:
    """It failed for now, and then a person chose another copy: nobody is at it, and nobody will ask for it again."""
    scene = lost(copy(20), copy(30))
    scene.obeys = lambda a: a.kind != "restore"
    scene.settle()
    key = f"restore:{save_id(30)}"
    scene.view = replace(scene.view, at_work=frozenset({key}))
    scene.say(Chosen(Choice(checkpoint=save_id(20)), "li.wei"))
    scene.settle()
    assert key in scene.history.intents  # somebody is still at it
    scene.view = replace(scene.view, at_work=frozenset())
    scene.settle()
    assert key not in scene.history.intents
    assert f"restore:{save_id(20)}" in scene.history.intents


def test_old_journals_know_nothing_of_all_this() -> None:
    """Fields that were not there have their defaults: nothing is asked of an archive that there was not."""
    scene = training()
    assert (scene.history.archived, scene.history.restored) == (None, ())
    assert (scene.view.has_archive, scene.view.archive) == (False, ())
    scene.say(Settled("archive:unknown", "seen"))
    assert scene.history.archived is None
    scene.die(1)
    scene.settle()
    assert isinstance(scene.last.decision if scene.last else None, Wait | Continue | Halt | Recover)
