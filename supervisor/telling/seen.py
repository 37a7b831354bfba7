"""What was to be seen when the evidence was kept: nodes, ranks, findings, stacks, the last step. For a post-mortem. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from policies.facts import UNKNOWN, View


def seen_of(view: View, now: float) -> dict[str, Any]:
    """A document for `incidents/NNNN/seen.json`. Times are wall seconds; what could not be read is null."""
    attempt = view.attempt
    return {
        "schema": 1,
        "at": now,
        "nodes": None if view.nodes is UNKNOWN else [asdict(node) for node in view.nodes.values()],
        "attempt": None
        if attempt is None
        else {
            "number": attempt.number,
            "started": len(attempt.started),
            "phases": {phase.value: count for phase, count in attempt.phases.items()},
            "last_step": asdict(attempt.last_step) if attempt.last_step else None,
            "last_advance": attempt.last_advance,
            "behind": list(attempt.behind),
            "exits": [asdict(one) for one in attempt.exits],
            "saves": [asdict(one) for one in attempt.saves],
        },
        "findings": [asdict(one) for one in view.findings],
        "stacks": [asdict(one) for one in view.capture.stacks] if view.capture else [],
    }
