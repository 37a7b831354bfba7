"""What a save's own state says of itself, beside what its ranks say of it. Pure: values in, reasons out."""

from __future__ import annotations

import math
from typing import Final

from supervisor.checkpoints.manifest import CountersEntry, StateEntry
from supervisor.checkpoints.reading.structure import Structure

_KEPT: Final = ("iteration", "samples", "dropped", "updates", "skipped", "lr")
_OF_RANKS: Final = {"iteration": "step", "samples": "samples", "updates": "updates", "skipped": "skipped"}
"""Counter of the state -> field of the sidecars. Not the learning rate: groups of one optimizer may have several."""


def state_of(structure: Structure) -> StateEntry:
    """What of it goes into the manifest."""
    counters = {name: structure.counters[name] for name in _KEPT if _is_number(structure.counters.get(name))}
    save_id = structure.save_id[:200] if isinstance(structure.save_id, str) else None
    return StateEntry(format=structure.format, save_id=save_id, counters=counters)


def apart_from_ranks(structure: Structure, ranks: CountersEntry | None) -> list[str]:
    """Counters that the state has otherwise than the ranks; empty when all that both know agree.

    Of a plain save only the names of the ledgers count: any other name may mean something else.
    """
    if ranks is None or not (structure.format == "megatron" or "ledger.step" in structure.tensors):
        return []
    said = state_of(structure).counters
    return [
        f"the state of the save has {name} {said[name]}, its ranks say {getattr(ranks, field)}"
        for name, field in _OF_RANKS.items()
        if name in said and said[name] != getattr(ranks, field)
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
