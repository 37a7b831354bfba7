"""What a rule of stopping says when it stops a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policies.reasons import Reason


@dataclass(frozen=True, slots=True)
class Stop:
    """Why it halts, what was seen, and what lifts it. The reason is also the runbook's page."""

    reason: Reason
    seen: str
    lifts: str
