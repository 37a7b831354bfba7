"""The trials of the shared file system, with peers that lie as a bad file system would: each verdict is seen to fail."""

import asyncio
import errno
import json
import os
import socket
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from supervisor.doctor import probe, shared_fs
from supervisor.doctor.meeting import SIGHT_S, Tried, meet
from supervisor.doctor.shared_fs import Disk
from supervisor.doctor.within import Late


def join(task, pid, answer, token):
    """A peer that answers as it is told to."""
    with (
        socket.create_connection((task["host"], task["port"]), timeout=10) as link,
        link.makefile("rwb", buffering=0) as lines,
    ):
        lines.write(json.dumps({"node": f"n{pid:03d}", "token": token or task["token"], "pid": pid}).encode() + b"\n")
        while line := lines.readline():
            told = answer(pid, task["folder"], json.loads(line))
            if told is None:
                return
            lines.write(told if isinstance(told, bytes) else json.dumps(told).encode() + b"\n")


def crew(answer, number=shared_fs.RACERS, token=""):
    @asynccontextmanager
    async def started(task):
        threads = [threading.Thread(target=join, args=(task, pid, answer, token)) for pid in range(1, number + 1)]
        for thread in threads:
            thread.start()
        yield asyncio.gather(*(asyncio.to_thread(thread.join, 20) for thread in threads))

    return started


def honest(pid, folder, asked):
    return probe.answer(folder, asked)


def lying(do, told, only=()):
    """Honest but for one thing; `told` gets the question."""

    def answer(pid, folder, asked):
        if asked["do"] == do and (not only or pid in only):
            return told(asked)
        return probe.answer(folder, asked)

    return answer


def states(folder, answer, **fields):
    return {check.name: check for check in shared_fs.look(str(folder), crew(answer, **fields))}


def refuse(asked):
    return {"error": "Operation not supported: lock"}


def test_an_honest_folder_is_ok_with_real_processes(tmp_path):
    found = {check.name: check for check in shared_fs.look(str(tmp_path))}
    assert {name: check.state for name, check in found.items() if name != "fs-sync"} == dict.fromkeys(
        ["fs-create", "fs-lock", "fs-sight", "fs-times"], "ok"
    )
    assert "64 names wanted by 4 processes" in found["fs-create"].seen


@pytest.mark.parametrize(
    ("do", "told", "only", "name", "state"),
    [
        ("create", lambda asked: {"won": list(range(asked["turns"]))}, (), "fs-create", "bad"),
        ("create", lambda _asked: {"won": []}, (), "fs-create", "bad"),
        ("create", lambda _asked: {"error": "No space left on device: race"}, (2,), "fs-create", "bad"),
        ("lock", lambda _asked: {"got": True}, (3,), "fs-lock", "bad"),
        ("lock", lambda _asked: {"got": False}, (), "fs-lock", "bad"),
        ("lock", refuse, (), "fs-lock", "bad"),
        ("lock", lambda _asked: {"got": "perhaps"}, (1,), "fs-lock", "bad"),
        ("read", lambda _asked: {"error": "Stale file handle: kept"}, (4,), "fs-sight", "bad"),
    ],
)
def test_a_file_system_that_lies_is_named_by_its_own_check(tmp_path, do, told, only, name, state):
    found = states(tmp_path, lying(do, told, only))
    assert found[name].state == state
    assert found[name].right
    assert {n for n, check in found.items() if check.state == "bad"} == {name}


def test_who_got_the_same_name_is_said(tmp_path):
    check = states(tmp_path, lying("create", lambda _asked: {"won": [7]}, (1, 2)))["fs-create"]
    assert ": process 1, process 2" in check.seen


def test_a_folder_whose_old_content_stays_is_bad():
    tried = Tried(peers=("n001", "n002"), sight={"n001": 0.1, "n002": None})
    assert (
        shared_fs.sight(tried, "nodes-sight", "node").seen
        == f"n002 did not see a new or replaced file within {SIGHT_S:.0f} s"
    )
    slow = Tried(peers=("n001", "n002"), sight={"n001": 0.1, "n002": 3.0})
    assert shared_fs.sight(slow).state == "warn"
    assert shared_fs.sight(Tried(peers=("n001",))).state == "unknown"


def test_what_is_seen_late_is_waited_for(tmp_path):
    seen = []

    def stale(asked):
        seen.append(asked["name"])
        return {"text": "new" if len(seen) > 6 else "old"}

    check = states(tmp_path, lying("read", stale, (1,)))["fs-sight"]
    assert check.state == "ok"
    assert len(seen) > 6


@pytest.mark.parametrize(
    "told",
    [None, b"no json\n", b"[1]\n", b"{" * 70_000 + b"\n", b"\xff\xfe\n", b"[" * 60_000 + b"\n"],
    ids=["hangs up", "nonsense", "no object", "too long", "no text", "too deep"],
)
def test_a_peer_that_talks_nonsense_is_left_out_and_named(tmp_path, told):
    tried = asyncio.run(
        meet(
            str(tmp_path),
            3,
            crew(lying("create", lambda _asked: told, (2,)), 3),
            name=lambda h: f"p{h['pid']}",
            more={"host": "127.0.0.1"},
        )
    )
    assert set(tried.lost) == {"p2"}
    assert shared_fs.race(tried).state in {"ok", "unknown"}
    assert set(tried.sight) == {"p1", "p3"}


def test_too_few_peers_have_shown_nothing(tmp_path):
    tried = Tried(peers=("a", "b"), lost={"b": "create: no answer"}, wins=(("a",),))
    assert shared_fs.race(tried).state == "unknown"
    assert (
        shared_fs.race(Tried()).state == shared_fs.locks(Tried()).state == shared_fs.sight(Tried()).state == "unknown"
    )
    lost = Tried(peers=("a", "b", "c"), lost={"c": "create: no answer"}, wins=(("a",), ()))
    assert shared_fs.race(lost).state == "unknown"


def test_a_stranger_without_the_token_is_not_let_in(tmp_path):
    found = states(tmp_path, honest, token="guessed")  # noqa: S106 - it is to be wrong
    assert {found[name].state for name in ("fs-create", "fs-lock", "fs-sight")} == {"unknown"}


def test_a_hello_that_is_nonsense_is_not_let_in(tmp_path):
    """And it does not keep the others out."""

    @asynccontextmanager
    async def strangers(task):
        for line in (b"[" * 60_000 + b"\n", b"[1]\n", b"\n", b"x" * 70_000, b'{"token": 7}\n'):
            with socket.create_connection((task["host"], task["port"]), timeout=10) as link:
                link.sendall(line)
        async with crew(honest, 2)(task) as over:
            yield over

    tried = asyncio.run(meet(str(tmp_path), 2, strangers, name=lambda h: f"p{h['pid']}", more={"host": "127.0.0.1"}))
    assert (tried.peers, tried.lost) == (("p1", "p2"), {})


def test_a_name_is_let_in_once(tmp_path):
    tried = asyncio.run(
        meet(str(tmp_path), 4, crew(honest), name=lambda _h: "the same", more={"host": "127.0.0.1"}, deadline_s=1.0)
    )
    assert tried.peers == ("the same",)


def test_clocks_are_compared_with_a_bound(tmp_path):
    ahead = lying("clock", lambda _asked: {"wall": probe.time.time() + 40.0}, (2,))
    tried = asyncio.run(
        meet(str(tmp_path), 2, crew(ahead, 2), name=lambda h: f"p{h['pid']}", more={"host": "127.0.0.1"})
    )
    assert abs(tried.clocks["p2"].offset - 40.0) <= tried.clocks["p2"].bound + 0.001
    assert abs(tried.clocks["p1"].offset) <= tried.clocks["p1"].bound + 0.001


@pytest.mark.parametrize("wall", ["noon", 12, float("nan"), float("inf")])
def test_a_clock_that_is_no_time_is_not_compared(wall, tmp_path):
    tried = asyncio.run(
        meet(
            str(tmp_path),
            1,
            crew(lying("clock", lambda _asked: {"wall": wall}), 1),
            name=lambda _h: "p",
            more={"host": "127.0.0.1"},
        )
    )
    assert tried.clocks == {}


# --- one process -------------------------------------------------------------------------------------------------


def test_a_slow_disk_is_a_warning(tmp_path):
    ticks = iter([0.2, 0.2, 0.2])

    def slow(handle):
        threading.Event().wait(next(ticks, 0.0))

    disk = shared_fs.measure(str(tmp_path), fsync=slow)
    assert max(disk.syncs) >= 0.2
    assert shared_fs.judge_disk(Disk("nfs4", (0.15, 0.2), 0.0))[0].state == "warn"
    assert shared_fs.judge_disk(Disk("nfs4", (0.001, 0.001, 2.5), 0.0))[0].state == "warn"
    assert shared_fs.judge_disk(Disk("nfs4", (0.09, 0.09), 0.0))[0].state == "ok"


def test_an_fsync_that_fails_is_bad_and_not_passed_over(tmp_path):
    def broken(handle):
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        shared_fs.measure(str(tmp_path), fsync=broken)


def test_times_of_a_file_server_that_is_off_are_a_warning(tmp_path):
    off = shared_fs.measure(str(tmp_path), clock=lambda: shared_fs.time.time() + 100)
    check = shared_fs.judge_disk(off)[1]
    assert (check.state, check.seen) == (
        "warn",
        f"files get times that are {shared_fs.span(-off.skew)} behind our clock",
    )
    assert shared_fs.judge_disk(Disk("", (0.1,), 50.0))[1].seen == "files get times that are 50 s ahead of our clock"
    (tmp_path / "sub").mkdir()
    assert abs(shared_fs.measure(str(tmp_path / "sub")).skew) < 1


def test_the_kind_of_the_file_system_is_that_of_the_nearest_mount(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /shared rw shared:1 - nfs4 srv:/x rw\n3 2 0:6 / /shared\\040too rw - lustre l rw\n"
    )
    kinds = [shared_fs.kind_of(one, str(table)) for one in ("/shared/runs", "/sharedby", "/shared too/x", "/shared")]
    assert kinds == ["nfs4", "ext4", "lustre", "nfs4"]
    assert shared_fs.kind_of("/x", str(tmp_path / "none")) == ""


def test_the_scratch_folder_lies_where_the_run_will_and_is_taken_away(tmp_path):
    with shared_fs.scratch(str(tmp_path / "not" / "yet")) as folder:
        assert os.path.dirname(folder) == str(tmp_path)
        assert os.stat(folder).st_mode & 0o777 == 0o700
        Path(folder, "left").write_text("")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_bad(tmp_path):
    from supervisor.doctor.rounds import file_system

    (tmp_path / "file").write_text("")
    assert [(check.name, check.state) for check in file_system(str(tmp_path / "file"))] == [("fs-create", "bad")]


def test_work_that_stands_still_is_left_behind_and_told():
    late, never = Late(), threading.Event()
    assert late.within(5, lambda: 3, 0) == 3
    assert not late.any
    assert late.within(0.05, never.wait, None) is None
    assert late.any
    never.set()
    with pytest.raises(ZeroDivisionError):
        late.within(5, lambda: 1 // 0, 0)
