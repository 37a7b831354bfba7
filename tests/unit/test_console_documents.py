"""What the console says of a run: right, bounded, and text from logs stays text."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from builders import AUTO, back, row, training
from console_run import HOSTILE, journaled, shown, waiting

from policies.facts import UNKNOWN, NodeState, NodeView
from policies.history import Bar, Telling
from policies.reasons import Reason
from supervisor.console import documents, losses
from supervisor.console.answering import encoded
from supervisor.console.changes import changes, since
from supervisor.console.nodes import nodes
from supervisor.console.reading import Follower, Reading, Runs, UnreadableError
from supervisor.journal.journal import Journal
from supervisor.rundir import RunDir
from supervisor.settings import Settings
from supervisor.step_rows import losses_of, offset_before
from supervisor.telling.status import Status


@pytest.fixture(scope="module")
def open_plan(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    return Follower(journaled(tmp_path_factory.mktemp("runs"), waiting()).root).read()


def test_a_glance_says_that_a_person_is_wanted(open_plan: Reading) -> None:
    row_ = documents.glance("demo", open_plan)
    assert (row_.waits, row_.open_incident, row_.attempt, row_.step) == (True, 1, 1, 45)
    assert row_.plan == open_plan.history.decision_digest
    assert not row_.controller_alive
    status = documents.status("demo", open_plan)
    assert (status.slots, status.slots_up, status.spares_ready, status.quarantined) == (3, 2, 1, 0)
    assert status.way_back is not None
    assert status.way_back.id == "a0001-i0000040"


def test_the_plan_is_the_page_and_its_facts(open_plan: Reading) -> None:
    plan = documents.plan(open_plan)
    assert plan.open
    assert plan.page is not None
    assert plan.page.digest == plan.digest
    assert plan.digest is not None
    assert f"relight approve demo --plan {plan.digest[:6]}" in plan.text
    assert (plan.before, plan.changed) == (None, ())


def test_without_a_plan_it_says_so(tmp_path: Path) -> None:
    plan = documents.plan(Follower(journaled(tmp_path, training()).root).read())
    assert (plan.open, plan.waits, plan.digest, plan.page) == (False, False, None, None)
    assert plan.text == "demo: no plan is open.\n"


def test_the_wall_says_who_is_where_and_why_not(open_plan: Reading) -> None:
    wall = nodes(open_plan)
    assert [(s.slot, s.holder.node, s.place.pp, s.place.dp, s.holder.well) for s in wall.slots] == [
        (0, "n0", (0,), (0,), True),
        (1, "n1", (0,), (1,), False),
        (2, "n2", (0,), (2,), True),
    ]
    assert wall.slots[1].holder.why == ("its state is down", "no agent answers there", "suspect of incident 1")
    assert [(s.node, s.well) for s in wall.spares] == [("n3", True)]


def test_a_node_in_quarantine_is_no_spare(open_plan: Reading) -> None:
    bar = Bar("n3", open_plan.now, 1, Reason.NODE_LOST)
    wall = nodes(replace(open_plan, history=replace(open_plan.history, bars=(bar,))))
    assert wall.spares == ()
    assert [(q.node, q.incident, q.reason) for q in wall.quarantined] == [("n3", 1, "node-lost")]


def test_what_cannot_be_seen_is_not_well(open_plan: Reading) -> None:
    assert open_plan.status is not None
    blind = replace(open_plan.status, view=replace(open_plan.status.view, nodes=UNKNOWN, checkpoints=UNKNOWN))
    reading = replace(open_plan, status=blind)
    wall = nodes(reading)
    assert not wall.known
    assert {slot.holder.state for slot in wall.slots} == {"unknown"}
    assert not any(slot.holder.well for slot in wall.slots)
    assert not documents.checkpoints(reading).known
    status = documents.status("demo", reading)
    assert (status.slots_up, status.spares_ready, status.way_back) == (None, None, None)
    nothing = documents.status("demo", replace(open_plan, status=None))
    assert (nothing.running, nothing.slots_up) == (None, None)


def test_a_spare_tells_what_was_checked_and_when(open_plan: Reading) -> None:
    assert open_plan.status is not None
    seen = {"n3": NodeView("n3", NodeState.UP, 0.0, agent=True, checked_at=950.0, checks=9)}
    reading = replace(open_plan, status=replace(open_plan.status, view=replace(open_plan.status.view, nodes=seen)))
    (spare,) = nodes(reading).spares
    assert (spare.node, spare.well, spare.checked_at, spare.checks) == ("n3", True, 950.0, 9)
    seen["n3"] = replace(seen["n3"], checked_at=None, checks=0)
    (spare,) = nodes(reading).spares
    assert (spare.well, spare.why) == (False, ("not checked yet",))


def test_six_hundred_and_forty_nodes_stay_small() -> None:
    names = tuple(f"n{i:04d}" for i in range(640))
    scene = training()
    attempt = replace(scene.history.attempts[0], slots=names)
    seen = {n: NodeView(n, NodeState.UP, 0.0, agent=True, checked_at=1.0) for n in (*names, "n0640")}
    view = replace(scene.view, nodes=seen)
    history = replace(scene.history, attempts=(attempt,))
    settings = Settings.model_validate({"layout": {"tp": 8, "pp": 8, "dp": 80, "ranks_per_node": 8}})
    reading = Reading(
        RunDir("/x"), settings, history, Status(1.0, 1, "", "", "", "", asks=False, view=view), alive=True, now=1.0
    )
    wall = nodes(reading)
    assert len(wall.slots) == 640
    assert {(s.place.pp, s.place.dp) for s in wall.slots} == {((p,), (d,)) for p in range(8) for d in range(80)}
    assert len(encoded(wall)) < 200_000


# --- hostile text --------------------------------------------------------------------------------------------------


def test_text_of_a_log_stays_text(open_plan: Reading) -> None:
    incident = open_plan.history.incidents[0]
    assert incident.diagnosis is not None
    bad = replace(
        incident.diagnosis, first=(replace(incident.diagnosis.first[0], text=HOSTILE, file=HOSTILE),), cascade=HOSTILE
    )
    reading = replace(open_plan, history=replace(open_plan.history, incidents=(replace(incident, diagnosis=bad),)))
    for made in (
        documents.plan(reading),
        documents.incident(reading, 1),
        documents.incidents(reading),
        documents.story(reading),
        documents.status("demo", reading),
    ):
        wire = encoded(made)
        assert not set(b"<>&\x1b\x00\x9b") & set(wire)
        assert wire.isascii()
        assert json.loads(wire) == json.loads(json.dumps(asdict(made)))  # and nothing of it is lost
    assert HOSTILE in json.loads(encoded(documents.incident(reading, 1)))["incident"]["diagnosis"]["first"][0]["text"]
    for text in (documents.plan(reading).text, documents.incident(reading, 1).story, documents.story(reading).text):
        assert not set("\x1b\x00\u202e") & set(text)
    assert "script" in documents.plan(reading).text


def test_numbers_that_are_none_become_null() -> None:
    assert (
        encoded({"a": [float("nan"), float("inf"), -float("inf"), 1.5], 2: {3}})
        == b'{"a":[null,null,null,1.5],"2":[3]}'
    )


# --- what has changed ----------------------------------------------------------------------------------------------


def test_two_plans_differ_in_what_they_do(open_plan: Reading) -> None:
    digest, plan = list(open_plan.plans.items())[-1]
    assert changes(plan, plan) == ()
    assert changes(plan, replace(plan, text="another word", redo_steps=9)) == ()
    other = replace(
        plan,
        attempt=3,
        slots=("n0", "n4", "n2"),
        bars=("n2",),
        checkpoint=None,
        skip_samples=((10, 20),),
    )
    assert changes(plan, other) == (
        "attempt 2 -> 3",
        "checkpoint a0001-i0000040 -> none (from nothing)",
        "slot 1: n3 -> n4",
        "also barred: n2",
        "no longer barred: n1",
        "left out: nothing -> samples 10 to 19",
    )
    assert changes(plan, replace(plan, manifest_hash="other")) == (
        "checkpoint a0001-i0000040: its manifest is another one",
    )
    plans = {digest: plan, "b02e77": other}
    assert (
        since(plans, {digest: "n3 is gone"}, digest[:6], "b02e77")[0] == f"plan {digest[:6]} was withdrawn: n3 is gone"
    )
    assert since(plans, {}, digest[:6], "b02e77")[0] == "attempt 2 -> 3"
    assert since(plans, {}, digest, None) == ("no plan is open now",)
    assert since(plans, {}, "abcdef", digest) == ("plan abcdef is not one that this run has made",)


# --- losses --------------------------------------------------------------------------------------------------------


def twice(tmp_path: Path) -> Follower:
    scene = training(AUTO)
    scene.lose("n1")
    scene.die(1)
    for _ in range(10):
        scene.wait(5)
        scene.settle()
    back(scene)
    return Follower(journaled(tmp_path, scene).root)


def test_steps_that_were_done_again_stand_apart(tmp_path: Path) -> None:
    told = losses.losses(twice(tmp_path).read(), 38)
    assert [(p.attempt, p.step) for p in told.first] == [(1, s) for s in range(38, 46)] + [
        (2, s) for s in range(46, 50)
    ]
    assert [(p.attempt, p.step) for p in told.replayed] == [(2, s) for s in range(41, 46)]
    assert told.first[0].loss == 1 / 38


def test_a_window_of_steps(tmp_path: Path) -> None:
    reading = twice(tmp_path).read()
    told = losses.losses(reading, 10, 5)
    assert [p.step for p in told.first] == [10, 11, 12, 13, 14]
    assert (told.start, told.end, told.next) == (10, 14, 15)
    newest = losses.losses(reading, None, 3)
    assert [p.step for p in newest.first] == [44, 45, 46]
    assert newest.next is None


def test_a_long_file_is_halved_not_read(tmp_path: Path) -> None:
    run = journaled(tmp_path, training())
    path = Path(run.path("steps", "a0001.jsonl"))
    path.write_text("".join(json.dumps(asdict(row(step, loss=float(step)))) + "\n" for step in range(1, 30_001)))
    for start in (1, 2, 29_999, 12_345, 777):
        got = [step for step, _ in losses_of(run, 1, start, start + 9)]
        assert got == list(range(start, min(start + 10, 30_001)))
    with path.open("rb") as file:
        at = offset_before(file, 15_000, lambda line: json.loads(line)["step"])
        assert path.stat().st_size // 2 - 200_000 < at < path.stat().st_size // 2 + 200_000


def test_rows_that_are_none_are_left_out(tmp_path: Path) -> None:
    run = journaled(tmp_path, training())
    good = json.dumps(asdict(row(1)))
    odd = asdict(row(2)) | {"loss": float("nan"), "grad_norm": float("inf")}
    bad = [
        "",
        "null",
        "[" * 10_000,
        good.replace('"step": 1', '"step": -5'),
        '{"step": 9e999}',
        "\x00" * 50_000,
        good[:40],
    ]
    Path(run.path("steps", "a0001.jsonl")).write_text(
        "\n".join([good, *bad, json.dumps(odd), json.dumps(asdict(row(3)))])
    )
    told = losses.losses(Follower(run.root).read(), 1)
    assert [(p.step, p.loss) for p in told.first] == [(1, 1.0), (2, None), (3, 1.0)]


def test_the_ledger_adds_up(tmp_path: Path) -> None:
    books = documents.ledgers(twice(tmp_path).read())
    assert (books.computed, books.lineage, books.rolled_back, books.adds_up) == (51, 46, 5, True)
    assert (books.samples, books.tokens) == (368, 3680)
    assert [(one.incident, one.first, one.count) for one in books.read_again] == [(1, 320, 40)]


# --- reading -------------------------------------------------------------------------------------------------------


def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    scene = training()
    run = journaled(tmp_path, scene)
    now = [0.0]
    follower = Follower(run.root, ticks=lambda: now[0])
    first = follower.read()
    assert follower.read() is first
    now[0] = 1.0
    second = follower.read()
    assert second is not first
    assert second.history is first.history
    assert second.status is first.status
    scene.lose("n1")
    scene.settle()
    shown(run, scene)
    assert follower.read() is second  # too soon
    now[0] = 2.0
    assert follower.read().status is not first.status
    journal, _ = Journal.begin(run.journal, lambda: scene.now, "h", 1)
    journal.close()
    assert follower.read(fresh=True).history.epoch == 2


def test_a_long_reading_is_followed_by_a_longer_rest(tmp_path: Path) -> None:
    run = journaled(tmp_path, training())
    now = [0.0]

    def ticks() -> float:
        now[0] += 1.0  # each look at the clock takes a second: so does the reading
        return now[0]

    follower = Follower(run.root, ticks=ticks)
    before = follower.read(fresh=True).history
    journal, _ = Journal.begin(run.journal, lambda: 1.0, "h", 1)
    journal.close()
    assert follower.read(fresh=True).history is before
    now[0] += 10
    assert follower.read(fresh=True).history.epoch == 2


def test_a_run_that_cannot_be_read_is_told_and_may_come_back(tmp_path: Path) -> None:
    run = journaled(tmp_path, training())
    follower = Follower(run.root)
    segment = Path(run.path("journal", "000001.jsonl"))
    whole = segment.read_bytes()
    segment.write_bytes(whole[:500] + b"x" + whole[501:])
    with pytest.raises(UnreadableError, match="journal-damaged"):
        follower.read()
    segment.write_bytes(whole)
    assert follower.read(fresh=True).history.run == "demo"


def test_runs_are_found_as_they_come(tmp_path: Path) -> None:
    now = [0.0]
    runs = Runs((str(tmp_path),), ticks=lambda: now[0])
    assert runs.all() == {}
    first = journaled(tmp_path, training(), "demo")
    (tmp_path / "other" / "journal").mkdir(parents=True)  # no settings: no run
    assert runs.all() == {}
    now[0] = 5.0
    assert [f.run.root for f in runs.all().values()] == [first.root]
    kept = runs.find("demo")
    again = journaled(tmp_path / "a", training(), "demo")
    both = Runs((str(tmp_path), again.root))
    assert len(both.all()) == 2
    assert "demo" in both.all()
    now[0] = 10.0
    assert runs.find("demo") is kept
    for name in ("", "..", "../demo", "demo/", "/etc", "demo\x00"):
        assert runs.find(name) is None


def test_nothing_is_written_where_runs_lie(tmp_path: Path) -> None:
    run = journaled(tmp_path, waiting())
    before = {path: (s.st_mtime_ns, s.st_size) for path in Path(run.root).rglob("*") for s in [os.stat(path)]}
    reading = Follower(run.root).read()
    for made in (documents.plan, documents.story, documents.incidents, documents.checkpoints, documents.ledgers, nodes):
        encoded(made(reading))
    losses.losses(reading, 1)
    after = {path: (s.st_mtime_ns, s.st_size) for path in Path(run.root).rglob("*") for s in [os.stat(path)]}
    assert after == before


def test_who_was_told_of_what_waits_stands_in_the_status(open_plan: Reading) -> None:
    assert documents.status("demo", open_plan).told == ()
    history = open_plan.history
    key = f"plan:{history.decision_digest}"
    telling = Telling(
        key, "stopped", 1.0, 2, ("slack (urls 1)",), (("mailtos (urls 2)", "<b>no</b>"),), 5, given_up=True
    )
    told = documents.status("demo", replace(open_plan, history=replace(history, tellings={key: telling})))
    assert told.told[0].endswith(": slack (urls 1).")
    assert told.told[1] == "Not delivered: mailtos (urls 2): <b>no</b>; 5 tries, given up."
    assert all(line in told.text for line in told.told)
    assert b"<b>" not in encoded(told)


def test_where_nobody_watches_the_standing_says_it_first(open_plan: Reading) -> None:
    seen = documents.status("demo", replace(open_plan, alive=False))
    assert seen.glance.standing.startswith("no controller is alive")
    assert " Before: incident 1 is open" in seen.glance.standing
    assert seen.text.startswith(f"{open_plan.history.run}: no controller is alive")
    assert seen.take_over == f"relight run --run-dir {open_plan.run.root}"
    assert documents.status("demo", replace(open_plan, alive=True)).take_over == ""
    assert documents.status("demo", replace(open_plan, alive=True)).glance.standing.startswith("incident 1 is open")
