"""NVRx 0.7.0's deterministic log analyser (`restart_agent`, without a language model), asked as `relight diagnose` is.

    python -m supervisor.bench.rivals.nvrx_analyser [--layouts CASES] DIR

It takes one file, and the order of the lines is its order of events. So the files of DIR are laid into one by the times in
their lines: on the labelled cases that suited it best of three ways (21 lines right; 17 with the largest file alone, 15
with one file after the other). It names no node; with --layouts, the node of its rank by the layout of the case in CASES
of the same name counts as named. Only run, never imported.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from supervisor.evidence.files import blocks, walk
from supervisor.evidence.stamps import read_stamp, with_year

MODULE: Final = "nvidia_resiliency_ext.attribution.restart_agent.cli"


def python() -> str | None:
    """The interpreter that has NVRx, where `make setup` put it: beside our own environment. None: it is not there."""
    home = os.path.join(os.path.dirname(os.path.abspath(sys.prefix)), ".venv-nvrx")
    return os.path.join(home, "bin", "python") if os.path.exists(os.path.join(home, ".installed")) else None


def command(python: str, log: str) -> list[str]:
    """What analyses one log and prints the answer as JSON."""
    return [python, "-m", MODULE, os.path.abspath(log), "--job-id", "8123", "--cycle-id", "0", "--disable-l1"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a line of the one file comes from; `line` counts from 1."""

    file: str
    line: int


def merged(folder: str, near: float) -> tuple[list[Origin], bytes]:
    """All files of a folder as one, by the times in the lines; a line without a time stays with the one above it.

    `near`: wall seconds; years that the lines leave out are those nearest to it.
    """
    rows: list[tuple[float, Origin, bytes]] = []
    for name in walk(folder):
        at = float("-inf")
        lines = b"".join(blocks(os.path.join(folder, name))).split(b"\n")
        for number, raw in enumerate(lines if lines[-1] else lines[:-1], 1):
            stamp = read_stamp(raw[:4096].decode("utf-8", "replace"))
            at = at if stamp is None else with_year(stamp, near)
            rows.append((at, Origin(name, number), raw.replace(b"\r", b" ")))
    rows.sort(key=lambda row: row[0])
    return [origin for _, origin, _ in rows], b"".join(raw + b"\n" for *_, raw in rows)


def answer(said: dict[str, Any], origins: Sequence[Origin] | None, layout: dict[str, Any] | None) -> dict[str, Any]:
    """Its answer in the shape of `relight diagnose --json`. `origins`: of the lines of the file that it was given."""
    primary = said.get("primary_failure")
    first = None
    if primary is not None:
        line, rank, node = primary["line"], primary.get("rank"), primary.get("node")
        origin = origins[line - 1] if origins is not None else Origin("", line)
        rank = int(rank) if rank is not None and str(rank).isdigit() else None
        if node is None and rank is not None and layout is not None:
            slot = rank // int(layout["gpus_per_node"])
            node = layout["nodes"][slot] if slot < len(layout["nodes"]) else None
        first = {"file": origin.file, "line": origin.line, "rank": rank, "node": node}
    return {
        "failed": primary is not None,
        "first_error": first,
        "category": "",  # it has classes of its own, which are not ours
        "suspect_nodes": [],
        "restart_ok": said.get("decision") == "RESTART",
    }


def diagnose(python: str, folder: str, layout: dict[str, Any] | None) -> dict[str, Any]:
    """Ask it about a folder. Raises ValueError when what it says is no answer."""
    from supervisor.bench.timed import timed  # noqa: PLC0415 - only where it runs

    origins, data = merged(folder, time.time())
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "job.log")
        with open(path, "wb") as file:
            file.write(data)
        done = timed(command(python, path))
    if done.code != 0:
        raise ValueError(f"NVRx's analyser ended with {done.code}: {done.last_words}")
    return answer(json.loads(done.output), origins, layout)


def main(argv: Sequence[str]) -> int:
    """Print the answer. Exit code 0: there is one; 2: NVRx is not installed."""
    parser = argparse.ArgumentParser(
        prog="supervisor.bench.rivals.nvrx_analyser", description="NVRx on a folder of logs."
    )
    parser.add_argument(
        "--layouts", help="labelled cases; of a case of the same name, its layout is read and nothing else"
    )
    parser.add_argument("folder", metavar="DIR")
    given = parser.parse_args(argv)
    interpreter = python()
    if interpreter is None:
        print("NVRx is not installed; `make setup` does it", file=sys.stderr)
        return 2
    layout = None
    if given.layouts is not None:
        case = os.path.basename(os.path.abspath(given.folder))
        with open(os.path.join(given.layouts, case, "truth.json"), encoding="utf-8") as file:
            layout = json.load(file)["layout"]
    print(json.dumps(diagnose(interpreter, given.folder, layout)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
