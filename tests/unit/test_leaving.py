"""When a run leaves its job, who decides it, and how it goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import APPROVE, AUTO, LAYOUT, T0, Scene, finding, nodes, save, training

from policies.decisions import Continue, Halt, PlannedStop, Recover, Wait
from policies.facts import FaultClass, JobPhase, JobView, NodeState, RankExit, View
from policies.history import Bar, HoldingJob
from policies.reasons import Reason
from policies.recovering import START_GRACE_S
from policies.rules import JobRules, Rules, SpareRules
from supervisor import actions
from supervisor.answers import judge
from supervisor.journal.entries import Decided, Ended, HaltedEntry, Resumed, StopAsked
from supervisor.journal.requests import Request
from supervisor.plan import upkeep
from supervisor.telling.notices import warning

JOB = JobView("12", "2026-12-01T05:00:00", JobPhase.RUNNING, "RUNNING", can_follow=True)
OBSERVE = AUTO.model_copy(update={"mode": "observe"})


def in_job(rules: Rules = AUTO) -> Scene:
    """A run that trains in a job, with a save of step 40."""
    scene = Scene(rules, view=View(nodes=nodes(), checkpoints=(), store_as_of=T0, cluster_as_of=T0, job=JOB))
    scene.settle()
    assert scene.history.job == HoldingJob(JOB.id, JOB.start, T0)
    scene.load()
    scene.step(1)
    scene.settle()
    scene.wait(100)
    scene.step(45)
    scene.store(save(40))
    scene.settle()
    return scene


def stops(scene: Scene) -> list[PlannedStop]:
    """The planned stops that were decided, in order."""
    found = [one.entry.decision for one in scene.stamped if isinstance(one.entry, Decided)]
    return [one for one in found if isinstance(one, PlannedStop)]


def decided(scene: Scene) -> object:
    return scene.settle().decision


def ends_in(scene: Scene, seconds: float, by: str = "time limit", ran: float = 1e6) -> None:
    """The job, which has run for `ran` seconds, ends after so many more."""
    assert scene.view.job is not None
    assert scene.history.job is not None
    scene.history = replace(scene.history, job=replace(scene.history.job, at=scene.now - ran))
    scene.view = replace(scene.view, job=replace(scene.view.job, ends_at=scene.now + seconds, ends_by=by))


def end_ranks(scene: Scene, signal: int | None = None) -> None:
    """Every rank of the newest attempt has ended, well or by a signal, and its save is sealed."""
    attempt = scene.view.attempt
    assert attempt is not None
    assert scene.history.attempt is not None
    number = scene.history.attempt.number
    exits = tuple(RankExit(r, f"n{r}", number, scene.now, None if signal else 0, signal) for r in range(LAYOUT.world))
    scene.view = replace(scene.view, attempt=replace(attempt, exits=exits), steps_running=frozenset())
    scene.wait(1)
    scene.view = replace(scene.view, store_as_of=scene.now + 60, cluster_as_of=scene.now + 60)


def test_in_mode_auto_the_run_saves_in_time_and_goes_on_in_the_next_job() -> None:
    scene = in_job()
    ends_in(scene, AUTO.job.leave_s + 60)
    assert isinstance(decided(scene), Continue)
    ends_in(scene, AUTO.job.leave_s - 1)
    stop = decided(scene)
    assert isinstance(stop, PlannedStop)
    assert (stop.then, stop.down, stop.text) == ("next-job", False, "job 12 ends soon (time limit)")
    assert scene.history.stop_asked is not None
    assert scene.history.stop_asked.who == "relight"
    end_ranks(scene)
    asked = scene.settle()
    assert scene.history.ended == "next-job"
    assert isinstance(asked.decision, Wait)
    assert asked.decision.reason is Reason.NEXT_JOB
    assert [a for a in scene.done if isinstance(a, actions.NextJob)] == [actions.NextJob("12", JOB.start, ())]
    assert scene.history.incidents == ()


def test_the_next_job_goes_on_from_the_save_and_nobody_is_to_blame() -> None:
    scene = in_job()
    ends_in(scene, 10)
    scene.settle()
    end_ranks(scene)
    scene.settle()
    scene.store(save(40))
    scene.view = replace(scene.view, job=replace(JOB, id="13"))
    plan = scene.settle().decision
    assert scene.history.ended is None
    assert scene.history.stop_asked is None
    assert isinstance(plan, Continue | Wait | Recover)
    assert scene.history.attempt is not None
    assert scene.history.attempt.number == 2
    assert scene.history.incidents == ()


def test_in_mode_approve_a_person_is_told_and_at_the_last_moment_the_run_is_saved() -> None:
    scene = in_job(APPROVE)
    ends_in(scene, APPROVE.job.told_s - 1)
    told = decided(scene)
    assert isinstance(told, Continue)
    assert told.reason is Reason.JOB_ENDS
    ends_in(scene, APPROVE.job.leave_s - 1)
    stop = decided(scene)
    assert isinstance(stop, PlannedStop)
    assert stop.then == "end"


def test_in_mode_observe_nothing_is_done() -> None:
    scene = in_job(OBSERVE)
    ends_in(scene, 10)
    told = decided(scene)
    assert isinstance(told, Continue)
    assert told.reason is Reason.JOB_ENDS
    assert "nothing is done for it" in told.text


def test_what_does_not_stop_by_itself_is_stopped_before_the_job_ends() -> None:
    scene = in_job()
    ends_in(scene, AUTO.job.leave_s - 1)
    scene.settle()
    ends_in(scene, AUTO.job.down_s - 1)
    scene.settle()
    assert [one.down for one in stops(scene)] == [False, True]
    assert actions.Stop(1) in scene.done


def test_slow_saves_leave_earlier() -> None:
    scene = in_job()
    ends_in(scene, 2000)
    assert isinstance(decided(scene), Continue)
    cost = replace(scene.history.save_costs[-1], completed_s=1500.0) if scene.history.save_costs else None
    assert cost is not None
    scene.history = replace(scene.history, save_costs=(cost,))
    assert isinstance(decided(scene), PlannedStop)


def test_a_node_that_somebody_wants_back_is_left_for_a_spare() -> None:
    scene = in_job()
    scene.node("n1", drained_by_other=True)
    stop = decided(scene)
    assert isinstance(stop, PlannedStop)
    assert stop.then == "here"
    end_ranks(scene)
    scene.store(save(40))
    scene.settle()
    assert scene.history.attempt is not None
    assert scene.history.attempt.slots == ("n0", "n3", "n2")
    assert scene.history.bars == ()
    assert scene.history.incidents == ()


def test_without_a_spare_a_wanted_node_is_left_in_the_next_job_and_in_approve_a_person_is_told() -> None:
    scene = in_job()
    scene.node("n1", drained_by_other=True)
    scene.node("n3", state=NodeState.DOWN)
    stop = decided(scene)
    assert isinstance(stop, PlannedStop)
    assert stop.then == "next-job"
    asks = in_job(APPROVE)
    asks.node("n1", drained_by_other=True)
    told = decided(asks)
    assert isinstance(told, Continue)
    assert told.reason is Reason.NODE_DRAINED


def test_a_new_controller_hears_its_spares_before_it_leaves_for_want_of_one() -> None:
    scene = in_job()
    scene.epoch(2)
    scene.obeys = lambda action: action.kind != "start-agent"
    scene.node("n1", drained_by_other=True)
    scene.node("n3", agent=False, checked_at=None)
    assert isinstance(decided(scene), Continue)
    scene.wait(AUTO.node.check_s)
    scene.change(last_advance=scene.now)
    stop = decided(scene)
    assert isinstance(stop, PlannedStop)
    assert stop.then == "next-job"


def test_the_next_job_is_asked_for_without_a_spare_that_is_ill() -> None:
    scene = in_job(AUTO.model_copy(update={"spares": SpareRules(low=1)}))
    scene.node("n3", unhealthy=("gpus: GPU 3 has fallen off the bus",))
    scene.settle()
    end_ranks(scene)
    scene.settle()
    assert [a for a in scene.done if isinstance(a, actions.NextJob)] == [actions.NextJob("12", JOB.start, ("n3",))]


def test_the_steps_are_ended_before_the_job_is_and_by_the_next_controller_too() -> None:
    """Slurm drains healthy nodes of a job that ends before a step that has lost a node."""
    scene = in_job(AUTO)
    scene.say(Ended("next-job"))
    view = replace(scene.view, job=replace(JOB, next="13", can_follow=False))
    assert actions.Release() in upkeep(scene.history, view, scene.rules, scene.now)
    assert upkeep(scene.history, replace(view, released=True), scene.rules, scene.now) == ()
    requeued = replace(view, job=replace(JOB, next="requeued"))
    assert actions.Release() not in upkeep(scene.history, requeued, scene.rules, scene.now)


@pytest.mark.parametrize(("low", "leaves"), [(0, False), (1, True), (7, True)])
def test_spent_spares_are_made_up_for_where_the_profile_says_so(low: int, leaves: bool) -> None:
    rules = AUTO.model_copy(update={"spares": SpareRules(low=low)})
    scene = in_job(rules)
    assert isinstance(decided(scene), Continue)  # never more than the job began with
    scene.node("n3", state=NodeState.DOWN)
    found = decided(scene)
    assert isinstance(found, PlannedStop if leaves else Continue)
    asks = in_job(rules.model_copy(update={"mode": "approve"}))
    asks.node("n3", state=NodeState.DOWN)
    told = decided(asks)
    assert isinstance(told, Continue)
    assert (told.reason is Reason.SPARES_LOW) is leaves


def test_a_spare_whose_agent_or_checks_are_only_late_is_not_spent() -> None:
    scene = in_job(AUTO.model_copy(update={"spares": SpareRules(low=1)}))
    scene.node("n3", agent=False, checked_at=None)
    assert isinstance(decided(scene), Continue)
    scene.node("n3", agent=True, unhealthy=("disk",))
    assert isinstance(decided(scene), PlannedStop)


def test_a_spare_that_was_barred_in_an_earlier_job_is_not_left_for() -> None:
    """Else the run would go from job to job, and get it again each time."""
    scene = in_job(AUTO.model_copy(update={"spares": SpareRules(low=1)}))
    assert scene.history.job is not None
    for at, leaves in ((scene.history.job.at - 1, False), (scene.history.job.at + 1, True)):
        one = in_job(AUTO.model_copy(update={"spares": SpareRules(low=1)}))
        one.history = replace(one.history, bars=(Bar("n3", at, 1, Reason.NODE_LOST),))
        assert isinstance(decided(one), PlannedStop) is leaves


def test_with_no_node_for_a_slot_the_next_job_is_the_way_on_once() -> None:
    scene = in_job()
    scene.node("n3", state=NodeState.DOWN)
    scene.lose("n1")
    scene.settle()
    assert scene.history.ended == "next-job"
    assert scene.history.halted is None
    scene.view = replace(scene.view, job=replace(JOB, id="13"))
    scene.wait(AUTO.node.launch_s + AUTO.node.gone_s)
    late = decided(scene)
    assert isinstance(late, Halt)  # the next one has no node for it either: nothing is tried in a circle
    assert late.reason is Reason.NO_SPARE


def test_a_node_that_is_up_may_be_kept_with_the_words_that_are_needed() -> None:
    scene = in_job(APPROVE)
    scene.node("n3", state=NodeState.DOWN)
    scene.view = replace(
        scene.view, findings=(replace(finding("xid", "root", 1, scene.now), category="hardware.gpu", node="n1"),)
    )
    scene.die(1)
    halt = decided(scene)
    assert isinstance(halt, Halt)
    assert 'relight resume demo --keep-node n1 --because "..."' in halt.lifts


def test_in_mode_approve_it_halts_and_names_the_command() -> None:
    scene = in_job(APPROVE)
    scene.node("n3", state=NodeState.DOWN)
    scene.lose("n1")
    halt = decided(scene)
    assert isinstance(halt, Halt)
    assert "--next-job" in halt.lifts
    assert "--keep-node" not in halt.lifts  # a node that was down has left the job: the way back would lead here again
    request = Request("00000000000000-00000000", "stop", "li", scene.now, next_job=True, why="new spares")
    reply = judge(request, scene.history, scene.view, scene.now)
    assert reply.answer.exit == 0
    scene.say(*reply.entries)
    scene.settle()
    assert scene.history.ended == "next-job"


def test_mode_observe_has_no_next_job_and_says_so_before_anything_is_stopped() -> None:
    """Nothing would ask for it, and without a seal it would begin from an old save, or from nothing."""
    scene = in_job(OBSERVE)
    request = Request("00000000000000-00000000", "stop", "li", scene.now, next_job=True)
    reply = judge(request, scene.history, scene.view, scene.now)
    assert (reply.answer.exit, len(reply.entries)) == (4, 1)
    assert "mode observe asks for no job" in reply.answer.text
    assert judge(replace(request, next_job=False), scene.history, scene.view, scene.now).answer.exit == 0
    ends_in(scene, OBSERVE.job.told_s - 1)
    told = decided(scene)
    assert isinstance(told, Continue)
    said = warning(scene.history, told)
    assert said is not None
    assert "--next-job" not in said.body


@pytest.mark.parametrize("phase", [JobPhase.ENDING, JobPhase.WAITING])
def test_what_ends_with_its_job_is_no_incident(phase: JobPhase) -> None:
    scene = in_job()
    scene.view = replace(scene.view, job=replace(JOB, phase=phase, word=phase.value.upper()))
    for name in nodes():
        scene.node(name, state=NodeState.DOWN)
    wait = decided(scene)
    assert isinstance(wait, Wait)
    assert wait.reason is Reason.NEXT_JOB
    assert scene.history.incidents == ()


def test_sigterm_of_every_rank_waits_for_a_look_at_the_job() -> None:
    scene = in_job()
    end_ranks(scene, signal=15)
    scene.view = replace(scene.view, cluster_as_of=scene.now - 1)
    scene.settle()
    assert scene.history.incidents == ()
    scene.view = replace(scene.view, cluster_as_of=scene.now + 5)
    scene.settle()
    assert [i.fault for i in scene.history.incidents] == [FaultClass.RANK_DIED]


@pytest.mark.parametrize(("word", "how"), [("CANCELLED", "stopped"), ("TIMEOUT", "next-job")])
def test_a_job_that_is_over_ends_the_run_or_is_followed(word: str, how: str) -> None:
    """Seen by whoever watches from outside."""
    scene = in_job()
    scene.view = replace(
        scene.view, job=replace(JOB, phase=JobPhase.ENDED, word=word), steps_running=frozenset(), store_as_of=1e9
    )
    for name in nodes():
        scene.node(name, state=NodeState.DOWN)
    scene.settle()
    assert scene.history.ended == how
    assert scene.history.incidents == ()


def test_a_stop_after_a_save_waits_for_it_and_makes_no_other() -> None:
    scene = in_job()
    scene.say(StopAsked("li", after_save=True))
    assert isinstance(decided(scene), Continue)
    scene.store(replace(save(40), completed_at=scene.now + 1))
    scene.settle()
    assert [one.down for one in stops(scene)] == [True]
    assert not any(isinstance(a, actions.AskStop) for a in scene.done)


def test_a_fault_on_the_way_out_is_no_incident_and_is_not_waited_for() -> None:
    rules = AUTO.model_copy(update={"job": JobRules(move_s=100)})
    scene = in_job(rules)
    scene.say(StopAsked("li", "next-job"))
    scene.settle()
    scene.die(1)
    scene.settle()
    assert scene.history.incidents == ()
    assert actions.Stop(1) in scene.done


def test_a_halted_run_is_not_stopped_and_where_there_is_no_job_none_follows() -> None:
    scene = training()
    request = Request("00000000000000-00000000", "stop", "li", scene.now, next_job=True)
    assert judge(request, scene.history, scene.view, scene.now).answer.exit == 4
    scene.say(HaltedEntry(Reason.PERSON_HALTED, "li", "", None))
    assert judge(replace(request, next_job=False), scene.history, scene.view, scene.now).answer.exit == 4


def test_a_job_that_waited_for_long_gives_its_nodes_the_time_to_get_their_agents() -> None:
    """The wait for agents is counted from the begin of the job, not from the stop in the one before."""
    scene = in_job()
    ends_in(scene, 10)
    scene.settle()
    end_ranks(scene)
    scene.settle()
    scene.wait(10 * (AUTO.node.launch_s + AUTO.node.gone_s))
    fresh = {name: replace(one, agent=False, checked_at=None) for name, one in nodes().items()}
    scene.store(save(40))
    scene.view = replace(scene.view, job=replace(JOB, start="later"), nodes=fresh)
    scene.obeys = lambda action: action.kind != "start-agent"
    scene.settle()
    scene.wait(START_GRACE_S + 1)
    wait = decided(scene)
    assert isinstance(wait, Wait)
    assert wait.reason is Reason.FIRST_START
    scene.obeys = lambda _: True
    scene.wait(60)
    scene.settle()
    assert scene.history.halted is None
    assert scene.history.attempt is not None
    assert scene.history.attempt.number == 2


def test_while_its_job_does_not_run_nothing_is_started_in_it() -> None:
    scene = in_job()
    scene.view = replace(scene.view, job=replace(JOB, phase=JobPhase.ENDING, word="COMPLETING"))
    for name in nodes():
        scene.node(name, agent=False, drained_by_other=True)
    scene.done.clear()
    scene.settle()
    assert scene.of("start-agent") == []


def test_a_job_that_is_cancelled_before_the_next_one_begins_ends_the_run() -> None:
    """As by a person who cancels it while it leaves, or while it waits."""
    scene = in_job()
    scene.say(StopAsked("relight", "next-job"))
    scene.settle()
    over = replace(JOB, phase=JobPhase.ENDED, word="CANCELLED")
    scene.view = replace(scene.view, job=over, steps_running=frozenset(), store_as_of=1e9)
    scene.settle()
    assert scene.history.ended == "stopped"
    assert scene.of("next-job") == []
    waits = in_job()
    waits.say(StopAsked("relight", "next-job"))
    waits.settle()
    end_ranks(waits)
    waits.settle()
    assert waits.history.ended == "next-job"
    waits.view = replace(waits.view, job=replace(over, start=""))
    waits.settle()
    assert waits.history.ended == "stopped"


def test_with_every_spare_wanted_back_too_the_run_goes_on_in_the_next_job() -> None:
    """It has left its slots to move here, and meanwhile nothing is left to move to."""
    scene = in_job()
    scene.node("n1", drained_by_other=True)
    scene.settle()
    scene.node("n3", drained_by_other=True)
    end_ranks(scene)
    scene.store(save(40))
    scene.settle()
    scene.wait(AUTO.node.launch_s + 1)
    scene.settle()
    assert scene.history.halted is None
    assert scene.history.ended == "next-job"


def test_an_attempt_that_fails_before_it_is_accepted_is_not_taken_for_a_stop_that_was_asked_for() -> None:
    """With an incident open the ranks are not asked to save yet; a fault then must not be passed over in silence."""
    scene = in_job()
    scene.die(1)
    scene.settle()
    assert scene.history.attempt is not None
    assert scene.history.attempt.number == 2
    scene.say(StopAsked("li", "next-job"))
    scene.die(1)
    scene.settle()
    assert [i.attempt for i in scene.history.incidents] == [1, 2]
    assert scene.history.ended == "next-job"


def left(scene: Scene) -> None:
    """The run has left its job for the next one."""
    scene.say(StopAsked("relight", "next-job"))
    scene.settle()
    end_ranks(scene)
    scene.settle()
    assert scene.history.ended == "next-job"


def test_a_stop_that_a_person_asks_for_between_two_jobs_holds_in_the_next_one() -> None:
    scene = in_job()
    left(scene)
    scene.epoch(2)
    reply = judge(Request("00000000001000-0a0b0c0d", "stop", "li", 1.0), scene.history, scene.view, scene.now)
    assert reply.answer.exit == 0
    for entry in reply.entries:
        scene.say(entry)
    scene.view = replace(scene.view, job=replace(JOB, id="13"))
    scene.settle()
    assert scene.history.ended == "stopped"
    assert len(scene.history.attempts) == 1


def test_a_time_limit_that_is_shorter_than_the_time_to_leave_leaves_half_of_the_job_to_train_in() -> None:
    half = AUTO.job.leave_s / 4
    scene = in_job()
    ends_in(scene, half + 1, ran=half - 1)
    assert isinstance(decided(scene), Continue)
    ends_in(scene, half, ran=half)
    assert isinstance(decided(scene), PlannedStop)
    preempted = in_job()
    ends_in(preempted, half + 1, "preemption", ran=half - 1)
    assert isinstance(decided(preempted), PlannedStop)
    assert AUTO.job.down_s > 12
    ends_in(scene, 13, ran=47)
    scene.settle()
    assert [one.down for one in stops(scene)] == [False]
    ends_in(scene, 12, ran=48)
    scene.settle()
    assert [one.down for one in stops(scene)] == [False, True]


def test_jobs_that_complete_no_save_are_not_an_endless_chain_and_a_person_lifts_it() -> None:
    scene = in_job()
    for number in range(AUTO.budget.no_progress_attempts):
        left(scene)
        assert scene.history.halted is None
        scene.view = replace(scene.view, job=replace(JOB, id=str(13 + number)), steps_running=frozenset())
        scene.wait(1)
        scene.settle()
        if number == 0:
            assert scene.history.job is not None
            assert scene.history.job.barren == 0  # the first has completed a save
    assert scene.history.halted is None
    left(scene)
    scene.view = replace(scene.view, job=replace(JOB, id="99"))
    scene.wait(1)
    scene.settle()
    assert scene.history.halted is not None
    assert scene.history.halted.reason is Reason.NO_PROGRESS
    attempts = len(scene.history.attempts)
    scene.say(Resumed("li", "a longer limit"))
    scene.wait(60)
    scene.settle()
    assert scene.history.halted is None
    assert len(scene.history.attempts) == attempts + 1
