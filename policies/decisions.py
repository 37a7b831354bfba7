"""What may be decided, as values: one of these is the answer of each look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from policies.facts import Counters, FaultClass, Rejected, Spans
from policies.reasons import Reason

Then = Literal["end", "next-job", "here"]
"""How a run goes on after a planned stop: not by itself, in the next job, or in this one with other nodes."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Nothing to do. `until` is the next moment at which that may change."""

    reason: Reason
    until: float | None = None
    text: str = ""
    kind: Literal["continue"] = "continue"


@dataclass(frozen=True, slots=True)
class Wait:
    """Something must be seen first; look again at `until` at the latest. `tells`: a person must see to it."""

    reason: Reason
    until: float
    text: str = ""
    tells: bool = False
    kind: Literal["wait"] = "wait"


@dataclass(frozen=True, slots=True)
class Contain:
    """Keep the evidence of a dead attempt, fence and stop it. What comes next is decided when it is down."""

    reason: Reason
    incident: int
    attempt: int
    died: bool
    kind: Literal["contain"] = "contain"


@dataclass(frozen=True, slots=True)
class Restores:
    """What a restore from the archive moves, and how long it takes at the pace of the last copy; None: not known."""

    bytes: int
    about_s: float | None = None


@dataclass(frozen=True, slots=True)
class Recover:
    """Start the next attempt. Its effects (and nothing else) make the digest that a person approves."""

    reason: Reason
    incident: int | None
    fault: FaultClass | None
    died: bool
    stops: int | None  # the attempt that must be down first
    attempt: int
    slots: tuple[str, ...]
    bars: tuple[str, ...]
    checkpoint: str | None
    checkpoint_step: int
    manifest_hash: str | None
    rejected: tuple[Rejected, ...] = ()
    swaps: tuple[tuple[int, str, str], ...] = ()
    redo_steps: int = 0
    start: Counters | None = None  # the counters that the checkpoint holds
    asks: bool = False  # a rule wants a person even where automation would act
    text: str = ""
    skip_samples: Spans = ()  # left out from here on
    restores: Restores | None = None  # the checkpoint is only in the archive, and comes into the store first
    kind: Literal["recover"] = "recover"


@dataclass(frozen=True, slots=True)
class PlannedStop:
    """Save, stop, go on later. No fault, no strike. `down`: what has not stopped by itself by now is stopped."""

    reason: Reason
    attempt: int
    then: Then = "end"
    down: bool = False
    text: str = ""
    kind: Literal["planned-stop"] = "planned-stop"


@dataclass(frozen=True, slots=True)
class Halt:
    """No more restarts until a person says so."""

    reason: Reason
    seen: str
    lifts: str
    attempt: int | None
    incident: int | None
    kind: Literal["halt"] = "halt"


@dataclass(frozen=True, slots=True)
class Finish:
    """The training has reached its end: seal what is left and let the nodes go."""

    reason: Reason
    attempt: int
    kind: Literal["finish"] = "finish"


Decision = Continue | Wait | Contain | Recover | PlannedStop | Halt | Finish
