"""status.json: what the controller saw and decided last, for those who ask while it works or after it is gone."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from policies.decisions import Continue, Decision, Wait
from policies.facts import View
from supervisor.gate import Held
from supervisor.rundir import RunDir

VIEW = TypeAdapter(View)
LISTED_MAX = 64
"""So many exits are kept in the file; the rest is in the attempt's folder."""


@dataclass(frozen=True, slots=True)
class Status:
    """What status.json says. `at` is when it was written, wall seconds."""

    at: float
    pid: int
    decision: str
    reason: str
    text: str
    held: str
    asks: bool
    view: View


def _slim(view: View) -> View:
    """Without what is large and of no use to a reader: 5,120 load reports, digests, findings."""
    attempt = view.attempt
    if attempt is not None:
        attempt = replace(
            attempt, loaded={}, phases=dict(attempt.phases), exits=attempt.exits[:LISTED_MAX], started=frozenset()
        )
    return replace(view, attempt=attempt, expected=None, findings=())


def status_json(view: View, decision: Decision, held: Held | None, now: float) -> dict[str, Any]:
    """The content of status.json."""
    text = decision.text if isinstance(decision, Wait | Continue) else ""
    until = decision.until if isinstance(decision, Wait | Continue) else None
    return {
        "schema": 1,
        "at": now,
        "pid": os.getpid(),
        "decision": decision.kind,
        "reason": decision.reason.value,
        "text": text,
        "until": until,
        "held": held.why if held else "",
        "asks": bool(held and held.asks),
        "view": VIEW.dump_python(_slim(view), mode="json"),
    }


def read_status(run: RunDir) -> Status | None:
    """What was written last; None when nothing was, or it can't be understood."""
    try:
        with open(run.path("status.json"), "rb") as file:
            raw = json.loads(file.read(16_000_000))
        return Status(
            at=float(raw["at"]),
            pid=int(raw["pid"]),
            decision=str(raw["decision"]),
            reason=str(raw["reason"]),
            text=str(raw["text"]),
            held=str(raw["held"]),
            asks=bool(raw["asks"]),
            view=VIEW.validate_python(raw["view"]),
        )
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None
