"""The machines, as they really are and as the cluster shows them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from slurm.cluster import NodeCondition


class Power(StrEnum):
    """What a machine really does."""

    UP = "up"
    FROZEN = "frozen"
    DEAD = "dead"


@dataclass(slots=True)
class Node:
    """One machine. `skew_s`: its wall clock minus the true time. `condition` is what the cluster shows."""

    name: str
    switch: str
    skew_s: float = 0.0
    power: Power = Power.UP
    condition: NodeCondition = NodeCondition.UP
    drained_by: str = ""
    reason: str = ""
    bad: bool = False  # ranks that start on it die
    hurt: bool = False  # something has happened to it, ever
    epoch: int = 0  # the newest controller that it has heard of
    agent: bool = False  # an agent runs on it
    fault: str = ""  # what is wrong with it; its agent finds that only when it looks anew
    hangs: bool = False  # a look at it never ends
