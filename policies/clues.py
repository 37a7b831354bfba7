"""What a reader of logs hands to the verdict: clues with place and time, the layout, and how far training got. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Clue:
    """One line that means something.

    `earliest` and `latest` are seconds since 1970 by the best common clock, bounds included; None is not known.
    `order` is the place of the line among all lines of its file. `survived`: training went on for steps after it.
    """

    kind: str
    role: Literal["root", "cascade", "context", "benign"]
    grade: int
    category: str
    blames: Literal["reporter", "peer", "nobody"]
    restart: bool
    text: str
    file: str
    line: int
    rank: int | None = None
    node: str | None = None
    peer: str | None = None
    earliest: float | None = None
    latest: float | None = None
    survived: bool = False
    speaker: str = ""  # the same text for lines of one process, as far as they can be told apart
    seq: int | None = None
    op: str = ""  # the collective that it waited in
    code: int | None = None
    tasks: tuple[int, ...] = ()
    frames: str = ""  # what the traceback before it went through: data, save, load, framework, kernels, or nothing
    found_by: str = "line"


@dataclass(frozen=True, slots=True)
class Stack:
    """What one process was doing, by a stack dump. `waits_in`: communication, data, storage, stopped, other."""

    file: str
    line: int
    rank: int | None
    node: str | None
    waits_in: str
    top: str


@dataclass(frozen=True, slots=True)
class LastWords:
    """The last line of a rank that is no consequence of another's end."""

    file: str
    line: int
    step: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds per step as the log tells them, in order, with the line at which it changed for good."""

    before: float
    after: float
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that is known of one job."""

    clues: tuple[Clue, ...]
    nodes: tuple[str, ...] = ()
    world: int | None = None
    per_node: int | None = None
    completed: bool | None = None  # what the accounting says; None: it says nothing
    finished_at: Clue | None = None  # the trainer's own word that it has reached its end
    last_words: Mapping[int, LastWords] = field(default_factory=dict)
    stacks: tuple[Stack, ...] = ()
    pace: Pace | None = None
    idle_s: float | None = None  # how long no step was made before the job was cancelled, where that is long
    last_step: int | None = None  # the highest step of which a log tells
    of_steps: int | None = None  # how many steps were wanted, where the log of the last step tells it
    is_job: bool = False  # something in these logs is of a training job: steps, a layout, a load, a save
    ending: LastWords | None = None  # the last line of the log that went furthest
    notes: tuple[str, ...] = ()  # what could not be read or ordered

    def node_of(self, rank: int | None) -> str | None:
        """The node of a rank in a block layout; None when that cannot be told."""
        if rank is None or not self.per_node or not self.nodes:
            return None
        slot = rank // self.per_node
        return self.nodes[slot] if slot < len(self.nodes) else None

    def ranks_of(self, node: str) -> range:
        """The ranks of a node in a block layout; empty when that cannot be told."""
        if not self.per_node or node not in self.nodes:
            return range(0)
        first = self.nodes.index(node) * self.per_node
        return range(first, first + self.per_node)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer. `first` is None when nothing failed or nothing can be shown."""

    failed: bool
    category: str
    first: Clue | None = None
    suspects: tuple[str, ...] = ()
    restart_ok: bool | None = None
    confidence: Literal["high", "medium", "low"] = "low"
    evidence: Literal["explicit", "inference"] = "explicit"
    cascade: str = ""
    why: str = ""
    support: tuple[Clue, ...] = ()
    against: tuple[str, ...] = ()
    cannot_tell: bool = False  # nothing says whether it failed; `failed` is then what is wiser to assume
