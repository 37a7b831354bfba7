"""The documents' shapes: what the OpenAPI tells, and what a page may rely on. `schema` rises when a field changes its meaning.

Times are wall seconds, spans are seconds. Text that came from logs is as it was seen; `text` and `story` are cleaned lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.agreement import Agreement
from policies.decisions import Recover
from policies.facts import CheckpointState, FaultClass, SaveView, StepRow
from policies.history import Choice, Halted, Incident
from policies.ledger import Cost
from supervisor.console.reading import SCHEMA
from supervisor.telling.plan_page import PlanFacts


@dataclass(frozen=True, slots=True)
class Glance:
    """A run in one row. `error`: why it cannot be read; then nothing else is known. `plan` is the digest of the open plan."""

    run: str
    error: str = ""
    standing: str = ""
    mode: str = ""
    paused: bool = False
    halted: str | None = None
    ended: str | None = None
    controller_alive: bool = False
    decision: str = ""
    attempt: int | None = None
    step: int | None = None
    loss: float | None = None
    incidents: int = 0
    open_incident: int | None = None
    plan: str | None = None
    waits: bool = False
    checkpoint: str | None = None
    written_at: float | None = None


@dataclass(frozen=True, slots=True)
class You:
    """Whose token a call came with; `asks`: may it file requests."""

    name: str
    role: str
    asks: bool


@dataclass(frozen=True, slots=True)
class RunsDocument:
    """All runs, and who is asking."""

    runs: tuple[Glance, ...]
    you: You
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class StatusDocument:
    """What a run is doing now. `last_advance`: when any rank last moved on. `text`: as `relight status` prints it.

    `told`: who was told of what waits now, and what was not delivered and why; empty where nothing waits. `take_over`: the
    command that starts a controller where none is alive, else empty.
    """

    glance: Glance
    now: float
    epoch: int
    started_at: float | None
    attempts: int
    running: bool | None
    phase: str | None
    last_step: StepRow | None
    last_advance: float | None
    behind: tuple[int, ...]
    halt: Halted | None
    held: str
    slots: int
    slots_up: int | None
    spares_ready: int | None
    quarantined: int
    way_back: CheckpointState | None
    text: str
    told: tuple[str, ...] = ()
    take_over: str = ""
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """The open plan: `page` are the facts, `text` the page of `relight plan`, `decision` the plan itself.

    `before` is the plan of the same incident that this one has replaced, `changed` what is different.
    """

    open: bool
    waits: bool
    digest: str | None
    since: float | None
    page: PlanFacts | None
    decision: Recover | None
    choice: Choice
    before: str | None
    changed: tuple[str, ...]
    text: str
    controller_alive: bool
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class TextDocument:
    """A text for people."""

    text: str
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One incident in a list."""

    number: int
    attempt: int
    at: float
    fault: FaultClass
    reason: str
    suspects: tuple[str, ...]
    closed: bool
    state: str
    lost_s: float | None
    redo_iterations: int | None
    follows: int | None


@dataclass(frozen=True, slots=True)
class IncidentsDocument:
    """All incidents, oldest first."""

    incidents: tuple[IncidentRow, ...]
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class IncidentDocument:
    """One incident: what is remembered of it, what it cost, its story. `split_s`: seconds by part, in order."""

    incident: Incident
    state: str
    plan: str | None
    lost_s: float | None
    redo_iterations: int | None
    samples_read_again: int | None
    split_s: dict[str, float]
    cost: Cost
    story: str
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Stretch:
    """An attempt on the line of time; `closed_at` null: it is open. `incident`: the one that it is to end."""

    number: int
    intended_at: float
    accepted_at: float | None
    closed_at: float | None
    checkpoint: str | None
    start_step: int
    last_step: int | None
    incident: int | None


@dataclass(frozen=True, slots=True)
class Break:
    """An incident on the line of time: from `began_at`, the last good update where it is known, to `next_good` and `caught_up`."""

    number: int
    reason: str
    began_at: float
    next_good: float | None
    caught_up: float | None
    closed: bool


@dataclass(frozen=True, slots=True)
class LineDocument:
    """The run's line of time: all attempts and incidents, oldest first. `ended_at`: when the run was over."""

    now: float
    started_at: float | None
    ended_at: float | None
    attempts: tuple[Stretch, ...]
    incidents: tuple[Break, ...]
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class CheckpointsDocument:
    """Saves in the store, those in progress among them; `known` is false where the store cannot be read now."""

    known: bool
    as_of: float | None
    saves: tuple[CheckpointState, ...]
    being_written: tuple[SaveView, ...]
    free_bytes: int | None
    way_back: str | None
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class DrillRow:
    """One drill: the way back, tried in a scratch place. `parts`: seconds by part, in order; `took_s` is their sum."""

    number: int
    kind: str
    level: str
    checkpoint: str
    bytes: int
    began_at: float
    ended_at: float
    parts: dict[str, float]
    took_s: float
    ok: bool
    why: str


@dataclass(frozen=True, slots=True)
class DrillsDocument:
    """The newest drills of a run, the newest first; those that cannot be read are left out."""

    drills: tuple[DrillRow, ...]
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Samples `first` to `first + count - 1` were read again because of an incident."""

    incident: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class LedgerDocument:
    """Both ledgers and where the time went. `effective_share`: of the time since the start, what was neither down nor redone."""

    computed: int
    lineage: int
    rolled_back: int
    skipped: int
    adds_up: bool
    samples: int | None
    tokens: int | None
    samples_read_again: int
    read_again: tuple[ReadAgain, ...]
    split_s: dict[str, float]
    rank_hours: float
    effective_share: float | None
    agreement: tuple[Agreement, ...]
    schema: int = SCHEMA
