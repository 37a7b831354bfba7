"""Requests over HTTP: yes, no, yes-but, stale, unheard; and the stream that tells of what has changed."""

from __future__ import annotations

import os
from pathlib import Path

from builders import training
from console_run import Console, Controller, event, journaled, listen, shown, waiting

from supervisor.console.limits import Limits
from supervisor.console.reading import Follower
from supervisor.journal import requests
from supervisor.journal.journal import Journal


def test_yes_binds_to_the_plan_that_was_seen(tmp_path: Path) -> None:
    scene = waiting()
    run = journaled(tmp_path, scene)
    with Console(tmp_path) as console, Controller(run, scene):
        plan = console.get("/api/runs/demo/plan").json()
        assert (plan["open"], plan["waits"], plan["controller_alive"]) == (True, True, True)
        answer = console.post("/api/runs/demo/plan/approve", {"digest": plan["digest"]})
        assert (answer.status, answer.json()["state"]) == (200, "done")
        again = console.post("/api/runs/demo/plan/approve", {"digest": plan["digest"]})
        assert (again.status, again.json()["text"]) == (200, f"plan {plan['digest'][:6]} was approved already")
    history = Follower(run.root).read().history
    assert plan["digest"] in history.approvals
    assert history.incidents[0].approved_by == "li.wei@127.0.0.1"


def test_a_stale_yes_is_refused_and_shows_what_has_changed(tmp_path: Path) -> None:
    scene = waiting()
    run = journaled(tmp_path, scene)
    with Console(tmp_path) as console, Controller(run, scene):
        seen = console.get("/api/runs/demo/plan").json()["digest"]
        changed = console.post("/api/runs/demo/plan/change", {"skip_samples": [[360, 368]], "why": "broken shard"})
        assert changed.status == 200
        told = changed.json()
        assert told["plan"] not in {seen, None}
        assert told["changed"] == ["left out: nothing -> samples 360 to 367"]
        stale = console.post("/api/runs/demo/plan/approve", {"digest": seen})
        assert (stale.status, stale.json()["state"], stale.json()["exit"]) == (409, "refused", 4)
        assert stale.json()["plan"] == told["plan"]
        assert stale.json()["changed"][-1] == "left out: nothing -> samples 360 to 367"
        now = console.get("/api/runs/demo/plan").json()
        assert (now["digest"], now["before"]) == (told["plan"], seen)
        assert now["changed"] == ["left out: nothing -> samples 360 to 367"]
        assert console.post("/api/runs/demo/plan/approve", {"digest": now["digest"]}).status == 200


def test_no_takes_a_reason(tmp_path: Path) -> None:
    scene = waiting()
    run = journaled(tmp_path, scene)
    with Console(tmp_path) as console, Controller(run, scene):
        digest = scene.history.decision_digest
        for body in ({"digest": digest}, {"digest": digest, "why": ""}, {"digest": digest, "why": " \t"}, {"why": "x"}):
            assert console.post("/api/runs/demo/plan/refuse", body).status == 422
        answer = console.post("/api/runs/demo/plan/refuse", {"digest": digest, "why": "n1 is known to be fine"})
        assert (answer.status, answer.json()["state"]) == (200, "done")
    assert digest in Follower(run.root).read().history.refused


def test_a_wish_that_cannot_be_met_is_told_why(tmp_path: Path) -> None:
    scene = waiting()
    with Console(tmp_path) as console, Controller(journaled(tmp_path, scene), scene):
        for body, why in (
            ({"checkpoint": "a0009-i0000001"}, "not a completed one"),
            ({"spares": ["n0"]}, "holds a slot"),
            ({"keep_nodes": ["n99"]}, "no node of this run"),
        ):
            answer = console.post("/api/runs/demo/plan/change", body)
            assert (answer.status, answer.json()["exit"]) == (422, 2)
            assert why in answer.json()["text"]
        assert console.post("/api/runs/demo/resume", {"why": "x"}).status == 409
        assert console.post("/api/runs/demo/pause", {"why": "a switch is replaced"}).status == 200
        assert console.get("/api/runs/demo").json()["glance"]["paused"]
        assert console.post("/api/runs/demo/resume", {}).status == 200
        assert console.post("/api/runs/demo/halt", {"why": "x"}).status == 200
        assert console.post("/api/runs/nobody/halt", {"why": "x"}).status == 404


def test_with_no_controller_it_is_filed_and_said_so(tmp_path: Path) -> None:
    scene = waiting()
    run = journaled(tmp_path, scene)
    with Console(tmp_path) as console:
        answer = console.post("/api/runs/demo/plan/approve", {"digest": scene.history.decision_digest})
        assert (answer.status, answer.json()["state"], answer.json()["exit"]) == (202, "filed", 3)
        (filed,) = requests.pending(run.root)
        assert (filed.id, filed.what, filed.who, filed.origin) == (
            answer.json()["id"],
            "approve",
            "li.wei@127.0.0.1",
            "console",
        )
        stale = console.post("/api/runs/demo/plan/approve", {"digest": "abcdef12"})
        assert (stale.status, stale.json()["state"], stale.json()["id"]) == (409, "refused", None)
        assert len(requests.pending(run.root)) == 1
    with Controller(run, scene) as controller:
        assert controller.answered.wait(20)
    assert scene.history.decision_digest in scene.history.approvals


def test_an_answer_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    scene = waiting()
    run = journaled(tmp_path, scene)
    with Controller(run, scene) as controller, Console(tmp_path, answer_s=0.2) as console:
        controller.deaf.set()
        answer = console.post("/api/runs/demo/pause", {})
        assert (answer.status, answer.json()["state"]) == (202, "filed")
        assert "not answered within" in answer.json()["text"]


def test_a_flood_of_requests_stops_at_the_door(tmp_path: Path) -> None:
    run = journaled(tmp_path, waiting())
    with Console(tmp_path, Limits(asks=(1000, 1000), pending=3)) as console:
        got = [console.post("/api/runs/demo/pause", {}).status for _ in range(5)]
    assert got == [202, 202, 202, 429, 429]
    assert len(requests.pending(run.root)) == 3


def test_a_run_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    run = journaled(tmp_path, training())
    segment = Path(run.path("journal", "000001.jsonl"))
    segment.write_bytes(segment.read_bytes().replace(b"demo", b"dome"))
    with Console(tmp_path) as console:
        (row,) = console.get("/api/runs").json()["runs"]
        assert "journal-damaged" in row["error"]
        assert console.get("/api/runs/demo").status == 503
        assert console.post("/api/runs/demo/halt", {}).status == 503
        assert b'relight_run_readable{run="demo"} 0.0' in console.get("/metrics").body


# --- the stream ----------------------------------------------------------------------------------------------------


def test_a_change_is_told_without_asking(tmp_path: Path) -> None:
    scene = training()
    run = journaled(tmp_path, scene)
    with Console(tmp_path) as console:
        link, came = listen(console)
        assert came.headers["content-type"].startswith("text/event-stream")
        first = event(came)
        assert (first["run"], first["open_incident"], first["waits"]) == ("demo", None, False)
        before = len(scene.stamped)
        scene.lose("n1")
        scene.settle()
        journal, _ = Journal.begin(run.journal, lambda: scene.now, "h", 1)
        for one in scene.stamped[before:]:
            journal.append([one.entry], one.at)
        shown(run, scene)
        assert event(came)["open_incident"] == 1
        journal.close()
        link.close()


def test_a_stream_ends_with_its_token_and_there_are_only_so_many(tmp_path: Path) -> None:
    journaled(tmp_path, training())
    with Console(tmp_path, Limits(streams=1)) as console:
        link, came = listen(console)
        event(came)
        second, refused = listen(console)
        assert refused.status == 429
        os.unlink(console.tokens)
        while came.readline():
            pass
        link.close()
        second.close()
