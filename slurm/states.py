"""What Slurm's words for nodes, jobs and steps mean to us, from 22.05 to 26.05. Pure.

The words are those of `sinfo -O StateComplete`, `scontrol show` and `squeue %T`: a base and flags joined by `+`, in
any case (slurm.h: node_states, NODE_STATE_*, job_states, JOB_*). A word that is not in these tables ("?" and
INVALID are Slurm's own for such) is UNKNOWN; it never makes anything fine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from slurm.cluster import NodeCondition

_NODE_BASES: Final = {
    "IDLE": NodeCondition.UP,
    "ALLOCATED": NodeCondition.UP,
    "MIXED": NodeCondition.UP,
    "DOWN": NodeCondition.DOWN,
    "ERROR": NodeCondition.DOWN,  # a base that 22.05 to 26.05 name and no longer set
    "FUTURE": NodeCondition.DOWN,  # not there yet: a node that has left us for this holds nothing of ours
    "UNKNOWN": NodeCondition.UNKNOWN,  # slurmctld has just started and has not heard of the node
}

_NODE_FLAGS: Final = {
    # What the node no longer is.
    "POWERED_DOWN": NodeCondition.DOWN,
    "POWERING_DOWN": NodeCondition.DOWN,
    "DYNAMIC_FUTURE": NodeCondition.DOWN,
    # It can't be heard: it may be on its way, or away.
    "NOT_RESPONDING": NodeCondition.SILENT,
    "POWERING_UP": NodeCondition.SILENT,
    "POWER_UP": NodeCondition.SILENT,
    "REBOOT_ISSUED": NodeCondition.SILENT,
    "EXTERNAL": NodeCondition.UNKNOWN,  # 24.11 and later: no slurmd of this cluster answers for it
    # It works, and somebody wants it back: an administrator, a health check, maintenance.
    "DRAIN": NodeCondition.DRAINED,
    "FAIL": NodeCondition.DRAINED,
    "INVALID_REG": NodeCondition.DRAINED,  # it registered with less than is configured
    "MAINTENANCE": NodeCondition.DRAINED,
    "POWER_DOWN": NodeCondition.DRAINED,  # asked for; done once nothing runs there
    "POWER_DRAIN": NodeCondition.DRAINED,
    "REBOOT_REQUESTED": NodeCondition.DRAINED,
    # These say nothing about whether it works for us.
    "BLOCKED": NodeCondition.UP,  # 23.11 and later: closed to new jobs by an exclusive one nearby
    "CANCEL_REBOOT": NodeCondition.UP,
    "CLOUD": NodeCondition.UP,
    "COMPLETING": NodeCondition.UP,
    "DYNAMIC_NORM": NodeCondition.UP,
    "PERFCTRS": NodeCondition.UP,
    "PLANNED": NodeCondition.UP,
    "RESERVED": NodeCondition.UP,
    "RESUME": NodeCondition.UP,
    "UNDRAIN": NodeCondition.UP,
}

_WORST_FIRST: Final = (
    NodeCondition.DOWN,
    NodeCondition.SILENT,
    NodeCondition.UNKNOWN,
    NodeCondition.DRAINED,
    NodeCondition.UP,
)
"""Gone before silent, silent before not known: a silent node that is drained too has to be fenced."""


@dataclass(frozen=True, slots=True)
class NodeWords:
    """A node's state taken apart. `unknown` are the words that no table has."""

    base: str
    flags: frozenset[str]
    unknown: frozenset[str]


def node_words(text: str) -> NodeWords:
    """Take `allocated+drain` apart. An empty text has the base "", which is unknown."""
    base, *flags = (word.strip() for word in text.strip().upper().split("+"))
    unknown = {word for word in flags if word not in _NODE_FLAGS}
    if base not in _NODE_BASES:
        unknown.add(base)
    return NodeWords(base, frozenset(flags), frozenset(unknown))


def node_condition(text: str, *, drained_by_us: bool = False) -> NodeCondition:
    """What the state means. A drain that we have set ourselves (`drained_by_us`) is looked through."""
    words = node_words(text)
    said = {_NODE_FLAGS[flag] for flag in words.flags - words.unknown if not (drained_by_us and flag == "DRAIN")}
    said.add(_NODE_BASES.get(words.base, NodeCondition.UNKNOWN))
    if words.unknown:
        said.add(NodeCondition.UNKNOWN)
    return next(condition for condition in _WORST_FIRST if condition in said)


class Phase(StrEnum):
    """Where a job or a step stands."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    ENDING = "ending"
    ENDED = "ended"
    UNKNOWN = "unknown"


_PHASES: Final = {
    "PENDING": Phase.WAITING,
    "CONFIGURING": Phase.WAITING,
    "POWER_UP_NODE": Phase.WAITING,
    "REQUEUED": Phase.WAITING,
    "REQUEUE_FED": Phase.WAITING,
    "REQUEUE_HOLD": Phase.WAITING,
    "RESV_DEL_HOLD": Phase.WAITING,
    "SPECIAL_EXIT": Phase.WAITING,
    "EXPEDITING": Phase.WAITING,  # 25.11 and later: to be requeued before all others
    "RUNNING": Phase.RUNNING,
    "RESIZING": Phase.RUNNING,
    "SIGNALING": Phase.RUNNING,
    "SUSPENDED": Phase.PAUSED,
    "STOPPED": Phase.PAUSED,
    "COMPLETING": Phase.ENDING,
    "STAGE_OUT": Phase.ENDING,
    "UPDATE_DB": Phase.ENDING,
    "BOOT_FAIL": Phase.ENDED,
    "CANCELLED": Phase.ENDED,
    "COMPLETED": Phase.ENDED,
    "DEADLINE": Phase.ENDED,
    "FAILED": Phase.ENDED,
    "LAUNCH_FAILED": Phase.ENDED,
    "NODE_FAIL": Phase.ENDED,
    "OUT_OF_MEMORY": Phase.ENDED,
    "PREEMPTED": Phase.ENDED,
    "RECONFIG_FAIL": Phase.ENDED,
    "REVOKED": Phase.ENDED,
    "TIMEOUT": Phase.ENDED,
}

_FLAGS_FIRST: Final = (Phase.WAITING, Phase.ENDING, Phase.PAUSED, Phase.RUNNING, Phase.ENDED)
"""Of several words (JSON and `squeue` may give a base and flags) the one that says what is still to come wins."""


def phase(text: str) -> Phase:
    """Where a job or a step in this state stands; several words are joined by `+` or `,`."""
    words = [word.strip() for word in text.upper().replace(",", "+").split("+")]
    said = {_PHASES.get(word.split()[0] if word else "", Phase.UNKNOWN) for word in words}
    if Phase.UNKNOWN in said:
        return Phase.UNKNOWN
    return next(one for one in _FLAGS_FIRST if one in said)
