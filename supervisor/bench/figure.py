"""One figure of the bench, and whether it lies within its limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. `limit` None: told, not judged. `beside`: what else was measured, for comparison.

    `least`: the limit is the least that is good, as of a speed; else it is the most.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    beside: Mapping[str, float] = field(default_factory=dict)
    least: bool = False

    @property
    def good(self) -> bool:
        """It lies within its limit; nan never does."""
        if self.limit is None:
            return True
        return self.value >= self.limit if self.least else self.value <= self.limit
