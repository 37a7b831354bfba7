"""The parent of the controller: what it does when its child dies, and when it is asked to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

PARENT = """
import sys
from supervisor import parent
sys.exit(parent.keep(lambda stop, _: [sys.executable, "-c", sys.argv[1], sys.argv[2], stop]))
"""
STARTING = """
import os, signal, sys
with open(sys.argv[1], "a") as file:
    print("stop=" + sys.argv[2], file=file)
if sys.argv[2]:
    sys.exit(0)
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""
CRASHING = """
import os, signal, sys
with open(sys.argv[1], "a") as file:
    print("stop=" + sys.argv[2], file=file)
os.kill(os.getpid(), signal.SIGKILL)
"""


def kept(child: str, told: Path) -> int:
    return subprocess.run([sys.executable, "-c", PARENT, child, str(told)], check=False, timeout=60).returncode


def test_a_stop_that_kills_a_controller_that_only_starts_is_told_to_the_next(tmp_path: Path) -> None:
    """Its handlers are not there yet: the signal ends it, and the wish must not end with it."""
    told = tmp_path / "told"
    assert kept(STARTING, told) == 0
    assert told.read_text() == f"stop=\nstop={signal.SIGTERM.name}\n"


def test_a_controller_that_dies_is_started_five_times_more_and_not_again(tmp_path: Path) -> None:
    told = tmp_path / "told"
    assert kept(CRASHING, told) == 70
    assert told.read_text() == "stop=\n" * 6
