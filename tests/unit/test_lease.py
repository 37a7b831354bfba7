"""The lease: one controller of a run at a time, as far as can be told."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.processes import look
from supervisor.journal.lease import STALE_S, Lease, LeaseHeldError, read_holder

HERE = socket.gethostname()


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until the test ends it."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def held(path: Path, pid: int, ticks: int | None, host: str = HERE, renewed: float = 0.0) -> str:
    holder = {"schema": 1, "epoch": 7, "host": host, "pid": pid, "start_ticks": ticks, "renewed": renewed}
    (path / "lease").write_text(json.dumps(holder))
    return str(path / "lease")


def test_the_first_one_takes_it_and_renews_it(tmp_path: Path) -> None:
    path = str(tmp_path / "lease")
    lease = Lease(path, 10.0)
    lease.renew(20.0, 3)
    holder = read_holder(path)
    assert holder is not None
    assert (holder.epoch, holder.pid, holder.host, holder.renewed) == (3, os.getpid(), HERE, 20.0)
    assert holder.start_ticks == look(os.getpid()).start_ticks
    Lease(path, 30.0)  # our own is no obstacle


def test_a_living_holder_refuses(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    """It lives, so it does not matter that it has not renewed for hours: it may be stopped, and go on."""
    path = held(tmp_path, other.pid, look(other.pid).start_ticks)
    before = Path(path).read_bytes()
    with pytest.raises(LeaseHeldError, match=str(other.pid)):
        Lease(path, 1e6)
    assert Path(path).read_bytes() == before


def test_a_dead_holder_gives_way(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    path = held(tmp_path, other.pid, look(other.pid).start_ticks, renewed=100.0)
    other.kill()
    other.wait()
    Lease(path, 100.0)
    holder = read_holder(path)
    assert holder is not None
    assert (holder.pid, holder.epoch) == (os.getpid(), 7)


def test_a_pid_that_was_given_out_again_is_told_by_its_start(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    ticks = look(other.pid).start_ticks
    Lease(held(tmp_path, other.pid, ticks - 1), 1.0)


@pytest.mark.parametrize("pid", [os.getpid(), 1], ids=["ours", "another"])
def test_another_host_is_judged_by_its_renewal(tmp_path: Path, pid: int) -> None:
    """Its pid says nothing here, not even when it is the same as ours (containers)."""
    path = held(tmp_path, pid, 1, host="elsewhere", renewed=100.0)
    with pytest.raises(LeaseHeldError):
        Lease(path, 100.0 + STALE_S - 0.1)
    Lease(path, 100.0 + STALE_S)


@pytest.mark.parametrize("torn", [b"", b"{", b"[]", b'{"epoch":1}', b'{"epoch":"x","host":1}', b"\xff"])
def test_a_torn_lease_is_none(tmp_path: Path, torn: bytes) -> None:
    """The claim of an epoch is the fence; a lease that can't be read holds nobody back."""
    path = tmp_path / "lease"
    path.write_bytes(torn)
    assert read_holder(str(path)) is None
    Lease(str(path), 1.0)
    assert read_holder(str(path)) is not None


def test_a_holder_that_has_ended_and_is_not_reaped_gives_way(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    path = held(tmp_path, other.pid, look(other.pid).start_ticks)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{other.pid}/stat").exists()
    Lease(path, 100.0)


def test_a_holder_in_a_container_of_this_host_is_judged_by_its_renewals(tmp_path: Path) -> None:
    """There processes have other numbers: ours say nothing about it."""
    path = held(tmp_path, 1, 1, renewed=100.0)
    raw = json.loads((tmp_path / "lease").read_text()) | {"space": "pid:[1]"}
    (tmp_path / "lease").write_text(json.dumps(raw))
    with pytest.raises(LeaseHeldError):
        Lease(path, 100.0 + STALE_S - 1)
    Lease(path, 100.0 + STALE_S + 1)
    assert json.loads((tmp_path / "lease").read_text())["space"] == os.readlink("/proc/self/ns/pid")
