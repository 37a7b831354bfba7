"""What a save holds, as far as a comparison needs it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.checkpoints.reading.findings import Weight
from supervisor.checkpoints.reading.structure import Structure


@dataclass(frozen=True, slots=True)
class Held:
    """Names with dtype and shape, names of objects, and values by place; `facts` None: they could not be read now."""

    tensors: Mapping[str, tuple[str, tuple[int, ...]]]
    objects: frozenset[str]
    facts: Mapping[str, Any] | None

    @property
    def is_known(self) -> bool:
        """Was anything read at all? If not, nothing can be said of it, least of all that something is missing."""
        return bool(self.tensors or self.objects)

    def value_at(self, place: str) -> Any:
        """What lies at a place: `counters.samples`, `schedule.num_steps`, `arguments.seed`, `content.*`, `tensor:NAME`,
        `object:NAME`. None when it is not there.
        """
        kind, _, name = place.partition(":")
        if kind == "tensor" and name:
            return "there" if name in self.tensors else None
        if kind == "object" and name:
            return "there" if name in self.objects else None
        return None if self.facts is None else self.facts.get(place)


def held(structure: Structure, stated: Mapping[str, Any] | None) -> Held:
    """From what was read of the metadata and, by place, of the common state (`stated`; None: it could not be read).

    Metadata of which a part is still to come tells nothing: what that part names would be taken for missing.
    """
    if any(finding.weight is Weight.NOT_YET for finding in structure.findings):
        return Held({}, frozenset(), None)
    facts: dict[str, Any] | None = None
    if stated is not None:
        counters = dict(structure.counters)
        schedule = counters.pop("schedule", None)
        facts = {f"counters.{name}": value for name, value in counters.items()}
        facts |= {f"schedule.{k}": v for k, v in schedule.items()} if isinstance(schedule, dict) else {}
        facts |= stated
    tensors = {name: (tensor.dtype, tensor.shape) for name, tensor in structure.tensors.items()}
    return Held(tensors, structure.objects, facts)
