"""Shadow agreement: how often people said yes to the plan as it was, a fault class at a time. Automation is earned. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.facts import FaultClass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policies.history import Incident

APPROVED_MIN: Final = 10
SHARE_MIN: Final = 0.95
"""Approved as it was at least so often, and in this share of all plans that a person has judged; and none refused."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Plans of one fault class that a person has judged. `wrong` were refused, `changed` approved after a change."""

    fault: FaultClass
    agreed: int
    changed: int
    wrong: int

    @property
    def share(self) -> float:
        """Of all that were judged, those approved as they were; there is at least one."""
        return self.agreed / (self.agreed + self.changed + self.wrong)

    @property
    def earned(self) -> bool:
        """May this class be cleared for automation?"""
        return self.agreed >= APPROVED_MIN and self.share >= SHARE_MIN and self.wrong == 0


def by_class(incidents: Iterable[Incident]) -> tuple[Agreement, ...]:
    """One for each class of which a person has judged a plan, in the order of the classes.

    A plan that was refused counts as wrong whatever was approved after it.
    """
    counts: dict[FaultClass, list[int]] = {}
    for one in incidents:
        if one.plan_refused or one.approved_by is not None:
            row = counts.setdefault(one.fault, [0, 0, 0])
            row[2 if one.plan_refused else 1 if one.plan_changed else 0] += 1
    return tuple(Agreement(fault, *counts[fault]) for fault in FaultClass if fault in counts)
