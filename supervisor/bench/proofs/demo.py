"""The demo as a person runs it, with both hashes."""

from __future__ import annotations

import json
import subprocess
import sys

from supervisor.bench.proofs.work import Work


def prove(work: Work) -> None:
    """Run `relight bench real` and believe only its last line and its exit code."""
    command = [sys.executable, "-m", "supervisor", "bench", "real", "--json", "--folder", work.path("demo")]
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None  # noqa: S101 - asked for above
        for line in demo.stdout:
            last = line.rstrip("\n")
            if not last.startswith("{"):
                work.say(last)
    told = json.loads(last) if last.startswith("{") else {}
    work.measured |= {name: told.get(name) for name in ("undisturbed", "disturbed")}
    for what, held in told.get("checks", {}).items():
        work.check(what, ok=held)
    same = told.get("undisturbed") is not None and told.get("undisturbed") == told.get("disturbed")
    work.check("the demo ends with 0, and both hashes are the same", ok=demo.returncode == 0 and same)
