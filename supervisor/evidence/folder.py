"""A folder of logs -> its verdict, in the form that `relight diagnose --json` prints. The one place that reads files here."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from policies.clues import Case, Clue, Verdict
from policies.verdict import judge
from supervisor.errors import UserError
from supervisor.evidence.analyser import Analyser, AnalyserError
from supervisor.evidence.casefile import assemble
from supervisor.evidence.files import walk
from supervisor.evidence.jobs import without_other_jobs
from supervisor.evidence.names import expand
from supervisor.evidence.places import Places
from supervisor.evidence.placing import resolve
from supervisor.evidence.reading import FEW_MARKS, MARKS, FileReading, Reader
from supervisor.evidence.traces import Dumps, Missing, Trace, dumps, missing, read_trace

LAYOUT_BYTES: Final = 16 << 20
MANY_FILES: Final = 1000
"""From so many files on less is kept of each, so that 5,120 logs of ranks stay within the memory that is promised."""


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """A verdict with what it was made of."""

    case: Case
    verdict: Verdict
    files: int
    size: int


def read_layout(path: str) -> dict[str, Any]:
    """A layout file: {"nodes": [...] or a host list, "gpus_per_node" or "ranks_per_node": n, "world_size": n}. Raises UserError."""
    try:
        with open(path, "rb") as file:
            given = json.loads(file.read(LAYOUT_BYTES))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise UserError(
            f'{path}:{line}: JSON is wanted ({why}): {{"nodes": [...], "ranks_per_node": 8, "world_size": 64}}'
        ) from None
    if not isinstance(given, dict):
        raise UserError(f"{path}: an object is wanted: nodes, ranks_per_node, world_size")
    return given


def _given(readings: Sequence[FileReading], layout: dict[str, Any]) -> Places:
    """What the logs say of places, with the layout that somebody knows laid over it."""
    nodes = layout.get("nodes", layout.get("slots"))
    names = expand(nodes) if isinstance(nodes, str) else [n for n in nodes or [] if isinstance(n, str)]
    each = layout.get("ranks_per_node", layout.get("gpus_per_node"))
    world = layout.get("world_size")
    return resolve(
        readings,
        nodes=names or None,
        each=each if type(each) is int and each > 0 else None,
        world=world if type(world) is int and world > 0 else None,
    )


def diagnose_folder(
    folder: str, layout: dict[str, Any] | None = None, reader: Reader | None = None, analyser: Analyser | None = None
) -> Diagnosed:
    """Read every log below the folder and judge. Raises OSError when the folder can't be listed. A file is a folder of one.

    `analyser` is given the flight-recorder dumps that are pickles, and runs what is in them; without it they stay unread.
    """
    reader = reader or Reader()
    if os.path.isfile(folder):
        folder, name = os.path.split(os.path.abspath(folder))
        names = [name]
    else:
        names = walk(folder)
    recorded = dumps(folder, names)
    logs = sorted(set(names) - {*recorded.json, *recorded.pickles})
    marks = MARKS if len(logs) < MANY_FILES else FEW_MARKS
    readings = without_other_jobs([reader.read(os.path.join(folder, name), name, marks) for name in logs])
    places = _given(readings, layout or {})
    case = assemble(readings, places)
    told, notes = _recorded(folder, recorded, analyser)
    case = replace(case, clues=(*case.clues, *(_clue(one, places) for one in told)), notes=(*case.notes, *notes))
    return Diagnosed(case, judge(case), len(names), sum(reading.size for reading in readings))


def _recorded(folder: str, recorded: Dumps, analyser: Analyser | None) -> tuple[list[Missing], list[str]]:
    """Who is missing by the flight recorders, and what could not be read of them."""
    traces: list[Trace] = []
    notes: list[str] = []
    for name in recorded.json:
        try:
            traces.append(read_trace(os.path.join(folder, name), name))
        except (OSError, ValueError) as error:
            notes.append(f"{name}: {error}")
    found = [one] if (one := missing(traces)) is not None else []
    if recorded.pickles and analyser is None:
        notes.append(
            f"{recorded.pickles[0]} and {len(recorded.pickles) - 1} more flight-recorder dumps are pickles and were not read"
            " (--traces has NVRx's analyser read them, which runs what is in them)"
        )
    elif recorded.pickles and analyser is not None:
        try:
            found += analyser.missing(folder, recorded.pickles)
        except (AnalyserError, OSError) as error:
            notes.append(f"{recorded.pickles[0]} and {len(recorded.pickles) - 1} more: NVRx's analyser: {error}")
    return found, notes


def _clue(one: Missing, places: Places) -> Clue:
    seq = "" if one.seq is None else f" {one.seq}"
    return Clue(
        kind="trace-missing",
        role="context",
        grade=2,
        category="hang.unknown",
        blames="nobody",
        restart=True,
        text=f"{one.what}{seq}",
        file=one.file,
        line=1,
        rank=one.ranks[0],
        node=places.node(one.ranks[0]),
        seq=one.seq,
        code=one.waiting,
        tasks=one.ranks,
        found_by="flight recorder",
    )


def as_json(found: Diagnosed) -> dict[str, Any]:
    """The answer for programs; its form is a contract (docs/diagnosis.md)."""
    verdict = found.verdict
    first = verdict.first if verdict.failed else None
    return {
        "schema": 1,
        "failed": verdict.failed,
        "cannot_tell": verdict.cannot_tell,
        "first_error": None
        if first is None
        else {"file": first.file, "line": first.line, "rank": first.rank, "node": first.node},
        "category": verdict.category,
        "suspect_nodes": list(verdict.suspects),
        "restart_ok": verdict.restart_ok,
        "confidence": verdict.confidence,
        "evidence": verdict.evidence,
        "cascade": verdict.cascade,
        "why": verdict.why,
        "lines": [_line(clue) for clue in (*((first,) if first else ()), *verdict.support)],
        "against": list(verdict.against),
        "notes": list(found.case.notes),
    }


def _line(clue: Clue) -> dict[str, Any]:
    return {
        "file": clue.file,
        "line": clue.line,
        "rank": clue.rank,
        "node": clue.node,
        "kind": clue.kind,
        "text": clue.text,
    }
