"""What `relight doctor` answers with: one line a check. Standard library only: it is loaded before the packages are trusted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "bad", "unknown"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the answer. `right`: what would be right, or what to do; empty where there is nothing to do.

    `warn`: relight works, and somebody should know. `unknown`: it could not be looked at; never taken for ok.
    """

    name: str
    state: State
    seen: str
    right: str = ""


def exit_code(checks: Iterable[Check]) -> int:
    """0: fit; 1: something is bad; 3: nothing is bad as far as could be seen. A warning changes nothing."""
    states = {check.state for check in checks}
    return 1 if "bad" in states else 3 if "unknown" in states else 0
