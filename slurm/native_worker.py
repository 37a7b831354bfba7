"""Reads Slurm with pyslurm, in a process of its own: JSON lines in, JSON lines out. Standard library and pyslurm only.

    python -P native_worker.py

The only place that imports pyslurm. It never releases the GIL, stands for 10 s and more while slurmctld hangs, and may
crash (docs/slurm.md); whoever asks here has a deadline and kills what is late. The first line says which versions have
met. Then each line `{"n":1,"ask":"job","job":17}` is answered by `{"n":1,"text":...}` or `{"n":1,"error":...}`: the text
is what Slurm's own commands print in the formats of `slurm.parsing`, so that one reader serves both.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TextIO

Request = Mapping[str, Any]


def job(slurm: Any, request: Request) -> str:
    """As `squeue -o JOB_FORMAT`. Raises LookupError where another job was given: of an array it may be any task."""
    found = slurm.Job.load(request["job"])
    if found.id != request["job"]:
        raise LookupError(f"asked for job {request['job']}, told of {found.id}")
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(found.start_time)) if found.start_time else "N/A"
    return _lines([(found.id, found.state, start, found.allocated_nodes, found.batch_host, found.state_reason)])


def steps(slurm: Any, request: Request) -> str:
    """As `squeue -s -O STEP_FORMAT`. Of all jobs, since only that tells "none" from "not to be had" (25.11.2)."""
    found = slurm.JobSteps.load_all().get(request["job"], {})
    names = {"pending": "TBD"}
    return _lines(
        (f"{request['job']}.{names.get(number, number)}", step.state, _nodes(step.allocated_nodes), step.name)
        for number, step in found.items()
    )


def nodes(slurm: Any, request: Request) -> str:
    """As `sinfo -N -O NODE_FORMAT`. Raises LookupError where a state is in doubt.

    pyslurm (25.11.2, Node.state) writes MIXED over whatever state Slurm gave to a node of which some cores are in use,
    be it DOWN. The nodes of a job that has them to itself are never MIXED.
    """
    known = slurm.Nodes.load()
    found = [known[name] for name in request["names"] if name in known]
    for node in found:
        if "MIXED" in node.state.split("+"):
            raise LookupError(f"{node.name} is {node.state}, or something else")
    return _lines((node.name, node.state.lower(), node.address, node.reason) for node in found)


ANSWERS: Final[Mapping[str, Callable[[Any, Request], str]]] = {"job": job, "steps": steps, "nodes": nodes}


def answer(slurm: Any, line: str) -> dict[str, object]:
    """What is said to one line."""
    request = json.loads(line)
    try:
        slurm.slurmctld.ping_primary()  # the only call that tells at once that slurmctld is not there
        return {"n": request["n"], "text": ANSWERS[request["ask"]](slurm, request)}
    except Exception as error:  # noqa: BLE001  pyslurm raises RPCError, KeyError and others for what Slurm can't tell
        return {"n": request["n"], "error": f"{type(error).__name__}: {error}"[:300]}


def library() -> int:
    """The number by which the library of Slurm in this process calls its own interface (META, API_CURRENT).

    It rises by one with each release. pyslurm's `slurm_api_version` is a constant of its build, and tells nothing of what
    was loaded.
    """
    ask = ctypes.CDLL(_library_path()).slurm_api_version
    ask.restype = ctypes.c_long
    return int(ask()) >> 16


def main() -> int:
    """Answer until nobody asks any more."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing that a library prints may get between the answers
    os.environ["PYSLURM_DISABLE_AUTO_INIT"] = "1"  # nothing of Slurm is touched before the versions were seen
    try:
        slurm = importlib.import_module("pyslurm")
        built = list(slurm.slurm_api_version())
        _say(out, {"schema": 1, "pyslurm": slurm.__version__, "built": built, "library": library()})
    except (ImportError, OSError, AttributeError) as error:
        _say(out, {"schema": 1, "unfit": str(error)[:300]})
        return 1
    begun = False
    for line in sys.stdin:
        if not begun:
            slurm.slurm_init()  # ends the process where there is no slurm.conf, and says so on standard error
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # from here on errors are answers
            begun = True
        _say(out, answer(slurm, line))
    return 0


def _say(out: TextIO, document: Mapping[str, object]) -> None:
    out.write(json.dumps(document, separators=(",", ":")) + "\n")
    out.flush()


def _lines(rows: Iterable[tuple[object, ...]]) -> str:
    """Fields between bars, a row a line; what people have written stands last, and stays in its line."""
    return "".join("|".join(" ".join(_word(field).split("\n")) for field in row) + "\n" for row in rows)


def _word(field: object) -> str:
    return "" if field is None else str(field)


def _nodes(given: object) -> str:
    """A step's nodes come as a list of ranges, a job's as one text."""
    return ",".join(map(str, given)) if isinstance(given, list) else _word(given)


def _library_path() -> str:
    """The file that pyslurm has brought into this process. Raises OSError where there is none."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        for line in file:
            path = line.partition("/")[2].strip()
            if os.path.basename(path).startswith("libslurm"):
                return f"/{path}"
    raise OSError("pyslurm has loaded no library of Slurm")


if __name__ == "__main__":
    sys.exit(main())
