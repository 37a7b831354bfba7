"""Stories: what the controller's pure part makes of a world that obeys it at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import (
    APPROVE,
    AUTO,
    BARS_FOR_AN_HOUR,
    LAYOUT,
    OBSERVE,
    Scene,
    back,
    end,
    row,
    save,
    save_id,
    show,
    training,
)

from policies import ledger
from policies.decisions import Contain, Continue, Finish, Halt, PlannedStop, Recover, Wait
from policies.facts import UNKNOWN, AttemptView, CheckpointPhase, FaultClass, NodeState, Phase, Replay, SaveView
from policies.history import Choice
from policies.reasons import Reason
from policies.rules import NodeRules
from supervisor import actions
from supervisor.gate import Held
from supervisor.journal.entries import (
    Approved,
    Chosen,
    HaltedEntry,
    Intended,
    Paused,
    Refused,
    Reopened,
    Resumed,
    StopAsked,
    Withdrawn,
)
from supervisor.plan import LISTED_S
from supervisor.remember import AGENTS_TELL_S
from supervisor.tick import tick


def names(scene: Scene) -> list[str]:
    return [type(s.entry).__name__ for s in scene.stamped]


def test_a_run_starts_and_trains() -> None:
    """Four nodes are there: three take the slots by name, every rank loads nothing, one update, and it runs."""
    scene = training(save_at=0)
    attempt = scene.history.attempt
    assert attempt is not None
    assert attempt.slots == ("n0", "n1", "n2")
    assert attempt.checkpoint is None
    turn = scene.tick()
    assert isinstance(turn.decision, Continue)
    assert turn.decision.reason is Reason.RUNNING
    assert scene.done == []


def test_a_rank_dies_and_the_run_comes_back_in_place() -> None:
    """Evidence, fence, stop; then the same nodes again, from the completed save; then the update, then the frontier."""
    scene = training()
    scene.die(1)
    turn = scene.settle()
    assert scene.kinds() == ["capture", "fence", "stop", "make-view", "launch"]
    launch = scene.of("launch")[0]
    assert isinstance(launch, actions.Launch)
    assert (launch.slots, launch.checkpoint, launch.attempt) == (("n0", "n1", "n2"), save_id(40), 2)
    assert isinstance(turn.decision, Wait)
    assert turn.decision.reason is Reason.ACCEPTING
    incident = scene.history.incident
    assert incident is not None
    assert (incident.fault, incident.frontier, incident.barred) == (FaultClass.RANK_DIED, 45, ())
    scene.load()
    scene.step(41)
    assert scene.settle().decision.reason is Reason.PROBATION
    assert scene.history.incident is None
    scene.step(46)
    assert scene.settle().decision.reason is Reason.RUNNING
    assert scene.history.incidents[-1].times.caught_up is not None
    scene.finish_ranks()
    scene.settle()
    assert ledger.lineage(scene.history.books) == 46
    assert scene.history.books.rolled_back == 5
    assert scene.history.books.samples_read_again == 40


def test_nothing_is_killed_before_the_evidence_is_kept() -> None:
    """The agents take their time over the evidence: nothing is fenced or stopped meanwhile."""
    scene = training()
    scene.obeys = lambda a: a.kind != "capture"
    scene.die(1)
    turn = scene.settle()
    assert scene.kinds() == ["capture"]
    assert isinstance(turn.decision, Contain)
    assert turn.next_look <= scene.history.incidents[-1].times.confirmed + AUTO.evidence.capture_s  # type: ignore[operator]
    scene.view = show(scene.view, scene.done[0])
    scene.settle()
    assert scene.kinds()[:3] == ["capture", "fence", "stop"]


def test_a_lost_node_is_barred_and_the_spare_takes_its_slot() -> None:
    """n1 goes down: barred; n3 takes slot 1; no other rank moves."""
    scene = training()
    scene.lose("n1")
    scene.die(0, signal=None, code=1)
    scene.settle()
    assert scene.kinds() == ["capture", "fence", "stop", "bar", "make-view", "launch"]
    attempt = scene.history.attempt
    assert attempt is not None
    assert attempt.slots == ("n0", "n3", "n2")
    assert [(b.node, b.until) for b in scene.history.bars] == [("n1", None)]
    assert scene.history.incidents[-1].swaps == ((1, "n1", "n3"),)
    back(scene)
    assert scene.tick().decision.reason is Reason.RUNNING


def test_a_frozen_node_is_barred_without_waiting_for_its_ranks() -> None:
    """n1 does not answer while the others do. Its ranks cannot be reached: fenced, and the run goes on without it."""
    scene = training()
    scene.node("n1", state=NodeState.SILENT, agent=False)
    scene.tick()
    assert scene.history.incident is None
    scene.wait(AUTO.node.silent_s)
    scene.step(46)
    scene.settle()
    assert scene.kinds() == ["capture", "fence", "stop", "bar", "make-view", "launch"]
    assert scene.history.barred(scene.now) == {"n1"}
    assert scene.history.incidents[-1].fault is FaultClass.NODE_SILENT
    assert scene.history.attempt.slots == ("n0", "n3", "n2")  # type: ignore[union-attr]


@pytest.mark.parametrize("blind", ["most-silent", "cluster", "store"])
def test_blindness_bars_nobody_and_restarts_nothing(blind: str) -> None:
    """What the controller can't see, it does not punish, however long it lasts."""
    scene = training()
    if blind == "most-silent":
        for name in ("n0", "n1", "n2"):
            scene.node(name, state=NodeState.SILENT, agent=False)
    elif blind == "cluster":
        scene.view = replace(scene.view, nodes=UNKNOWN)
    else:
        scene.view = replace(scene.view, checkpoints=UNKNOWN)
    for _ in range(3):
        scene.wait(200)
        if blind == "store":
            scene.step(scene.shown.frontier + 1)
        scene.settle()
    assert not {"bar", "fence", "stop", "launch"} & set(scene.kinds())
    assert scene.history.bars == ()
    assert scene.history.incidents == ()


def test_a_fault_while_the_store_cannot_be_read_waits_for_it() -> None:
    """A rank dies and the store is gone: nothing is decided until it can be read again; then the run comes back."""
    scene = training()
    before = scene.view.checkpoints
    scene.view = replace(scene.view, checkpoints=UNKNOWN)
    scene.die(0)
    turn = scene.settle()
    assert turn.decision.reason is Reason.STORE_BLIND
    assert scene.kinds() == []
    scene.view = replace(scene.view, checkpoints=before)
    scene.settle()
    assert scene.kinds()[-1] == "launch"


def test_a_stall_in_approve_mode_stops_nothing_before_approval() -> None:
    """No rank moves, nothing has died: stacks are taken, a plan is made, and the ranks are left as they stand."""
    scene = training(APPROVE)
    scene.wait(60)
    scene.change(behind=(1,))
    turn = scene.settle()
    assert scene.kinds() == ["capture"]
    capture = scene.done[0]
    assert isinstance(capture, actions.Capture)
    assert capture.stacks
    assert turn.held is not None
    assert turn.held.asks
    scene.say(Approved(scene.history.decision_digest or "", "li"))
    scene.settle()
    assert scene.kinds() == ["capture", "fence", "stop", "bar", "make-view", "launch"]
    assert scene.history.incidents[-1].approved_by == "li"


@pytest.mark.parametrize("how", ["refused", "no spare"])
def test_a_halt_of_a_stall_in_approve_mode_stops_nothing(how: str) -> None:
    """It may only be slow: a refusal, or no spare, halts the restarts. The ranks are a person's to stop."""
    scene = training(APPROVE)
    if how == "no spare":
        scene.lose("n3")
    scene.wait(60)
    scene.change(behind=(1,))
    scene.settle()
    if how == "refused":
        scene.say(Refused(scene.history.decision_digest or "", "li", "it is slow"))
    turn = scene.settle()
    assert isinstance(turn.decision, Halt)
    assert turn.held is not None
    assert scene.kinds() == ["capture"]
    scene.say(HaltedEntry(Reason.PERSON_HALTED, "li asked for it", "", 1))
    scene.settle()
    assert scene.kinds() == ["capture", "fence", "stop"]


def test_two_nodes_lost_and_one_spare_halts() -> None:
    """The same shape cannot be formed: halt, and say which slot is without."""
    scene = training()
    scene.lose("n1", "n2")
    turn = scene.settle()
    assert isinstance(turn.decision, Halt)
    assert turn.decision.reason is Reason.NO_SPARE
    assert "slot 2" in turn.decision.seen
    assert scene.kinds() == ["capture", "fence", "stop"]
    assert scene.history.halted is not None


def test_a_spare_without_an_agent_is_waited_for_before_it_halts() -> None:
    """The simulated world found it: a new controller halted for want of a spare before the agents had found it."""
    scene = training()
    spare = next(name for name in scene.view.nodes if name not in scene.history.attempt.slots)  # type: ignore[union-attr]
    scene.obeys = lambda a: a.kind != "start-agent"
    scene.node(spare, agent=False)
    scene.lose("n1")
    turn = scene.settle()
    assert isinstance(turn.decision, Wait)
    assert turn.decision.reason is Reason.NO_SPARE
    scene.node(spare, agent=True)
    assert isinstance(scene.settle().decision, Wait)  # launched, and waited for
    assert len(scene.history.attempts) == 2


def test_a_spare_whose_agent_never_comes_is_none() -> None:
    scene = training()
    spare = next(name for name in scene.view.nodes if name not in scene.history.attempt.slots)  # type: ignore[union-attr]
    scene.obeys = lambda a: a.kind != "start-agent"
    scene.node(spare, agent=False)
    scene.lose("n1")
    scene.settle()
    scene.wait(scene.rules.node.gone_s + 1)
    assert isinstance(scene.settle().decision, Halt)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_write_torn_between_two_entries_leaves_no_incident_open(kept: int) -> None:
    """The simulated world found it: the acceptance was on the disk, the end of the incident was not, and never came."""
    scene = training()
    scene.die(1)
    scene.settle()
    attempt = scene.history.attempt
    assert attempt is not None
    scene.load()
    scene.settle()
    scene.step(attempt.start_step + 1)
    turn = tick(scene.history, scene.view, LAYOUT, scene.rules, scene.now, scene.lag_s)
    assert len(turn.entries) >= 2
    scene.say(*turn.entries[:kept])
    scene.epoch(2)
    scene.settle()
    assert scene.history.incident is None
    assert scene.history.attempt is not None
    assert scene.history.attempt.accepted_at is not None


def test_a_halt_of_the_attempt_that_was_to_end_an_incident_can_be_lifted() -> None:
    """The simulated world found it: halted on its way back and resumed, the run stayed down and nothing was decided."""
    scene = training()
    scene.die(1)
    scene.settle()
    assert len(scene.history.attempts) == 2
    scene.say(HaltedEntry(Reason.PERSON_HALTED, "li asked for it", "resume", 1))
    scene.settle()
    scene.view = replace(scene.view, steps_running=frozenset())
    scene.settle()
    assert scene.history.attempts[-1].closed_at is not None
    scene.say(Resumed("li", "looked at it"))
    scene.settle()
    assert len(scene.history.attempts) == 3
    assert scene.history.attempts[-1].incident == 1
    back(scene)
    assert scene.history.incident is None


def test_no_launch_while_old_ranks_may_be_reached() -> None:
    """The stop is asked for and the old step goes on showing ranks: it is asked for again, and nothing is launched."""
    scene = training()
    scene.obeys = lambda a: a.kind != "stop"
    scene.die(1)
    for _ in range(5):
        scene.settle()
        scene.wait(3)
    assert scene.kinds().count("stop") >= 3
    assert "launch" not in scene.kinds()


def test_the_spare_dies_while_the_plan_waits() -> None:
    """The plan is withdrawn; the next one has another digest, and the old approval does not count for it."""
    scene = training(APPROVE)
    scene.view = replace(scene.view, nodes={**scene.view.nodes, "n4": replace(scene.view.nodes["n3"], name="n4")})  # type: ignore[dict-item]
    scene.lose("n1")
    scene.settle()
    first = scene.history.decision_digest
    assert first is not None
    scene.lose("n3")
    scene.settle()
    withdrawn = [s.entry for s in scene.stamped if isinstance(s.entry, Withdrawn)]
    assert [(w.digest, w.why) for w in withdrawn] == [(first, "n3 is gone")]
    second = scene.history.decision_digest
    assert second not in {None, first}
    scene.say(Approved(first, "li"))
    scene.settle()
    assert "launch" not in scene.kinds()
    scene.say(Approved(second or "", "li"))
    scene.settle()
    assert scene.history.attempt.slots == ("n0", "n4", "n2")  # type: ignore[union-attr]


def test_a_refused_plan_halts_and_a_resume_asks_again() -> None:
    """No means no: halted. Lifted by a person, the plan is made again and asked again."""
    scene = training(APPROVE)
    scene.die(1)
    scene.settle()
    scene.say(Refused(scene.history.decision_digest or "", "li", "not now"))
    turn = scene.settle()
    assert isinstance(turn.decision, Halt)
    assert scene.history.halted is not None
    assert scene.history.halted.reason is Reason.REFUSED
    scene.say(Resumed("li", "now"))
    turn = scene.settle()
    assert isinstance(turn.decision, Recover)
    assert turn.held is not None
    assert turn.held.asks


def test_halted_stays_halted() -> None:
    """Nodes come back, a day passes, a new controller begins: nothing is started until a person says so."""
    scene = training()
    scene.lose("n1", "n2")
    scene.settle()
    scene.done.clear()
    for name in ("n1", "n2"):
        scene.node(name, state=NodeState.UP, agent=True)
    scene.wait(86_400)
    scene.epoch(2)
    turn = scene.settle()
    assert isinstance(turn.decision, Halt)
    assert scene.kinds() == ["release"]  # the nodes were held for hold_s
    scene.say(Resumed("li", "both were rebooted"))
    scene.settle()
    assert scene.kinds()[-1] == "launch"


def test_a_person_halts_a_run_that_trains_and_lets_it_go_on() -> None:
    """Halted by a person, without a fault: stopped. Resumed: the next attempt starts from the newest save."""
    scene = training(APPROVE)
    scene.say(HaltedEntry(Reason.PERSON_HALTED, "li asked for it", "relight resume", None))
    scene.settle()
    assert scene.kinds() == ["fence", "stop"]
    scene.say(Resumed("li", "go on"))
    scene.settle()
    assert scene.kinds() == ["fence", "stop", "make-view", "launch"]
    assert scene.history.attempt.checkpoint == save_id(40)  # type: ignore[union-attr]


def test_observe_only_watches() -> None:
    """A rank dies under observe: the evidence is kept, and it says what it would do."""
    scene = training(OBSERVE)
    scene.die(1)
    scene.store(save(44, phase=CheckpointPhase.FRAMEWORK_DONE))
    turn = scene.settle()
    assert scene.kinds() == ["capture"]
    assert turn.held == Held("mode observe: says what it would do", asks=False)


def test_paused_only_seals() -> None:
    """Paused: a rank dies, a save is finished. The save is sealed; nothing is stopped or started."""
    scene = training()
    scene.say(Paused("li", "a switch is replaced"))
    scene.die(1)
    scene.store(save(44, phase=CheckpointPhase.FRAMEWORK_DONE))
    turn = scene.settle()
    assert set(scene.kinds()) == {"capture", "seal"}
    assert turn.held == Held("the run is paused", asks=False)
    scene.say(Resumed("li", "replaced"))
    scene.settle()
    assert scene.kinds()[-1] == "launch"
    assert scene.history.attempt.checkpoint == save_id(44)  # type: ignore[union-attr]


def test_the_software_budget_halts() -> None:
    """Two restarts are allowed: the third failure of the code is the last."""
    scene = training()
    for n in range(3):
        scene.die(n, signal=None, code=1)
        turn = scene.settle()
        if n < 2:
            back(scene)
            scene.step(scene.shown.frontier + 5)  # other data each time
            scene.store(save(scene.shown.frontier, scene.shown.number))
            scene.settle()
    assert isinstance(turn.decision, Halt)
    assert turn.decision.reason is Reason.BUDGET_SOFTWARE
    assert scene.kinds().count("launch") == 2


def test_a_planned_stop_saves_and_ends_without_an_incident() -> None:
    """Asked to stop: the ranks save and end with 0; the last save is sealed before the nodes are let go; it can go on."""
    scene = training()
    scene.say(StopAsked("li"))
    turn = scene.settle()
    assert isinstance(turn.decision, PlannedStop)
    assert scene.kinds() == ["ask-stop"]
    scene.step(46)
    scene.finish_ranks()
    scene.store(save(46, phase=CheckpointPhase.FRAMEWORK_DONE))
    turn = scene.settle()
    assert isinstance(turn.decision, Finish)
    assert turn.decision.reason is Reason.PLANNED_STOP
    assert scene.kinds() == ["ask-stop", "seal", "release"]
    assert scene.history.ended == "stopped"
    assert scene.history.incidents == ()
    scene.say(Reopened("demo"))
    scene.view = replace(scene.view, released=False)
    scene.done.clear()
    turn = scene.settle()
    assert scene.kinds()[-1] == "launch"  # the ranks that ended are still in sight: that was no end of the training
    assert scene.history.attempt.checkpoint == "a0001-i0000046"
    assert scene.history.ended is None


def test_a_fault_on_the_way_to_a_planned_stop_stops_it() -> None:
    """A rank dies while the ranks are asked to stop. What is saved is saved: nothing is started again only to be stopped."""
    scene = training()
    scene.say(StopAsked("li"))
    scene.die(1)
    turn = scene.settle()
    assert scene.history.attempt.number == 1  # type: ignore[union-attr]
    assert scene.history.ended == "stopped"
    assert isinstance(turn.decision, Finish)
    assert scene.history.incident is not None  # the next start of the run recovers from it


def test_the_training_ends() -> None:
    """Every rank ends with 0: finished, and the nodes are let go once."""
    scene = training()
    scene.step(50)
    scene.finish_ranks()
    turn = scene.settle()
    assert isinstance(turn.decision, Finish)
    assert turn.decision.reason is Reason.FINISHED
    assert scene.kinds() == ["release"]
    assert scene.tick().entries == ()


@pytest.mark.parametrize("lag", [0.0, 30.0])
def test_a_launch_that_a_dead_controller_intended_is_asked_again_by_the_same_name(lag: float) -> None:
    """The controller died between the intent and the effect. The next one asks for the same step, once its lag is over."""
    scene = training()
    scene.lag_s = lag
    scene.obeys = lambda a: a.kind != "launch"
    scene.die(1)
    scene.settle()
    asked = scene.of("launch")
    scene.done.clear()
    scene.obeys = lambda _: True
    scene.wait(1)
    scene.epoch(2)
    turn = scene.settle()
    if lag:
        assert scene.of("launch") == []
        assert turn.next_look <= scene.now + lag
        scene.wait(lag)
        scene.settle()
    assert scene.of("launch") == asked
    assert asked[0].epoch == 1  # type: ignore[union-attr]
    assert scene.history.attempt.epoch == 1  # type: ignore[union-attr]
    assert [a.number for a in scene.history.attempts] == [1, 2]
    back(scene)
    assert scene.history.incidents[-1].closed


def test_a_launch_that_does_not_show_is_asked_again_by_the_same_controller() -> None:
    """The reply was lost. After 20 s the same step is asked for, once."""
    scene = training()
    scene.obeys = lambda a: a.kind != "launch"
    scene.die(1)
    scene.settle()
    scene.wait(actions.RETRY_S["launch"] - 1)
    scene.settle()
    assert len(scene.of("launch")) == 1
    scene.wait(2)
    scene.settle()
    assert len(scene.of("launch")) == 2
    assert scene.of("launch")[0] == scene.of("launch")[1]


def test_a_launch_that_never_shows_is_fenced_and_made_again() -> None:
    """Nothing of attempt 2 is ever seen. It is fenced, so that what appears late is refused, and attempt 3 is launched."""
    scene = training()
    scene.obeys = lambda a: a.kind != "launch"
    scene.die(1)
    scene.settle()
    scene.view = replace(scene.view, attempt=replace(scene.shown, number=2, started=frozenset(), exits=(), loaded={}))
    scene.change(first_step=None, last_step=None, frontier=0, last_advance=None, phase=Phase.START_UP)
    scene.wait(AUTO.node.launch_s + 1)
    scene.settle()
    assert actions.Fence(2) in scene.done
    scene.obeys = lambda _: True
    scene.wait(AUTO.node.gone_s + 20)
    scene.settle()
    assert scene.history.attempt.number == 3  # type: ignore[union-attr]
    assert scene.history.incidents[-1].follows == 1


def test_every_action_may_be_asked_for_twice() -> None:
    """A controller that dies after each intent: the next one asks again, and the run ends up where it would have."""
    once, twice = training(), training()
    for scene in (once, twice):
        scene.lose("n1")
    once.settle()
    lost: set[str] = set()
    twice.obeys = lambda a: actions.key(a) in lost
    for _ in range(60):
        turn = twice.tick()
        first = {actions.key(a) for a in turn.actions} - lost
        if first:  # it died before the effect
            lost |= first
            twice.wait(0.01)
            twice.epoch(twice.history.epoch + 1)
        twice.wait(0.01)
        if not turn.entries:
            break
    assert twice.history.attempt.slots == once.history.attempt.slots  # type: ignore[union-attr]
    assert [a.number for a in twice.history.attempts] == [1, 2]
    asked = {actions.key(a) for a in once.done if a.kind != "bar"}
    assert {one: [actions.key(a) for a in twice.done].count(one) for one in asked} == dict.fromkeys(asked, 2)
    assert twice.history.intents == {}


def test_a_save_that_the_framework_has_finished_is_sealed_before_the_choice() -> None:
    """Step 44 is on disk and only our checks are missing: they are made before five steps are thrown away."""
    scene = training()
    scene.obeys = lambda a: a.kind != "seal"
    scene.store(save(44, phase=CheckpointPhase.FRAMEWORK_DONE))
    scene.die(1)
    turn = scene.settle()
    assert isinstance(turn.decision, Wait)
    assert turn.decision.reason is Reason.SEALING
    assert "launch" not in scene.kinds()
    scene.view = show(scene.view, scene.of("seal")[0])
    scene.settle()
    assert scene.history.attempt.checkpoint == save_id(44)  # type: ignore[union-attr]


def test_a_seal_that_never_ends_is_not_waited_for_for_ever() -> None:
    """After `seal_s` the older completed save is taken."""
    scene = training()
    scene.obeys = lambda a: a.kind != "seal"
    scene.store(save(44, phase=CheckpointPhase.FRAMEWORK_DONE))
    scene.die(1)
    scene.settle()
    scene.wait(AUTO.checkpoint.seal_s + 1)
    scene.settle()
    assert scene.history.attempt.checkpoint == save_id(40)  # type: ignore[union-attr]


def test_what_a_dead_attempt_had_not_finished_is_abandoned() -> None:
    """Step 44 was being written. A node that thaws must not make it complete later."""
    scene = training()
    scene.store(save(44, phase=CheckpointPhase.IN_PROGRESS))
    scene.die(1)
    scene.settle()
    assert scene.of("abandon") == [actions.Abandon((save_id(44),))]
    kinds = scene.kinds()
    assert kinds.index("stop") < kinds.index("abandon")
    assert scene.history.attempt.checkpoint == save_id(40)  # type: ignore[union-attr]


def test_the_late_tail_of_the_cascade_opens_no_second_incident() -> None:
    """The others die of the first death, seconds later and during the stop: one incident, one cause."""
    scene = training()
    scene.obeys = lambda a: a.kind != "stop"
    scene.die(1)
    scene.settle()
    scene.wait(1)
    scene.die(0, signal=6)
    scene.die(2, signal=6)
    scene.settle()
    scene.obeys = lambda _: True
    scene.wait(2)
    scene.settle()
    assert len(scene.history.incidents) == 1
    diagnosis = scene.history.incidents[0].diagnosis
    assert diagnosis is not None
    assert [f.rank for f in diagnosis.first] == [1]
    assert scene.history.attempt.number == 2  # type: ignore[union-attr]
    scene.settle()
    assert len(scene.history.incidents) == 1


def test_what_fails_acceptance_opens_an_incident_that_follows() -> None:
    """Rank 2 has loaded other bytes. The attempt is stopped, and the next incident inherits the old frontier."""
    scene = training()
    scene.die(1)
    scene.settle()
    scene.load()
    told = scene.shown.loaded
    scene.change(loaded={**told, 2: replace(told[2], digest="other")})
    scene.settle()
    first, second = scene.history.incidents
    assert (second.follows, second.fault, second.attempt) == (1, FaultClass.ACCEPTANCE, 2)
    assert first.closed
    assert first.times.next_good is None
    assert second.frontier == 45
    assert "digest" in second.trouble.text
    assert scene.history.attempt.number == 3  # type: ignore[union-attr]


def test_what_fails_probation_opens_an_incident_that_follows() -> None:
    """The replayed losses are others than before the fault."""
    scene = training()
    scene.die(1)
    scene.settle()
    scene.load()
    scene.step(41)
    scene.settle()
    scene.step(42)
    scene.change(replay=Replay(2, 1, 0.5, 42, None, close=1))
    scene.settle()
    assert len(scene.history.incidents) == 1  # one point is no verdict
    scene.step(44)
    scene.change(replay=Replay(4, 3, 0.5, 42, None, close=3))
    scene.settle()
    assert [(i.follows, i.fault) for i in scene.history.incidents] == [
        (None, FaultClass.RANK_DIED),
        (1, FaultClass.PROBATION),
    ]
    assert scene.history.attempt.number == 3  # type: ignore[union-attr]


def test_a_person_chooses_another_checkpoint() -> None:
    """The open plan is made again with the older save; its digest is another one."""
    scene = training(APPROVE)
    scene.store(save(44))
    scene.die(1)
    scene.settle()
    first = scene.history.decision_digest
    scene.say(Chosen(Choice(checkpoint=save_id(40)), "li"))
    scene.settle()
    assert scene.history.decision_digest != first
    scene.say(Approved(scene.history.decision_digest or "", "li"))
    scene.settle()
    assert scene.history.attempt.checkpoint == save_id(40)  # type: ignore[union-attr]


def test_a_bar_that_has_run_out_bars_again() -> None:
    """n1 was barred for an hour, came back, and is lost again: it is barred anew."""
    scene = training(BARS_FOR_AN_HOUR)
    scene.lose("n1")
    scene.settle()
    back(scene)
    scene.wait(4000)
    scene.step(60)
    scene.store(save(60, 2))
    scene.node("n1", state=NodeState.UP, agent=True)
    scene.settle()
    scene.lose("n3")
    scene.settle()
    assert scene.history.attempt.slots == ("n0", "n1", "n2")  # type: ignore[union-attr]
    back(scene)
    scene.node("n3", state=NodeState.UP, agent=True)
    scene.wait(4000)
    scene.step(80)
    scene.settle()
    scene.lose("n1")
    scene.settle()
    assert [b.node for b in scene.history.bars] == ["n1", "n3", "n1"]
    assert scene.history.barred(scene.now) == {"n1"}
    assert scene.of("unbar") == [actions.Unbar("n1", 1), actions.Unbar("n3", 2)]


def test_retention_comes_to_rest() -> None:
    """The newest attempt's own checkpoint is older than the three that stay. It is kept, and nobody asks again."""
    scene = training()
    scene.die(1)
    scene.settle()
    back(scene)
    scene.store(*(save(step, 2) for step in (50, 60, 70, 80)))
    scene.settle()
    assert scene.kinds().count("retain") == 1
    assert save_id(40) in {c.id for c in scene.view.checkpoints}  # type: ignore[union-attr]
    assert save_id(50, 2) not in {c.id for c in scene.view.checkpoints}  # type: ignore[union-attr]
    scene.wait(60)
    scene.step(90)
    scene.settle()
    assert scene.kinds().count("retain") == 1


@pytest.mark.parametrize("kind", ["launch", "seal"])
def test_an_effect_that_fails_outright_is_not_hammered(kind: str) -> None:
    """It is told once, and asked for again after its time, not at once for ever."""
    scene = training()
    scene.obeys = lambda a: a.kind != kind
    if kind == "seal":
        scene.store(save(44, phase=CheckpointPhase.FRAMEWORK_DONE))
    else:
        scene.die(1)
    scene.settle()
    action = scene.of(kind)[0]
    scene.view = replace(scene.view, failures=((actions.key(action), "srun: error"),))
    scene.settle()
    assert len(scene.of(kind)) == 1
    assert names(scene).count("Settled") == names(scene).count("Intended")
    scene.wait(actions.RETRY_S[kind] + 1)
    if kind == "seal":
        scene.step(46)
    scene.tick()
    assert len(scene.of(kind)) == 2


def test_a_save_that_the_ranks_tell_of_is_marked_once() -> None:
    """Its in-progress mark is asked for before it is finished; a failed one is not."""
    scene = training()
    scene.change(saves=(SaveView(48, 1, scene.now, "begin"), SaveView(49, 1, scene.now, "failed")))
    scene.settle()
    assert scene.done == [actions.Begin((save_id(48),))]


def test_a_node_without_an_agent_gets_one() -> None:
    """At once from the first controller; from a later one only after the old agents had time to return."""
    scene = training()
    scene.node("n3", agent=False)
    scene.settle()
    assert scene.done == [actions.StartAgent("n3")]
    scene.node("n3", agent=False)
    scene.epoch(2)
    scene.settle()
    assert scene.kinds().count("start-agent") == 1
    scene.wait(6)
    scene.settle()
    assert scene.kinds().count("start-agent") == 2


def test_no_effect_without_an_intent() -> None:
    """Each action stands in the entries of the same look, before it is done."""
    scene = Scene()
    for _ in range(6):
        turn = scene.tick()
        assert [e.action for e in turn.entries if isinstance(e, Intended)] == list(turn.actions)


def test_a_run_known_from_log_lines_only_asks_a_person() -> None:
    """Nothing but log lines and exits is known: automation does not relaunch alone."""
    scene = Scene()
    scene.settle()
    scene.change(limited=True)
    scene.step(1)
    scene.settle()
    assert scene.history.attempt.limited  # type: ignore[union-attr]
    scene.die(1)
    turn = scene.settle()
    assert turn.held is not None
    assert "log lines" in turn.held.why


def test_the_next_look_is_the_earliest_deadline() -> None:
    """A run that trains is looked at when it would count as stalled."""
    scene = training()
    turn = scene.tick()
    stall = scene.shown.last_advance + AUTO.stall.step_floor_s + AUTO.stall.confirm_s  # type: ignore[operator]
    assert turn.next_look == pytest.approx(stall)


def test_the_world_shows_another_attempt() -> None:
    """The hub still tells of an older attempt: nothing is made of it."""
    scene = training()
    scene.die(1)
    scene.settle()
    scene.change(number=1, exits=(end(0, "n0", 1, signal=11),), last_step=row(45))
    turn = scene.settle()
    assert len(scene.history.incidents) == 1
    assert isinstance(turn.decision, Wait)
    assert turn.decision.reason is Reason.LAUNCHING
    assert LAYOUT.world == 3


def test_a_launch_waits_until_the_one_that_may_still_come_is_given_up() -> None:
    """Attempt 2 was asked for again a moment ago. It is fenced; attempt 3 waits out the time in which it could appear."""
    scene = training(AUTO.model_copy(update={"node": NodeRules(gone_s=100)}))
    scene.obeys = lambda a: a.kind != "launch"
    scene.die(1)
    scene.settle()
    for _ in range(5):
        scene.wait(21)
        scene.settle()
    scene.view = replace(scene.view, attempt=AttemptView(2, running=False))
    scene.wait(20)
    turn = scene.settle()
    assert actions.Fence(2) in scene.done
    assert scene.history.attempt.number == 2  # type: ignore[union-attr]
    assert turn.next_look <= scene.now + 1.0
    scene.wait(100)
    scene.settle()
    assert scene.history.attempt.number == 3  # type: ignore[union-attr]


def test_an_attempt_that_the_cluster_has_seen_and_the_journal_has_not_is_still_journaled() -> None:
    """The cluster shows a step of attempt 2 that nobody here launched: the plan's own launch is intended all the same."""
    scene = training()
    scene.view = replace(scene.view, launched=frozenset({1, 2}))
    scene.die(1)
    scene.settle()
    assert [a.number for a in scene.history.attempts] == [1, 2]


def test_the_store_is_read_again_after_the_end_before_anything_is_chosen() -> None:
    """What the store showed before the ranks were down may lack a save that they finished last."""
    scene = training()
    scene.die(1)
    for _ in range(10):
        turn = scene.tick()
        scene.now += 0.01
        scene.view = replace(scene.view, cluster_as_of=scene.now)  # the store is not read
    assert isinstance(turn.decision, Wait)
    assert turn.decision.text == "the store is read again"
    scene.store(save(44))
    scene.settle()
    assert scene.history.attempt.checkpoint == save_id(44)  # type: ignore[union-attr]


def test_saves_after_a_loss_that_was_not_finite_are_no_way_back() -> None:
    """The ranks go on after a NaN and save; what is in that save nobody knows. The one before is the way back."""
    scene = training(APPROVE)
    scene.step(47)
    scene.store(save(46))
    scene.change(non_finite=row(45))
    scene.settle()
    plan = scene.history.decision
    assert isinstance(plan, Recover)
    assert plan.checkpoint == save_id(40)
    assert [(r.id, r.why) for r in plan.rejected] == [(save_id(46), "saved after the loss of step 45 was not finite")]


def test_a_plan_from_nothing_is_withdrawn_when_a_save_is_completed() -> None:
    """The simulated world found it (seed 170): a stalled plan waited for a person while the ranks saved on."""
    scene = training(APPROVE)
    scene.view = replace(scene.view, checkpoints=())
    scene.history = replace(scene.history, completed=())
    scene.change(non_finite=row(45))
    scene.settle()
    before = scene.history.decision_digest
    assert isinstance(scene.history.decision, Recover)
    assert scene.history.decision.checkpoint is None
    scene.store(save(50))
    turn = scene.settle()
    assert scene.history.decision_digest != before
    assert isinstance(turn.decision, Halt)
    assert "saved after the loss of step 45 was not finite" in turn.decision.seen


def test_a_step_that_the_cluster_lists_though_all_ranks_have_ended_well_is_ended() -> None:
    scene = training()
    scene.finish_ranks()
    scene.view = replace(scene.view, steps_running=frozenset({1}))
    scene.obeys = lambda action: not isinstance(action, actions.Stop)
    scene.settle()
    assert actions.Stop(1) not in scene.done
    scene.wait(LISTED_S)
    scene.settle()
    assert actions.Stop(1) in scene.done
    scene.view = replace(scene.view, steps_running=frozenset())
    scene.settle()
    assert scene.history.ended == "finished"
    assert scene.history.incidents == ()


def test_acceptance_does_not_fail_before_the_agents_have_told_a_new_controller_what_they_know() -> None:
    """The first row may be told after a newer one: it was found on a real cluster, with controllers killed one after the other."""
    scene = Scene()
    scene.settle()
    scene.load()
    scene.epoch(2)
    late = row(2, 1, scene.now)
    scene.change(first_step=late, last_step=late, frontier=2)
    scene.settle()
    assert scene.history.incidents == ()
    told = replace(scene, view=scene.view)
    told.change(first_step=row(1, 1, scene.now))
    told.settle()
    assert told.history.attempt is not None
    assert told.history.attempt.accepted_at is not None
    scene.wait(AGENTS_TELL_S)
    scene.settle()
    assert [i.fault for i in scene.history.incidents][:1] == [FaultClass.ACCEPTANCE]
