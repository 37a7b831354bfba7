"""How a job ended, where no line names a cause: well, by its weakest words, or by a person's hand. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from policies.asked import was_told
from policies.clues import Case, Clue, Verdict
from policies.inferring import TIMED_OUT
from policies.ordering import best_evidence, cascade, minimal, surely_before

STOPPING: Final = frozenset({"launcher-stops", "step-stops", "launch-failed-elsewhere", "srun-terminated"})
"""Words of those who stop processes and of those who are stopped: part of a cancellation, whoever writes first of it."""


def finished(case: Case, strong: Sequence[Clue]) -> Verdict | None:
    """Training that reached its end has not failed, however its processes then ended."""
    done = case.finished_at
    if (case.completed is False and done is None) or (done is not None and _only_stopped(done, case)):
        return None
    if done is None:
        if not case.completed or (
            strong and any(c.kind == "collective-timeout" and not c.survived for c in case.clues)
        ):
            return None
    elif any(_spoils(done, clue, case) for clue in strong):
        return None
    why = "The trainer says that it reached its end." if done else "The accounting says that the job completed."
    after = tuple(c for c in case.clues if c.role in ("root", "cascade"))[:3]
    against = tuple(f"{c.file}:{c.line}: {c.text[:120]}" for c in after)
    support = (done,) if done else ()
    return Verdict(
        failed=False, category="none", restart_ok=True, confidence="high", why=why, support=support, against=against
    )


def _only_stopped(done: Clue, case: Case) -> bool:
    """Is "done" said short of the last step, by a run that had become slower for good, with a node that is named for it?"""
    short = case.last_step is not None and case.of_steps is not None and case.last_step < case.of_steps
    if done.kind != "finished-word" or case.completed or not short or case.pace is None:
        return False
    return any(c.category == "performance.straggler" and c.node is not None for c in case.clues)


def _spoils(done: Clue, root: Clue, case: Case) -> bool:
    """An error that stands before the trainer's last word, or a last save that failed after it."""
    if root.file == done.file and root.line < done.line:
        return root.grade >= 3 and not case.completed  # both the trainer and Slurm say that it got over this
    if root.category.startswith("storage.") and root.file == done.file:
        return not any(c.kind == "activity-saved" and c.file == done.file and c.line > done.line for c in case.clues)
    return False


def weakest(
    case: Case,
    roots: Sequence[Clue],
    live: Sequence[Clue],
    explicit: Callable[[Case, Sequence[Clue], Sequence[Clue]], Verdict],
) -> Verdict:
    """Nothing names a cause and nobody is singled out: the first bad end, or nothing."""
    victims = {c.rank for c in live if c.role == "cascade" and c.rank is not None}
    exits = [c for c in roots if not _of_a_victim(c, victims) and not _swept(c, live)]
    pool = [c for c in exits if c.code not in (-6, -15)] or exits
    if not pool and not any(c.kind in TIMED_OUT for c in live):
        # Where collectives timed out, and all that ended are their victims, no end of a process is the cause.
        pool = [c for c in roots if not _swept(c, live)] or [c for c in live if c.kind == "killed"]
    if told := [c for c in roots if c.kind == "accounting-end"]:
        # Slurm gives such a state only where it ended the job itself: the ends of processes followed from that.
        hung = any(c.kind in TIMED_OUT for c in live)
        pool = told if not hung else [c for c in pool if c not in told]
    earliest = minimal(pool)
    if earliest and any(c.kind != "cancelled-by" for c in earliest):
        first = min((c for c in earliest if c.kind != "cancelled-by"), key=best_evidence)
        return Verdict(
            failed=True,
            category=first.category,
            first=first,
            restart_ok=first.restart and first.category not in ("config", "oom.host"),
            confidence="low",
            cascade=cascade(live, first),
            why="No line names a cause; this is the earliest end of a process that was not ended by another's.",
            support=tuple(earliest[1:4]),
        )
    fallen = [
        c
        for c in live
        if c.role == "root" and c.kind not in ("cancelled-by", "accounting-end")
        if not (_of_a_victim(c, victims) or _swept(c, live) or (c.survived and c.kind == "node-unanswering"))
    ]
    by_hand = any(c.kind == "cancelled-by" for c in live) and case.idle_s is None
    if fallen and not by_hand:  # it was survived, and is still the best that there is
        first = min(fallen, key=best_evidence)
        if case.completed is False or any(c.role == "cascade" for c in live):
            return replace(explicit(case, [first], live), confidence="low")
    stopped = [c for c in live if c.kind in ("cancelled", "cancelled-by")]
    hurt = [c for c in live if c.role == "cascade"]
    stopped.sort(key=lambda c: c.kind != "cancelled")
    if stopped and not any(surely_before(c, stopped[0]) for c in hurt if c.kind not in STOPPING):
        if case.idle_s is not None:
            return Verdict(
                failed=True,
                category="hang.unknown",
                first=stopped[0],
                restart_ok=True,
                confidence="medium",
                evidence="inference",
                why=f"No step was made for {case.idle_s:.0f} s, then the job was cancelled: a hang of which no log tells.",
            )
        return Verdict(
            failed=True,
            category="scheduler.cancel",
            first=stopped[0],
            restart_ok=True,
            confidence="medium",
            cascade=cascade(live, None),
            why="The job was cancelled, and nothing went wrong before it.",
            support=tuple(stopped[1:2]),
        )
    started = (
        any(c.kind.startswith("activity") or c.kind == "collective-timeout" for c in live) or case.last_step is not None
    )
    if hurt:
        first = min(hurt, key=lambda c: (c.earliest if c.earliest is not None else float("inf"), c.file, c.line))
        if started and all(c.kind in STOPPING for c in hurt) and any(was_told(c) for c in hurt):
            return Verdict(
                failed=True,
                category="scheduler.cancel",
                first=first,
                restart_ok=True,
                confidence="low",
                evidence="inference",
                why="Its processes were told to end (SIGTERM), and nothing went wrong before; by whom, no log says.",
            )
        never = (
            "The processes never met, and no step was made: mostly a name, a port or an interface that does not fit."
        )
        return Verdict(
            failed=True,
            category="hang.unknown" if started else "config",
            first=first,
            restart_ok=started,
            confidence="low",
            evidence="inference",
            cascade=cascade(live, None),
            why="Only consequences are in these logs; they single out nobody." if started else never,
        )
    if case.completed is False:
        return Verdict(
            failed=True,
            category="hang.unknown",
            confidence="low",
            why="The accounting says that it failed; these logs do not say why.",
        )
    return _no_word(case)


def _of_a_victim(end: Clue, victims: Collection[int]) -> bool:
    """Is this the end of a process that said before that it waited for others, as such processes end?"""
    return end.rank is not None and end.rank in victims and end.code in (None, 1, -6, -15)


def _swept(end: Clue, live: Sequence[Clue]) -> bool:
    """Was this process killed because Slurm had ended the step before, by the order of the lines? KillWait later comes SIGKILL."""
    return end.kind == "srun-sigkill" and any(
        c.kind in ("cancelled", "preempted", "time-limit") and c.file == end.file and c.line < end.line for c in live
    )


def _no_word(case: Case) -> Verdict:
    """No word of failure and none of an end. A log that breaks off is not that of a run that has finished."""
    if not case.is_job:
        return Verdict(
            failed=False,
            category="none",
            confidence="low",
            evidence="inference",
            why="Nothing in these files is of a training job: no step, no launcher, no error.",
            cannot_tell=True,
        )
    if case.last_step is not None and case.of_steps is not None and case.last_step >= case.of_steps:
        return Verdict(
            failed=False,
            category="none",
            restart_ok=True,
            confidence="medium",
            evidence="inference",
            why=f"The last of {case.of_steps} steps was made, and nothing says that anything failed after it.",
        )
    end, where = case.ending, "before the first step"
    if case.last_step is not None:
        where = f"after step {case.last_step}"
    first = None
    if end is not None:
        first = Clue(
            "silence", "root", 2, "hang.unknown", "reporter", True, end.text, end.file, end.line, found_by="silence"
        )
    return Verdict(
        failed=True,
        category="hang.unknown",
        first=first,
        restart_ok=True,
        confidence="low",
        evidence="inference",
        why=(
            f"The logs end {where}, with no word of failure and none of an end: the job was killed from outside, its"
            " last lines are lost, or it still runs. `sacct -j JOB` says which."
        ),
        cannot_tell=True,
    )
