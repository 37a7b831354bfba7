"""The guard: what is wrong is said once, from outside; and when all is well again. Each of its matters has a planted fault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from builders import APPROVE, training
from click.testing import CliRunner
from console_run import HOSTILE, journaled, shown, waiting
from sinks import http_sink

from policies.history import Halted, Telling
from policies.reasons import Reason
from supervisor.commands.guard import command
from supervisor.guard.judge import GRACE_S, LEASE_S, NO_LEASE_S, STILL_S, TITLES, Look, Memory, judge
from supervisor.guard.looking import Eye, Looker
from supervisor.guard.watch import Lock
from supervisor.journal.entries import Carried, Ended, HaltedEntry, JobBegan, Told
from supervisor.journal.journal import Journal
from supervisor.journal.lease import Lease
from supervisor.telling import runbooks
from supervisor.telling.targets import Targets, leave
from supervisor.telling.told import matter

LIMIT_S = 60


class Guard:
    """A guard that looks every five seconds of a clock that the story turns."""

    def __init__(self) -> None:
        self.now, self.memory, self.beat = 1000.0, Memory(1000.0), 0
        self.said: list[str] = []

    def see(self, seconds: float, look: Look, *, turns: bool = True, renews: bool = True) -> list[str]:
        """Titles of what is said in that time."""
        before = len(self.said)
        for _ in range(int(seconds // 5)):
            self.now += 5
            self.beat += 1
            if turns:
                look = replace(look, status=f"s{self.beat}")
            if renews and look.lease:
                look = replace(look, lease=f"l{self.beat}")
            self.memory, notices = judge("demo", look, self.memory, self.now)
            self.said += [one.title.removeprefix("relight demo: ") for one in notices]
            for one in notices:
                assert len(one.text.splitlines()) == 4 or ":well" in one.key
                assert "\x1b" not in one.text
        return self.said[before:]


HISTORY = waiting().history
WELL = Look(lease="l", dead=False, status="s", history=training(APPROVE).history)
PLAN = replace(WELL, history=HISTORY, waits=True)
KEY = matter(HISTORY) or ""


def telling(**fields: object) -> Look:
    one = replace(Telling(KEY, "relight demo: stopped", 1.0, to=1), **fields)  # type: ignore[arg-type]
    return replace(PLAN, history=replace(HISTORY, tellings={KEY: one}))


FAULTS = {
    "run-directory-gone": Look(there=False),
    "run-directory-hangs": Look(hangs_s=61.0),
    "guard-blind": Look(fault="KeyError: 'x'"),
    "journal-damaged": replace(WELL, history=None, unread="000001.jsonl:4: not what was written"),
    "journal-not-writable": replace(WELL, unwritable="No space left on device"),
    "controller-gone": replace(WELL, dead=True),
    "notice-not-delivered": telling(failed=(("slack (urls 1)", "HTTP 500"),), tries=1),
    "nobody-told": PLAN,
    "notice-under-way": telling(),
    "next-job-over": replace(WELL, between=True, next_over="job 13 is CANCELLED"),
}


def test_a_run_that_is_well_is_left_in_peace() -> None:
    assert Guard().see(3600, WELL) == []
    assert Guard().see(3600, telling(reached=("slack (urls 1)",))) == []


@pytest.mark.parametrize("kind", FAULTS)
def test_each_matter_is_said_once_after_its_time_and_so_is_its_end(kind: str) -> None:
    guard = Guard()
    guard.see(100, WELL)
    assert guard.see(max(0.0, GRACE_S[kind] - 5), FAULTS[kind]) == []
    assert guard.see(3600, FAULTS[kind]) == [TITLES[kind]]
    assert guard.see(3600, WELL) == ["all well again"]
    assert guard.see(3600, FAULTS[kind]) == [TITLES[kind]]  # another time is another matter


@pytest.mark.parametrize("kind", [k for k, grace in GRACE_S.items() if grace >= 10 and k in FAULTS])
def test_what_does_not_last_is_not_said(kind: str) -> None:
    guard = Guard()
    for _ in range(10):
        assert guard.see(GRACE_S[kind] - 5, FAULTS[kind]) == []
        assert guard.see(5, WELL) == []


def test_a_controller_that_does_not_turn_is_seen_by_our_own_clock() -> None:
    guard = Guard()
    guard.see(100, WELL)
    assert guard.see(STILL_S - 5, WELL, turns=False) == []
    assert guard.see(60, WELL, turns=False) == ["the controller does not turn"]
    assert guard.see(60, WELL) == ["all well again"]


def test_a_controller_on_another_host_is_judged_by_whether_its_lease_changes() -> None:
    far = replace(WELL, dead=None)
    guard = Guard()
    assert guard.see(3600, far) == []
    assert guard.see(LEASE_S + GRACE_S["controller-gone"] - 10, far, renews=False) == []
    assert guard.see(60, far, renews=False) == ["the controller is gone"]
    # However wrong its clock: what it has written is the same, and that is all.
    assert guard.see(60, far) == ["all well again"]


def test_a_run_that_has_just_been_started_has_time() -> None:
    new = Look()
    assert Guard().see(NO_LEASE_S, new) == []
    assert Guard().see(NO_LEASE_S + GRACE_S["controller-gone"] + 10, new) == ["the controller is gone"]


def test_a_run_that_waits_or_is_halted_is_not_said_to_be_well() -> None:
    guard = Guard()
    undelivered = telling(failed=(("slack (urls 1)", "HTTP 500"),), tries=1)
    assert guard.see(60, undelivered) == ["a notice was not delivered"]
    assert guard.see(60, telling(reached=("slack (urls 1)",))) == ["that is over; a plan waits for a person"]


@pytest.mark.parametrize("kind", ["controller-gone", "controller-stuck"])
def test_a_guard_that_begins_anew_calls_nothing_well_before_it_has_looked_for_long_enough(kind: str) -> None:
    """What the one before it has told lasts; at the first look of the new one nothing can be said to stand still."""
    guard = Guard()
    guard.memory = replace(guard.memory, said=frozenset({kind}))
    far = replace(WELL, dead=None)
    assert guard.see(3600, far, renews=kind != "controller-gone", turns=kind != "controller-stuck") == []
    guard.memory = replace(Memory(guard.now), said=frozenset({kind}))
    assert guard.see(3600, far) == ["all well again"]


def test_a_halted_run_that_nobody_holds_any_more_makes_nothing_well() -> None:
    guard = Guard()
    undelivered = telling(failed=(("slack (urls 1)", "HTTP 500"),), tries=1)
    history = replace(HISTORY, halted=Halted(1.0, Reason.NO_SPARE, "no spare", "a spare"))
    halted = replace(undelivered, history=history)
    guard.memory = replace(guard.memory, said=frozenset({"notice-not-delivered plan:1"}))
    assert guard.see(600, replace(halted, over=True)) == []


def test_two_matters_are_well_again_only_when_both_are() -> None:
    guard = Guard()
    both = replace(FAULTS["controller-gone"], unwritable="Read-only file system")
    assert sorted(guard.see(60, both)) == ["the controller is gone", "the journal can't be written"]
    assert guard.see(60, FAULTS["journal-not-writable"]) == []
    assert guard.see(60, WELL) == ["all well again"]


def test_a_new_matter_in_the_place_of_the_old_is_not_all_well() -> None:
    guard = Guard()
    guard.see(60, FAULTS["controller-gone"])
    assert guard.see(25, FAULTS["run-directory-gone"]) == []
    assert guard.see(60, FAULTS["run-directory-gone"]) == ["the run directory is gone"]


def test_a_run_that_is_over_needs_nobody() -> None:
    assert Guard().see(3600, replace(FAULTS["controller-gone"], over=True), turns=False) == []


def test_a_halt_that_nobody_was_told_is_said_and_a_plan_that_does_not_wait_is_not() -> None:
    halted = replace(HISTORY, halted=Halted(1.0, Reason.NO_SPARE, "no spare", "a spare"))
    assert Guard().see(120, replace(WELL, history=halted)) == ["it waits, and nobody was told"]
    assert Guard().see(3600, replace(PLAN, waits=False)) == []


def test_some_have_it_and_one_never_will() -> None:
    some = telling(to=2, reached=("slack (urls 1)",), failed=(("mailtos (urls 2)", HOSTILE),), tries=2)
    assert Guard().see(3600, some) == []  # it is tried again
    gone = telling(to=2, reached=("slack (urls 1)",), failed=(("mailtos (urls 2)", HOSTILE),), tries=5, given_up=True)
    assert Guard().see(60, gone) == ["a notice was not delivered"]


def test_every_page_that_it_sends_people_to_exists() -> None:
    for look in FAULTS.values():
        guard = Guard()
        guard.see(100, WELL)
        _, notices = judge("demo", look, replace(guard.memory, since=dict.fromkeys(_keys(look, guard), 0.0)), guard.now)
        assert notices
        for one in notices:
            page = one.body.partition("relight runbook ")[2].split()[0]
            assert page in runbooks.names()


def _keys(look: Look, guard: Guard) -> list[str]:
    return list(judge("demo", look, guard.memory, guard.now)[0].since)


# --- looking -------------------------------------------------------------------------------------------------------


def test_a_run_that_waits_for_its_next_job_has_no_controller_and_is_not_over(tmp_path: Path) -> None:
    """A guard that ended with the first job would leave all that follow unwatched."""
    scene = training()
    scene.say(JobBegan("12", "2026-12-01T05:15:02"))
    scene.say(Ended("next-job"))
    run = journaled(tmp_path, scene)
    left = Eye(run.root, lambda: scene.now).look()
    assert (left.over, left.between) == (False, False)  # nobody has asked for it yet: a controller is missed
    gone = replace(left, lease="l", dead=True)
    assert Guard().see(3600, gone, turns=False) == ["the controller is gone"]
    os.makedirs(run.path("nodes"), exist_ok=True)
    Path(run.path("nodes", "next-12-2026-12-01T051502.json")).write_text('{"schema": 1, "next": "13"}')
    asked = Eye(run.root, lambda: scene.now).look()
    assert (asked.over, asked.between) == (False, True)
    assert Guard().see(3600, replace(asked, lease="l", dead=True), turns=False, renews=False) == []


def test_a_look_at_a_run_directory(tmp_path: Path) -> None:
    scene = waiting()
    run = journaled(tmp_path, scene)
    eye = Eye(run.root, lambda: scene.now)
    seen = eye.look()
    assert (seen.there, seen.lease, seen.dead, seen.unread, seen.unwritable) == (True, "", None, "", "")
    assert seen.history == scene.history
    assert seen.waits
    Lease(run.path("lease"), scene.now)
    assert eye.look().dead is False
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    raw = json.loads(Path(run.path("lease")).read_bytes())
    Path(run.path("lease")).write_text(json.dumps({**raw, "pid": ended.pid}))
    assert eye.look().dead is True
    Path(run.path("lease")).write_text(json.dumps({**raw, "host": "elsewhere"}))
    assert eye.look().dead is None
    before = eye.look().status
    scene.now += 1
    shown(run, scene)
    assert eye.look().status != before


def test_what_is_added_is_seen_and_what_is_damaged(tmp_path: Path) -> None:
    scene = waiting()
    run = journaled(tmp_path, scene)
    eye = Eye(run.root, lambda: scene.now)
    eye.look()
    journal, _ = Journal.begin(run.journal, lambda: scene.now, "h", 1)
    key = matter(scene.history) or ""
    journal.append(
        [Told(key, "stopped", 1), Carried(key, (), (("slack (urls 1)", "no"),), 1, given_up=False)], scene.now
    )
    assert (eye.look().history or scene.history).tellings[key].failed
    journal.append([HaltedEntry(Reason.NO_SPARE, "x", "y", None)], scene.now)
    assert eye.look().over is False
    journal.append([Ended("stopped")], scene.now)
    journal.close()
    assert eye.look().over
    Lease(run.path("lease"), scene.now)
    assert not eye.look().over  # its controller still lives: it has something to do
    segment = Path(run.path("journal", "000001.jsonl"))
    segment.write_bytes(segment.read_bytes().replace(b'"at"', b'"AT"', 1))
    assert "not" in Eye(run.root).look().unread
    shutil.rmtree(run.root)
    assert eye.look() == Look(there=False)


def test_a_journal_that_takes_no_write_is_seen_and_with_read_only_nothing_is_tried(tmp_path: Path) -> None:
    run = journaled(tmp_path, waiting())
    Path(run.path("journal", "guard.tmp", "in the way")).mkdir(parents=True)
    assert Eye(run.root).look().unwritable == "Is a directory"
    assert Eye(run.root, probes=False).look().unwritable == ""


@pytest.mark.parametrize("raw", ["", "[]", "null", '{"at": 1}'])
def test_a_status_and_a_lease_that_cannot_be_understood_stop_no_look(raw: str, tmp_path: Path) -> None:
    run = journaled(tmp_path, waiting())
    for name in ("status.json", "lease"):
        Path(run.path(name)).write_text(raw)
    seen = Eye(run.root).look()
    assert (seen.status, seen.lease) == ("", "")
    assert seen.history is not None


def test_a_look_that_hangs_is_said_and_one_that_fails(tmp_path: Path) -> None:
    run = journaled(tmp_path, waiting())
    os.unlink(run.path("status.json"))
    os.mkfifo(run.path("status.json"))  # opening it waits for a writer, as a dead file server makes one wait
    looker = Looker(Eye(run.root), 0.01, hangs_s=0.0)
    until = time.monotonic() + LIMIT_S
    while (seen := looker.newest()) is None or not seen.hangs_s:
        assert time.monotonic() < until
        time.sleep(0.01)
    looker.stop()
    Path(run.path("status.json")).open("w").close()  # let it go

    class Broken(Eye):
        def look(self) -> Look:
            raise ZeroDivisionError

    broken = Looker(Broken(run.root), 0.01)
    while (blind := broken.newest()) is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert blind.fault.startswith("ZeroDivisionError")  # said, and looked again: other runs are guarded on
    broken.stop()


def test_one_guard_a_host(tmp_path: Path) -> None:
    lock = Lock(str(tmp_path))
    with pytest.raises(BlockingIOError):
        Lock(str(tmp_path))
    lock.close()
    Lock(str(tmp_path)).close()


# --- the process ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_dead_controller_pages_through_a_real_gateway_and_a_second_guard_repeats_nothing(tmp_path: Path) -> None:
    run = journaled(tmp_path, waiting())
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    Lease(run.path("lease"), time.time())
    raw = json.loads(Path(run.path("lease")).read_bytes())
    Path(run.path("lease")).write_text(json.dumps({**raw, "pid": ended.pid}))
    with http_sink() as sink:
        leave(
            run.root,
            Targets(urls=(sink.url(),), deadline_s=LIMIT_S, guard_heartbeat_url=f"http://127.0.0.1:{sink.port}/beat"),
        )
        argv = [sys.executable, "-m", "supervisor", "guard", run.root]
        with subprocess.Popen(argv, stderr=subprocess.PIPE) as guard:
            titles: set[str] = set()
            beats = 0
            while "relight demo: the controller is gone" not in titles:
                _, path, said = sink.came.get(timeout=LIMIT_S)
                beats += path == "/beat"
                titles |= {said["title"]} if said else set()
            second = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            assert (second.returncode, second.stderr) == (0, "another guard on this host watches demo already\n")
            journal, _ = Journal.begin(run.journal, time.time, "h", 1)
            journal.append([Ended("finished")], time.time())
            journal.close()
            log = guard.communicate(timeout=LIMIT_S)[1].decode()
        assert guard.returncode == 0
        assert beats
        assert '"guard-over"' in log
        assert not [s for s in ("us3rname", "passw0rd", "t0ps3cret") if s in log]


def test_it_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    run = journaled(tmp_path, waiting())
    leave(run.root, Targets(("true",)))
    with subprocess.Popen([sys.executable, "-m", "supervisor", "guard", run.root], stderr=subprocess.PIPE) as guard:
        lock = next(iter(_until_there(tmp_path / "demo", "guard-*.lock")))
        assert lock.exists()
        _until_there(tmp_path / "demo" / "journal", "guard.tmp")
        guard.send_signal(signal.SIGTERM)
        guard.communicate(timeout=LIMIT_S)
    assert guard.returncode == 0


def _until_there(folder: Path, pattern: str) -> list[Path]:
    until = time.monotonic() + LIMIT_S
    while not (found := list(folder.glob(pattern))):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def test_a_trial_tells_everybody_once_and_says_how_it_went(tmp_path: Path) -> None:
    run = journaled(tmp_path, waiting())
    with http_sink() as sink:
        leave(run.root, Targets(("false",), urls=(sink.url(),), deadline_s=LIMIT_S, link="https://ops:8440"))
        tried = CliRunner().invoke(command, [run.root, "--try"], standalone_mode=False)
        assert sink.came.get_nowait()[2]["title"] == "relight demo: a trial, nothing is wrong"
    assert tried.return_value == 1
    assert tried.output == "command: not told: false: exit 1\njson (urls 1): told\n"


def test_another_host_may_begin_to_look_before_the_run_directory_is_mounted(tmp_path: Path) -> None:
    """A guard that only ended would be started in vain again and again, and nobody would be told."""
    gone = str(tmp_path / "not-mounted" / "demo")
    config = tmp_path / "relight.toml"
    config.write_text(f'[notify]\ncommand = ["sh", "-c", "cat >{tmp_path}/said"]\n')
    words = [gone, "--config", str(config), "--try"]
    assert CliRunner().invoke(command, [*words, "--read-only"], standalone_mode=False).return_value == 0
    assert (tmp_path / "said").exists()
    assert not Eye(gone, probes=False).look().there  # which is told after its time
    refused = CliRunner().invoke(command, words)
    assert "no run of relight is here" in str(refused.exception)


def test_with_nobody_to_tell_there_is_no_guard(tmp_path: Path) -> None:
    run = journaled(tmp_path, waiting())
    refused = CliRunner().invoke(command, [run.root])
    assert "nobody is to be told of demo" in str(refused.exception)
