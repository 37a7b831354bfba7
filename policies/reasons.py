"""Every reason that a decision can give. Each has a runbook page of the same name in runbooks/."""

from enum import StrEnum


class Reason(StrEnum):
    """Why. The value is the name of the runbook page."""

    # all is well, or not yet known to be otherwise
    FIRST_START = "first-start"
    RUNNING = "running"
    ACCEPTING = "accepting"
    PROBATION = "probation"
    FINISHED = "finished"
    PLANNED_STOP = "planned-stop"
    NEXT_JOB = "next-job"
    # waiting to see
    FIRST_LOOK = "first-look"
    SEALING = "sealing-checkpoint"
    LAUNCHING = "launching"
    BLIND = "cluster-unreadable"
    STORE_BLIND = "store-unreadable"
    ARCHIVE_BLIND = "archive-unreadable"
    # what stopped the run
    RANK_DIED = "rank-died"
    RANK_FAILED = "rank-failed"
    NODE_LOST = "node-lost"
    NODE_SILENT = "node-silent"
    STALL = "stall"
    NON_FINITE = "non-finite-loss"
    SAVE_STUCK = "save-stuck"
    LAUNCH_FAILED = "launch-failed"
    ACCEPTANCE_FAILED = "acceptance-failed"
    PROBATION_FAILED = "probation-failed"
    # why a person is asked first
    BREAKER = "breaker"
    NOT_THE_NODE = "not-the-node"
    NO_SUSPECT = "no-suspect"
    # what will stop it if nobody looks
    ARCHIVE_LATE = "archive-late"
    SAVE_UNFINISHED = "save-unfinished"
    JOB_ENDS = "job-ends"
    NODE_DRAINED = "node-drained"
    SPARES_LOW = "spares-low"
    # why it is not restarted
    NO_SPARE = "no-spare"
    NO_CHECKPOINT = "no-checkpoint"
    NO_ROOM = "no-room-for-checkpoint"
    BUDGET_INFRASTRUCTURE = "infrastructure-budget-spent"
    BUDGET_SOFTWARE = "software-budget-spent"
    NO_PROGRESS = "no-progress"
    SAME_DATA = "same-data"
    LOSS_OFF = "loss-off"
    PERSON_HALTED = "halted-by-person"
    REFUSED = "plan-refused"
