"""What the loop needs of the world beside the cluster (`slurm/cluster.py`). The real ones and the simulated ones fit here.

Calls that may take over 100 ms are made in worker threads by `perform/` and `observe/`; nothing else calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol

from policies.decisions import Decision
from policies.facts import AttemptView, CaptureView, CheckpointState, Expected, Finding, StepRow, Unknown, View
from policies.history import History
from slurm.cluster import Unreadable
from supervisor.errors import NotRestorable
from supervisor.gate import Held
from supervisor.journal.entries import Carried, Entry, Stamped
from supervisor.journal.requests import Answer, Request
from supervisor.telling.notices import Notice

NO_ARCHIVE: Final = "no archive is configured ([archive] place in relight.toml)"


class Store(Protocol):
    """The checkpoint store (`supervisor/checkpoints/`)."""

    def scan(self) -> tuple[CheckpointState, ...] | Unreadable:
        """Every save that is known."""
        ...

    def expected(self, checkpoint: str) -> Expected:
        """What every rank must have loaded. Raises NotRestorable."""
        ...

    def view_targets(self) -> Mapping[int, str | None] | Unreadable:
        """Attempt -> the save that its load view leads to."""
        ...

    def free_bytes(self) -> int | None:
        """Room that is left; None when it can't be seen."""
        ...

    def create(self) -> None:
        """Make the store, or bring it up to its marks."""
        ...

    def begin(self, checkpoint: str) -> bool:
        """Mark a save in progress."""
        ...

    def seal(self, checkpoint: str) -> CheckpointState:
        """Verify a save that the framework has finished, and publish it."""
        ...

    def abandon(self, checkpoint: str, why: str) -> CheckpointState:
        """Whatever appears in this save later is void."""
        ...

    def condemn(self, checkpoint: str, *reasons: str) -> CheckpointState:
        """A completed save that is no longer what was sealed."""
        ...

    def make_view(self, attempt: int, checkpoint: str | None) -> str:
        """The only folder that an attempt loads from. Raises NotRestorable."""
        ...

    def drop_view(self, attempt: int) -> None:
        """Take a view away that no attempt was launched with."""
        ...

    def retain(self, keep: int, protect: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Delete what is no longer needed."""
        ...

    def save_dir(self, attempt: int) -> str:
        """Where an attempt saves."""
        ...

    def view_dir(self, attempt: int) -> str:
        """Where an attempt loads from."""
        ...

    def scrub(self, checkpoint: str) -> CheckpointState:
        """Read a completed save again in full; what is not as it was sealed is condemned. Raises NotRestorable, OSError."""
        ...


class Archive(Protocol):
    """Copies of completed saves in another place (`supervisor/checkpoints/archive/`). Any call may hang: worker threads only."""

    def make(self, *, fresh: bool = False) -> None:
        """Make it, or find it: once, when a run begins. A mount that is gone must never look empty. Raises OSError, UserError.

        `fresh`: this run has just begun, so one that already has saves of its name is another run's, and refused.
        """
        ...

    def scan(self) -> tuple[CheckpointState, ...] | Unreadable:
        """Every copy that is known, with location "archive". Never empty because a read has failed."""
        ...

    def copy(self, checkpoint: str) -> None:
        """Copy a completed save from the store, and verify what has landed. Resumable. Raises NotRestorable, OSError."""
        ...

    def restore(self, checkpoint: str) -> None:
        """Copy a save back into the store, verified: the store then shows it as completed. Raises NotRestorable, OSError."""
        ...

    def keep_record(self, run_root: str) -> int:
        """Copy the run's journal, incidents and manifests; how many bytes were sent. Raises OSError."""
        ...

    def retain(self, keep: int, protect: Collection[str]) -> tuple[str, ...]:
        """Delete the oldest copies beyond the newest `keep` that are not protected; their ids. Raises OSError."""
        ...


class NoArchive:
    """What stands in where no archive is configured: nothing is ever in it."""

    def make(self, *, fresh: bool = False) -> None:
        """Nothing is made."""

    def scan(self) -> tuple[CheckpointState, ...]:
        """Nothing."""
        return ()

    def copy(self, checkpoint: str) -> None:
        """Raises NotRestorable."""
        raise NotRestorable(f"{checkpoint} can't be copied: {NO_ARCHIVE}")

    def restore(self, checkpoint: str) -> None:
        """Raises NotRestorable."""
        raise NotRestorable(f"{checkpoint} can't come back: {NO_ARCHIVE}")

    def keep_record(self, run_root: str) -> int:  # noqa: ARG002 - there is no place for it
        """Nothing is sent."""
        return 0

    def retain(self, keep: int, protect: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - nothing is there
        """Nothing is deleted."""
        return ()


class Agents(Protocol):
    """What the loop knows from the agents (`observe/hub.py`). `changes` counts what `connected` would show anew, beats apart."""

    changes: int

    def set_attempt(self, epoch: int, attempt: int, world: int, nodes: Iterable[str] = ()) -> None:
        """The newest attempt."""
        ...

    def set_reference(
        self, attempt: int, rows: Mapping[int, StepRow], tolerance: float = 0.0, window: int = 16
    ) -> None:
        """The rows that an attempt does again."""
        ...

    def restore(self, attempt: int, rows: Iterable[StepRow]) -> None:
        """Rows that an earlier controller has written."""
        ...

    def scan_exits(self, attempt: int, ranks: Collection[int] | None = None) -> int:
        """Exit records that no agent has told of."""
        ...

    def capture(self, incident: int, attempt: int, deadline_s: float = 30.0, *, stacks: bool = True) -> None:
        """Ask for what the logs say by now, and for stacks."""
        ...

    def end(self, attempt: int) -> None:
        """Have the agents kill what the cluster's own stop has left of an attempt."""
        ...

    def check(self, node: str, incident: int) -> None:
        """Ask a node's agent for a whole round of checks that begins after this question."""
        ...

    def when_captured(self, callback: Callable[[int], None]) -> None:
        """Call back once when the capture is done, with how many ranks are unknown."""
        ...

    def capture_state(self) -> CaptureView | None:
        """How far the newest capture is, and what it gave; None when there was none."""
        ...

    def connected(self) -> Mapping[str, Any]:
        """Node -> its agent."""
        ...

    def away(self) -> frozenset[str]:
        """Nodes whose agent has left, or is not heard of any more; from any thread."""
        ...

    def drain_rows(self) -> list[StepRow]:
        """New step rows."""
        ...

    def progress(self, attempt: int, now: float, running: bool | Unknown = ...) -> AttemptView:
        """An attempt as it stands."""
        ...

    def findings(self, attempt: int) -> tuple[Finding, ...]:
        """What was found in its logs."""
        ...


class AttemptFiles(Protocol):
    """The files of an attempt that everybody sees (docs/contracts.md, sections 1 and 2)."""

    def mark(self, attempt: int, name: str) -> None:
        """Set FENCED or STOP; safe to do again."""
        ...

    def marked(self, attempt: int, name: str) -> bool:
        """Is the mark there?"""
        ...

    def write_map(self, attempt: int, launch: Mapping[str, Any], hosts: tuple[str, ...]) -> None:
        """Write launch.json and hostfile; what stands there already stays."""
        ...

    def has_exits(self, attempt: int) -> bool:
        """Has any rank left an exit record?"""
        ...

    def keep_evidence(self, incident: int, attempt: int) -> int:
        """Copy what there is into the incident's folder; how many ranks' logs were kept."""
        ...

    def keep_seen(self, incident: int, document: Mapping[str, Any]) -> None:
        """Write what was to be seen into the incident's folder; a disk that is full loses it and nothing else."""
        ...

    def rows(self, attempt: int, after: int = 0) -> Iterable[StepRow]:
        """The step rows that were written of an attempt, above `after`."""
        ...

    def write_rows(self, rows: list[StepRow]) -> None:
        """Append step rows."""
        ...


class Desk(Protocol):
    """Where people leave requests and read what was made of them."""

    def pending(self) -> list[Request]:
        """Requests that wait."""
        ...

    def answer(self, reply: Answer) -> None:
        """Answer one and take it away."""
        ...

    def record(self, history: History, incident: int) -> None:
        """Write the record of an incident anew."""
        ...

    def status(self, view: View, decision: Decision, held: Held | None, now: float) -> None:
        """What is shown to those who ask."""
        ...

    def tell(self, notice: Notice, story: str, reached: Collection[str] = ()) -> int:
        """Wake a person, but for the targets that were reached before; how many targets there are. Never blocks, never raises."""
        ...

    def carried(self, matter: str | None) -> list[Carried]:
        """How notices fared since the last call. What is about another plan or halt than `matter` is not tried again."""
        ...

    def ticked(self) -> None:
        """The loop has turned, and what it had to write is in the journal. Never blocks, never raises."""
        ...


class Log(Protocol):
    """The journal as the loop sees it (`journal/journal.py`)."""

    @property
    def epoch(self) -> int:
        """The epoch that this journal's owner began."""
        ...

    def append(self, entries: Iterable[Entry], at: float) -> list[Stamped]:
        """Write durably, before anything is done. Raises FencedError."""
        ...
