"""The job that holds a run's nodes: when it ends, and the one that follows it.

A running job gets no new nodes, and ends at its time limit. The next one is the same job requeued, or another that is
submitted as this one was and begins when it has ended. Only the second can be had from inside without a delay: a job that is
requeued waits for `cred_expire` (121 s by default) unless somebody outside of it gives it a StartTime once it is pending.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Final, Literal

from slurm import hostlist, parsing
from slurm.asking import Commands
from slurm.awaited import ASKING, asked_for, left_out, note_of
from slurm.cluster import EndsBy, Job, Unreadable
from slurm.once import write_once
from slurm.parsing import JobRow
from slurm.states import Phase

SUBMISSION: Final = "RELIGHT_SBATCH"
"""In the environment of a job: how it was submitted (`Submission.text`)."""
ENDS_S: Final = 2.0
"""How often the job's end is asked for; a time limit may be changed, a preemption gives its grace time only."""
MAINTENANCE_S: Final = 60.0
"""How often reservations are."""
PENDING_S: Final = 60.0
"""So long a requeued job may take to be pending: its tasks get KillWait (30 s by default) to end."""
REFUSED_MAX: Final = 3
"""So often a submission may fail before this job is requeued in its place. Chosen."""
AGAIN_S: Final = 3
"""So long after its end a requeued job begins. 24.11 calls one FAILED ("Job credential revoked") that begins on the same node
within the second in which it has ended: 5 of 8 with StartTime=now, none of 8 with now+1. Clocks of nodes differ.
"""
TOO_MANY: Final = "Requested node configuration is not available"
"""What sbatch says at once where the partition has fewer nodes than are asked for, without the excluded ones (22.05.8)."""
_OF_SLURM: Final = ("SBATCH_CPU_BIND", "SBATCH_MEM_BIND")
"""Of the variables that sbatch obeys, those that Slurm itself sets in a batch script: they tell of this job alone."""
_PHASES: Final[Mapping[Phase, Literal["waiting", "running", "ending", "ended"]]] = {
    Phase.WAITING: "waiting",
    Phase.RUNNING: "running",
    Phase.PAUSED: "running",
    Phase.ENDING: "ending",
    Phase.ENDED: "ended",
}


@dataclass(frozen=True, slots=True)
class Submission:
    """How a job was submitted: the words after `sbatch`, and where it was."""

    words: tuple[str, ...]
    cwd: str
    least: int = 0
    """The nodes of the training, without spares; 0: not known."""
    follows: str = ""
    """The job that has asked for this one; empty where a person has submitted it."""

    def text(self) -> str:
        """As one line, for the job's environment."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @property
    def spares(self) -> int | None:
        """How many were asked for beside the nodes of the training; None where that isn't known."""
        count = re.fullmatch(r"--nodes=(\d{1,6})", self.words[0], re.ASCII)
        return int(count[1]) - self.least if count is not None and 0 < self.least <= int(count[1]) else None

    def smaller(self, by: int) -> tuple[str, ...]:
        """The words for `by` spares fewer; empty where those can't be gone without, or it isn't known.

        Only what `relight sbatch` has put before the script is changed; the script's own arguments may look alike.
        """
        if self.spares is None or by > self.spares:
            return ()
        had, words = self.least + self.spares, list(self.words)
        words[0] = f"--nodes={had - by}"
        for at, word in enumerate(words):
            if not word.startswith("--"):
                break
            if total := re.fullmatch(r"--ntasks=(\d{1,9})", word, re.ASCII):
                words[at] = f"--ntasks={int(total[1]) // had * (had - by)}"
        return tuple(words)

    @classmethod
    def read(cls, text: str) -> Submission | None:
        """None for what is none."""
        try:
            found = json.loads(text)
            words, cwd, least, follows = found["words"], found["cwd"], found.get("least", 0), found.get("follows", "")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if not (isinstance(words, list) and words and all(isinstance(one, str) for one in (*words, cwd, follows))):
            return None
        return cls(tuple(words), cwd, least if type(least) is int else 0, follows)


@dataclass(frozen=True, slots=True)
class Following:
    """How the next job is had: `submission` where it can be submitted anew, `requeue` where the job may be requeued."""

    submission: Submission | None = None
    requeue: bool = True


class Jobs:
    """Looks at the job that `commands` ask for, and asks for the next one."""

    def __init__(
        self, run_dir: str, commands: Commands, following: Following, end_steps: Callable[[], None] = lambda: None
    ) -> None:
        """`end_steps`: of the job, and wait for it; before the job is requeued."""
        self._run_dir = run_dir
        self._end_steps = end_steps
        self._commands = commands
        self._following = following
        self._times = parsing.JobTimes()
        self._maintenance: tuple[tuple[float, tuple[str, ...]], ...] = ()
        self._seen = ("", "")
        self._looked: dict[str, float] = {}
        self._ends_at = inf
        self._next: dict[tuple[str, str], str] = {}
        self._refused = 0

    def describe(self, row: JobRow) -> Job:
        """What holds the nodes, from a row that was just read. What can't be read of its end is not known."""
        phase = _PHASES[row.phase]
        if self._seen != (row.start, phase):  # what was read of another start, or while it waited, holds no more
            self._seen = (row.start, phase)
            self._looked.clear()
        if self._is_due("times", ENDS_S):  # of one that is over too: may it be requeued?
            self._read_times(row)
        if phase == "running" and self._is_due("maintenance", MAINTENANCE_S):
            self._read_maintenance()
        ends_at, by = self._end(row) if phase in {"running", "ending"} else (None, "")
        self._ends_at = inf if ends_at is None else ends_at
        can = self._following.submission is not None or (self._following.requeue and self._times.requeue)
        return Job(row.id, row.start, phase, row.state, ends_at, by, can, self._asked_for(row))

    def next_job(self, row: JobRow, start: str, exclude: Sequence[str]) -> None:
        """Submit the job that is to follow this start of it, or have it requeued. Asked twice, the one that stands is found.

        Raises OSError.
        """
        begun_anew = row.phase is Phase.RUNNING and row.start != start
        asked = row.phase is not Phase.WAITING and self._asked_for(row)  # one that waits has no start to be known by
        if begun_anew or asked:
            return
        submission = self._following.submission
        # A job that is over is followed by itself only: nobody is left for whom another would have to wait.
        if submission is not None and row.phase is Phase.RUNNING:
            shown = self._shown(row)
            owners, ours = self._without(row, shown, exclude)
            found = self._waiting(row, shown) or self._submitted(row, submission, shown, (*owners, *ours))
            if found:
                self._note(row, found, ours)
            else:
                self._requeue(row, exclude)
        elif self._following.requeue:
            self._requeue(row, exclude)
        else:
            raise OSError("no next job can be asked for ([cluster] next_job); submit the job script again")

    # --- its end ---

    def left_s(self) -> float:
        """Seconds until the job ends, as it was last described; infinite where no end of it is known."""
        return self._ends_at - time.time()

    def _end(self, row: JobRow) -> tuple[float | None, EndsBy]:
        # With a preemption EndTime becomes the end of the grace time; PreemptTime is when it has begun (22.05 to 26.05).
        times = self._times
        preempted = times.preempted_at is not None
        ends: list[tuple[float | None, EndsBy]]
        ends = [(times.ends_at or times.preempted_at, "preemption" if preempted else "time limit")]
        ends += [(at, "maintenance") for at, nodes in self._maintenance if set(nodes) & set(row.nodes)]
        known = [(at, by) for at, by in ends if at is not None]
        return min(known) if known else (None, "")

    def _is_due(self, what: str, every_s: float) -> bool:
        """Was it last read so long ago? Then it is read now."""
        now = time.monotonic()
        due = what not in self._looked or now - self._looked[what] >= every_s
        if due:
            self._looked[what] = now
        return due

    def _read_times(self, row: JobRow) -> None:
        answer = self._commands.ask(
            "squeue", "--noheader", "--states=all", f"--jobs={row.id}", "-O", parsing.TIMES_FORMAT
        )
        with suppress(ValueError):
            if answer.ok:
                self._times = parsing.times(answer.out)

    def _read_maintenance(self) -> None:
        """Those that are still to begin; a node on which it has begun shows it in its state."""
        answer = self._commands.ask("scontrol", "-o", "show", "reservation")
        with suppress(ValueError):
            if answer.ok:
                found = parsing.maintenance(answer.out)
                self._maintenance = tuple((at, nodes) for at, nodes in found if at > time.time())

    # --- the next one ---

    def _asked_for(self, row: JobRow) -> str:
        key = (row.id, row.start)
        if key not in self._next:
            found = asked_for(self._run_dir, *key)
            if not found:
                return ""
            self._next[key] = found
        return self._next[key]

    def _note(self, row: JobRow, following: str, without: Sequence[str]) -> None:
        note = {"schema": 1, "next": following, "without": list(without)}
        write_once(note_of(self._run_dir, row.id, row.start), note)

    def _without(self, row: JobRow, shown: str, exclude: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Whom the job's owner has excluded, and whom we leave out beside them. Said anew, the option replaces what stands; what
        we had left out of this job is nobody's wish any more.
        """
        before = left_out(self._run_dir, row.id, row.start)
        owners = tuple(n for n in hostlist.expand(parsing.excluded(shown)) if n not in before)
        return owners, tuple(dict.fromkeys(n for n in exclude if n not in owners))

    def _shown(self, row: JobRow) -> str:
        answer = self._commands.ask("scontrol", "-o", "show", "job", row.id)
        if not answer.ok:
            raise OSError(answer.why("scontrol show job"))
        return answer.out

    def _waiting(self, row: JobRow, shown: str) -> str:
        """The same job once more, waiting for the end of this one: whoever submitted it has died before it was noted."""
        answer = self._commands.ask(
            "squeue", "--noheader", f"--user={os.getuid()}", "--states=PENDING", "-o", parsing.WAITING_FORMAT
        )
        if not answer.ok:
            raise OSError(answer.why("squeue"))
        return parsing.waiting_for(answer.out, row.id, parsing.job_name(shown))

    def _submitted(self, row: JobRow, submission: Submission, shown: str, without: Sequence[str]) -> str:
        """The new job's id; empty where it was refused again and again (the script is gone, a limit of jobs), and this one can
        be requeued. Raises OSError.
        """
        try:
            return self._submit(row, submission, parsing.job_name(shown), without)
        except OSError:
            self._refused += 1
            if self._refused < REFUSED_MAX or not (self._following.requeue and self._times.requeue):
                raise
            return self._waiting(row, shown)  # one of which only the reply was lost

    def _submit(self, row: JobRow, submission: Submission, name: str, without: Sequence[str]) -> str:
        # By the name of this job the next one is found again; the script may have another.
        words = ["--parsable", f"--job-name={name}", f"--dependency=afterany:{row.id}"]
        words += [f"--exclude={','.join(without)}"] if without else []
        # What this one was submitted with by variables (account, partition, QOS) was for all of its jobs. As `relight sbatch`
        # has it: inside the job nothing else tells of --no-kill, nor of who has asked for it.
        theirs = {k: v for k, v in os.environ.items() if k.startswith("SBATCH_") and not k.startswith(_OF_SLURM)}
        known = {**theirs, "SBATCH_NO_KILL": "set", SUBMISSION: replace(submission, follows=row.id).text()}
        answer = self._commands.submit(*words, *submission.words, cwd=submission.cwd, env=known)
        # A job that is as large as its partition can't be had again without the barred nodes: each costs a spare then.
        for fewer in range(1, 1 + len(without)):
            smaller = submission.smaller(fewer)
            if TOO_MANY not in answer.err or not smaller:
                break
            answer = self._commands.submit(*words, *smaller, cwd=submission.cwd, env=known)
        number = answer.out.strip().split(";")[0]
        if not answer.ok or not number.isdigit():
            raise OSError(answer.why("sbatch"))
        return number

    def _requeue(self, row: JobRow, exclude: Sequence[str]) -> None:
        """From inside the job this ends with it; from outside the job is told to begin soon, elsewhere."""
        shown = self._shown(row)
        owners, ours = self._without(row, shown, exclude)
        if row.phase is Phase.RUNNING:
            with suppress(OSError, ValueError):  # what fails here keeps no job from following
                self._end_steps()
        if row.phase in {Phase.RUNNING, Phase.ENDED}:
            mark = note_of(self._run_dir, row.id, row.start) + ASKING
            with open(mark, "a", encoding="ascii"):  # from inside nobody is left to note it afterwards
                answer = self._commands.ask("scontrol", "requeue", row.id)
            if not answer.ok:
                if answer.code is not None:  # one that was late may have been heard all the same
                    os.unlink(mark)
                raise OSError(answer.why("scontrol requeue"))
        until = time.monotonic() + PENDING_S
        while not (isinstance(seen := self._commands.job(), JobRow) and seen.phase is Phase.WAITING):
            if isinstance(seen, JobRow) and seen.phase is Phase.RUNNING and seen.start > row.start:
                # It was pending for less than a look: begun, with whatever nodes it got.
                self._note(row, "requeued", sorted(left_out(self._run_dir, row.id, row.start)))
                return
            if time.monotonic() > until:
                why = seen.why if isinstance(seen, Unreadable) else f"it is {seen.state}"
                raise OSError(f"job {row.id} was requeued and is not pending: {why}")
            time.sleep(0.2)  # Slurm announces nothing
        without = ",".join((*owners, *ours))
        words = [f"ExcNodeList={without}"] if without or parsing.excluded(shown) else []  # nothing said clears it
        answer = self._commands.ask("scontrol", "update", f"JobId={row.id}", f"StartTime=now+{AGAIN_S}", *words)
        if not answer.ok:
            raise OSError(answer.why("scontrol update"))
        self._note(row, "requeued", ours)
