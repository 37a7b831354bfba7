"""What is tolerated: the thresholds of a profile, validated. Units stand last in each name; seconds unless said.

A profile is TOML. `profiles/auto.toml`, `approve.toml` and `observe.toml` ship; a site's own may start from one of them
(`extends = "auto"`).
"""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policies.facts import FaultClass

Mode = Literal["observe", "approve", "auto"]
Seconds = Annotated[float, Field(ge=0, le=31_536_000)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


class StallRules(_Section):
    """A phase is stalled after max(floor, factor x the slowest ordinary step of this run), measured from the last advance.

    The floors lie below NCCL's watchdog (10 min by default), so that we look before it kills.
    """

    start_up_s: Seconds = 300
    load_s: Seconds = 480
    step_floor_s: Seconds = 10
    step_factor: Annotated[float, Field(ge=2, le=1000)] = 8
    save_s: Seconds = 480
    evaluation_s: Seconds = 480
    shutdown_s: Seconds = 120
    confirm_s: Seconds = 1
    """A stall must still be there after this time."""
    save_written_s: Seconds = 3600
    """A save that has begun and is not written after this time never ends."""


class NodeRules(_Section):
    """When a silent node is a suspect: its probe fails while most other probes succeed."""

    silent_s: Seconds = 6
    others_answer_share: Share = 0.5
    check_s: Seconds = 60
    """So long a spare may take to look at itself anew before it takes a slot, and a spare that has just come for its first
    look. One that has not answered by then is passed over."""
    launch_s: Seconds = 120
    """An attempt whose ranks have not all started after this time has not launched."""
    gone_s: Seconds = 60
    """So long a launch that is stopped may show nothing before it counts as one that never came, a spare that is up may be
    without an agent before the run halts for want of it, and a cluster that has just started may not have heard of a node."""


class EvidenceRules(_Section):
    """How long evidence may hold up a recovery."""

    capture_s: Seconds = 30


class CheckpointRules(_Section):
    """How many completed saves are kept. One more is always being written."""

    keep: Annotated[int, Field(ge=1, le=100)] = 3
    seal_s: Seconds = 3600
    """So long a restart waits for the checks of a newer save before it takes an older one."""
    room_factor: Annotated[float, Field(ge=1, le=10)] = 1.1
    """Free room wanted before the next save, as a multiple of the last one's size."""
    archive_every_s: Annotated[float, Field(ge=60, le=31_536_000)] = 86_400
    """How often the newest completed save is copied into the archive, where one is configured. Twice as long without
    a copy, and a person is told."""
    reread_every_s: Annotated[float, Field(ge=60, le=31_536_000)] = 86_400
    """How often each completed save in the store is read again in full."""
    unfinished_factor: Annotated[float, Field(ge=1, le=1000)] = 3
    unfinished_floor_s: Seconds = 300
    """A save that is not written after max(floor, factor x the slowest written save of this run) is told, nothing more."""


class BudgetRules(_Section):
    """Restarts allowed within the window, per cause."""

    infrastructure: Count = 12
    software: Count = 3
    window_s: Seconds = 86_400
    no_progress_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Attempts in a row that gained no update, before it halts."""
    no_suspect: Count = 1
    """Restarts in place within the window after faults of one class that point at nobody, before a person is asked."""


class QuarantineRules(_Section):
    """How long a suspect node stays barred, and what it has to expect when it is back.

    Of all refaults 31.2 % come within 7 days of a node's return and 42.8 % within 30 (StepFun's trace).
    """

    bar_s: Seconds | None = None
    """A node that is barred for the first time may come back after this, through a check. None: not by itself."""
    repeat_days: Annotated[float, Field(ge=0, le=3650)] = 30
    """Barred again within so many days: for good."""
    probation_days: Annotated[float, Field(ge=0, le=3650)] = 7
    """So long a node that came back is the last to be taken as a spare."""
    soon_steps: Count = 100
    soon_s: Seconds = 3600
    """A fault that comes back on a slot after its node was changed, in fewer steps and less time, is not the node's."""
    breaker_share_per_hour: Share = 0.05
    """More nodes than this share of all slots (at least 2) barred within an hour, and a person is asked."""


class ProbationRules(_Section):
    """Replayed losses against those before the fault."""

    loss_tolerance: Annotated[float, Field(ge=0, le=10)] = 1e-3
    """Largest relative difference; 0 asks for the same bits."""
    window: Annotated[int, Field(ge=1, le=10_000)] = 16
    differing_max: Count = 2
    """Of `window` replayed steps in a row, so many may differ by more than the tolerance."""

    @model_validator(mode="after")
    def _never_one_point(self) -> Self:
        """Bits do not differ by chance; losses do. Raises ValueError."""
        if self.loss_tolerance > 0 and not 1 <= self.differing_max < self.window:
            raise ValueError("differing_max: one loss off is no verdict; it must be 1 or more, and less than window")
        return self


class JobRules(_Section):
    """When a run leaves its Slurm job by itself, with a save and no fault."""

    leave_s: Annotated[float, Field(ge=5, le=86_400)] = 600
    """So long before the job ends (time limit, preemption, maintenance) the ranks are asked to save and stop; earlier where
    saves took longer than half of it, and no more than half of the job where its time limit is short."""
    down_s: Annotated[float, Field(ge=1, le=3600)] = 60
    """So long before the end, what has not stopped by itself is stopped; no more than a fifth of a job with a short time limit."""
    told_s: Seconds = 3600
    """So long before the end a person is told, where the run does not go on by itself."""
    move_s: Seconds = 600
    """A planned stop for another reason may take so long before what still runs is stopped."""


class SpareRules(_Section):
    """When hot spares that are spent are made up for. A job can't get new nodes; the next one can."""

    low: Count = 0
    """With fewer hot spares than this, and fewer than the job began with, the run saves and goes on in its next job.
    0: not before a slot is without a node."""


class DataRules(_Section):
    """How the training reads its data."""

    prefetch_steps: Annotated[int, Field(ge=0, le=10_000)] = 2
    """So many batches beyond the one being trained may have been read when a rank fails (torch's loader: 2 a worker)."""


class TellingRules(_Section):
    """When people are told again of a plan or a halt that nobody has answered; 0: never. Nothing is done by time-out."""

    remind_s: Seconds = 900
    """The first reminder after this; then after twice, four times as long, at most a day apart."""
    escalate_s: Seconds = 3600
    """From here on those in `[notify] escalate_urls` are told too."""


class Rules(_Section):
    """One profile."""

    mode: Mode = "approve"
    cleared: frozenset[FaultClass] = frozenset()
    """In auto mode, the fault classes that are acted on without asking."""
    stall: StallRules = StallRules()
    node: NodeRules = NodeRules()
    evidence: EvidenceRules = EvidenceRules()
    checkpoint: CheckpointRules = CheckpointRules()
    budget: BudgetRules = BudgetRules()
    quarantine: QuarantineRules = QuarantineRules()
    probation: ProbationRules = ProbationRules()
    data: DataRules = DataRules()
    job: JobRules = JobRules()
    spares: SpareRules = SpareRules()
    telling: TellingRules = TellingRules()
    hold_s: Seconds = 7200
    """How long a halt keeps the allocation, so that evidence on the nodes survives; 0 on one machine."""


def as_text(rules: Rules) -> str:
    """A profile as JSON, whole and always in the same order: what the journal keeps. `Rules.model_validate_json` reads it."""
    table = rules.model_dump(mode="json")
    return json.dumps(table | {"cleared": sorted(table["cleared"])}, sort_keys=True, separators=(",", ":"))
