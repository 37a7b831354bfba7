"""A lane each: what hangs holds up nobody, and what fails says so."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from supervisor.lanes import Lanes


def test_one_that_hangs_holds_up_nobody() -> None:
    lanes, held, begun = Lanes(), threading.Event(), [threading.Event() for _ in range(20)]

    def hang(begins: threading.Event) -> bool:
        begins.set()
        return held.wait(30)

    hanging = [lanes.submit(hang, one) for one in begun]
    assert all(one.wait(10) for one in begun)
    assert lanes.submit(lambda: 3).result(10) == 3
    assert lanes.busy
    held.set()
    assert all(one.result(10) for one in hanging)
    assert not lanes.busy


def test_what_fails_is_handed_on() -> None:
    lanes = Lanes()
    with pytest.raises(OSError, match="away"):
        lanes.submit(_fail).result(10)
    assert not lanes.busy


def _fail() -> None:
    raise OSError("away")


LEAVES = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from supervisor.lanes import Lanes

inside, hangs = threading.Event(), threading.Event()

def work():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: (inside.set(), hangs.wait(600))).result()

lanes = Lanes()
lanes.submit(lambda: 1).result()
lanes.abandon(5)  # nothing is at work
if sys.argv[1] == "busy":
    lanes.submit(work)
    inside.wait()
    print("told", end="")
lanes.abandon(7)
"""


@pytest.mark.parametrize(("state", "code", "said"), [("busy", 7, "told"), ("idle", 0, "")])
def test_a_process_ends_though_a_pool_of_its_work_hangs(state: str, code: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES, state], check=False, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout.decode()) == (code, said), done.stderr
