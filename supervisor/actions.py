"""The effects that relight can have on the world, as values. Each has a key, and can be seen to be done.

Pure: performing them is `supervisor/perform/`, judging them `gate.py`, ordering them `plan.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from policies import retention
from policies.facts import UNKNOWN, CheckpointPhase, CheckpointState, Counters, Spans, View


@dataclass(frozen=True, slots=True)
class StartAgent:
    """An agent on a node that has none."""

    node: str
    kind: Literal["start-agent"] = "start-agent"


@dataclass(frozen=True, slots=True)
class Check:
    """Ask the agent of a spare to look at its node anew, because of an incident: it may have to take a slot."""

    node: str
    incident: int
    kind: Literal["check"] = "check"


@dataclass(frozen=True, slots=True)
class Capture:
    """Keep the evidence of an attempt, before anything of it is killed."""

    incident: int
    attempt: int
    stacks: bool
    kind: Literal["capture"] = "capture"


@dataclass(frozen=True, slots=True)
class Fence:
    """Nothing of this attempt may publish any more."""

    attempt: int
    kind: Literal["fence"] = "fence"


@dataclass(frozen=True, slots=True)
class Stop:
    """Kill every rank of an attempt that can be reached."""

    attempt: int
    kind: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True)
class Begin:
    """Mark saves in progress that the ranks have told of."""

    checkpoints: tuple[str, ...]
    kind: Literal["begin"] = "begin"


@dataclass(frozen=True, slots=True)
class Seal:
    """Verify a save that the framework has finished, and publish it."""

    checkpoint: str
    kind: Literal["seal"] = "seal"


@dataclass(frozen=True, slots=True)
class Abandon:
    """Saves of a fenced attempt that were not finished: whatever appears in them later is void."""

    checkpoints: tuple[str, ...]
    kind: Literal["abandon"] = "abandon"


@dataclass(frozen=True, slots=True)
class Retain:
    """Delete what is older than the newest `keep` completed saves."""

    newest: str
    keep: int
    protect: tuple[str, ...]
    kind: Literal["retain"] = "retain"


@dataclass(frozen=True, slots=True)
class Restore:
    """Bring a save back from the archive into the store."""

    checkpoint: str
    kind: Literal["restore"] = "restore"


@dataclass(frozen=True, slots=True)
class Archive:
    """Copy a completed save into the archive, and the run's own record with it; then delete the oldest copies there."""

    checkpoint: str
    protect: tuple[str, ...] = ()
    kind: Literal["archive"] = "archive"


@dataclass(frozen=True, slots=True)
class Scrub:
    """Read a completed save again in full. `read_at`: when that was last done, as the store showed it."""

    checkpoint: str
    read_at: float | None
    kind: Literal["scrub"] = "scrub"


@dataclass(frozen=True, slots=True)
class Bar:
    """Quarantine nodes. The entry in the journal is our own exclusion; a drain is added where rights allow."""

    nodes: tuple[str, ...]
    incident: int
    bar_s: float | None
    kind: Literal["bar"] = "bar"


@dataclass(frozen=True, slots=True)
class Unbar:
    """Let others have a node again that has come back through a check: our own drain is lifted, nobody else's."""

    node: str
    incident: int
    kind: Literal["unbar"] = "unbar"


@dataclass(frozen=True, slots=True)
class MakeView:
    """Prepare the only folder that an attempt loads from."""

    attempt: int
    checkpoint: str | None
    kind: Literal["make-view"] = "make-view"


@dataclass(frozen=True, slots=True)
class Launch:
    """Start all ranks of an attempt. `epoch` is that of the intent, so that asking again asks for the same step."""

    attempt: int
    epoch: int
    slots: tuple[str, ...]
    checkpoint: str | None
    start: Counters
    incident: int | None
    skip_samples: Spans = ()
    kind: Literal["launch"] = "launch"


@dataclass(frozen=True, slots=True)
class AskStop:
    """Ask the ranks to save and end (planned stop)."""

    attempt: int
    kind: Literal["ask-stop"] = "ask-stop"


@dataclass(frozen=True, slots=True)
class NextJob:
    """Have the run's next job begin, without these nodes. It follows one start of one job, so that it is asked for once."""

    job: str
    start: str
    exclude: tuple[str, ...]
    kind: Literal["next-job"] = "next-job"


@dataclass(frozen=True, slots=True)
class Release:
    """Let the nodes go: the run is over."""

    kind: Literal["release"] = "release"


Action = (
    StartAgent
    | Check
    | Capture
    | Fence
    | Stop
    | Begin
    | Seal
    | Abandon
    | Retain
    | Restore
    | Archive
    | Scrub
    | Bar
    | Unbar
    | MakeView
    | Launch
    | AskStop
    | NextJob
    | Release
)
SLOW = Restore | Archive | Scrub
"""Effects that move or read a whole save: they have lanes of their own, and are not asked for again while they are at work."""

RETRY_S = {
    "launch": 20.0,
    "stop": 2.0,
    "start-agent": 8.0,
    "seal": 2.0,
    "make-view": 2.0,
    "restore": 5.0,
    "archive": 60.0,
    "scrub": 60.0,
    "next-job": 20.0,
}
"""How long an effect may take to show before it is asked for again, seconds; 10 where nothing is said. Doubled at each try."""
RETRY_MAX_S = 300.0
RETRY_MAX = {"archive": 3600.0, "scrub": 3600.0}
"""What may fail for days is not asked for, and journaled, every five minutes."""


def key(action: Action) -> str:
    """The name of an effect: two actions with the same key are the same effect."""
    match action:
        case StartAgent():
            return f"start-agent:{action.node}"
        case Check() | Unbar():
            return f"{action.kind}:{action.incident}:{action.node}"
        case Capture():
            return f"capture:{action.incident}"
        case Fence() | Stop() | MakeView() | Launch() | AskStop():
            return f"{action.kind}:{action.attempt}" + (f":{action.checkpoint}" if isinstance(action, MakeView) else "")
        case Seal() | Restore() | Archive() | Scrub():
            return f"{action.kind}:{action.checkpoint}"
        case Abandon() | Begin():
            return f"{action.kind}:{','.join(action.checkpoints)}"
        case Retain():
            return f"retain:{action.newest}"
        case Bar():
            return f"bar:{action.incident}:{','.join(action.nodes)}"
        case NextJob():
            return f"next-job:{action.job}:{action.start}"
        case Release():
            return "release"
        case _:
            assert_never(action)


def _phases(view: View) -> dict[str, CheckpointPhase]:
    return {} if view.checkpoints is UNKNOWN else {c.id: c.phase for c in view.checkpoints}


def _is_unread(action: Scrub, saves: tuple[CheckpointState, ...]) -> bool:
    """Is it still there and completed, and not read again since? What is condemned or deleted needs no reading."""
    found = [c for c in saves if c.id == action.checkpoint and c.phase is CheckpointPhase.COMPLETED]
    return any((c.read_at or 0.0) <= (action.read_at or 0.0) for c in found)


def superfluous(view: View, keep: int, protect: tuple[str, ...]) -> tuple[str, ...]:
    """Completed saves beyond the newest `keep` that nothing needs, oldest first."""
    found = () if view.checkpoints is UNKNOWN else view.checkpoints
    return tuple(c.id for c in retention.superfluous(found, keep, protect))


def is_done(action: Action, view: View) -> bool:
    """Does the world show the effect? Never answered from a reply."""
    match action:
        case StartAgent():
            return view.nodes is not UNKNOWN and action.node in view.nodes and view.nodes[action.node].agent
        case Check():
            found = None if view.nodes is UNKNOWN else view.nodes.get(action.node)
            return found is not None and found.checked_for >= action.incident
        case Capture():
            return view.capture is not None and view.capture.incident == action.incident and view.capture.done
        case Fence():
            return action.attempt in view.fenced
        case Stop():
            return view.nodes is not UNKNOWN and action.attempt not in view.steps_running
        case Seal():
            phase = _phases(view).get(action.checkpoint)
            return phase in {CheckpointPhase.COMPLETED, CheckpointPhase.BROKEN, CheckpointPhase.ABANDONED}
        case Restore():
            return _phases(view).get(action.checkpoint) is CheckpointPhase.COMPLETED
        case Archive():
            copies = () if view.archive is UNKNOWN else view.archive
            return any(c.id == action.checkpoint and c.phase is CheckpointPhase.COMPLETED for c in copies)
        case Scrub():
            return view.checkpoints is not UNKNOWN and not _is_unread(action, view.checkpoints)
        case Abandon():
            open_phases = {CheckpointPhase.IN_PROGRESS, CheckpointPhase.FRAMEWORK_DONE}
            phases = _phases(view)
            return view.checkpoints is not UNKNOWN and not any(phases.get(c) in open_phases for c in action.checkpoints)
        case Retain():
            return view.checkpoints is not UNKNOWN and not superfluous(view, action.keep, action.protect)
        case Bar() | Unbar() | Begin():
            return True  # asked for once; a bar is the journal entry of its intent, and a seal makes the mark if it is missing
        case MakeView():
            return action.attempt in view.views_made and view.views_made[action.attempt] == action.checkpoint
        case Launch():
            return action.attempt in view.launched and not view.untold
        case AskStop():
            return action.attempt in view.stop_asked
        case NextJob():
            job = view.job
            return job is not None and ((job.id, job.start) != (action.job, action.start) or bool(job.next))
        case Release():
            return view.released
        case _:
            assert_never(action)
