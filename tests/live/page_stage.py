"""What the page is tested on: Debian's Chromium, a console as a process of its own, and axe."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from importlib.resources import files
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from supervisor.console import tokens
from supervisor.console.tokens import Role

INSTALL_S = 240
LOCK = f"{tempfile.gettempdir()}/relight-slurm-install.lock"
"""The lock of `supervisor/bench/slurmbed/install.py`: two test processes must not both call apt."""


def chromium() -> str:
    """Debian's Chromium; installed by apt-get where that can be done, else the test is skipped and says why."""
    found = shutil.which("chromium")
    if found:
        return found
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("no chromium here, and only root on Debian can install it: apt-get install chromium")
    with open(LOCK, "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = "" if shutil.which("chromium") else _install()
    found = shutil.which("chromium")
    if not found:
        pytest.skip(f"chromium can't be installed: {said}")
    return found


def _install() -> str:
    """What apt-get said last; the lists are only read anew where the package is not found without."""
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
    said = ""
    for command in (install, ["apt-get", "update", "-q"], install):
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_S,
        )
        said = done.stderr.strip()[-300:]
        if done.returncode == 0 and command is install:
            break
    return said


class ConsoleProcess:
    """`relight console` over a folder of runs, with a token for each role."""

    def __init__(self, root: Path) -> None:
        store = str(root / "conf" / "tokens.json")
        self.viewer = tokens.add(store, "ops", Role.VIEWER, time.time())
        self.approver = tokens.add(store, "li.wei", Role.APPROVER, time.time())
        command = [sys.executable, "-m", "supervisor", "console", str(root), "--listen", "127.0.0.1:0"]
        command += ["--tokens", store, "--audit", str(root / "state" / "audit.jsonl")]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("relight console on http://127.0.0.1:"), line
        self.address = line.split()[3]
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def runs(self) -> set[str]:
        """The names of the runs that it has found."""
        link = HTTPConnection(urlsplit(self.address).netloc, timeout=20)
        link.request("GET", "/api/runs", headers={"authorization": f"Bearer {self.viewer}"})
        told = json.loads(link.getresponse().read())
        link.close()
        return {row["run"] for row in told["runs"]}

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


LOOK = """async (colours) => {
  const only = colours ? { runOnly: { type: 'rule', values: ['color-contrast'] } } : {};
  const told = await axe.run(document, { resultTypes: ['violations'], ...only });
  return told.violations.filter((one) => ['serious', 'critical'].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 160)).slice(0, 3).join(' | ')}`);
}"""


def faults(page: Any, *, colours: bool = False) -> list[str]:
    """What axe finds on a page that is serious or critical; `colours`: of the contrast alone."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(
            (files("axe_playwright_python") / "axe.min.js").read_text()
        )  # past the page's policy, as a debugger
    return list(page.evaluate(LOOK, colours))
