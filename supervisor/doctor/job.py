"""The Slurm job that we are in (or that was named): would it outlive a lost node, and how long does it last?

Slurm tells nobody whether a job has `--no-kill`: not scontrol, not squeue (22.05 and 24.11, text and JSON). What is left is
what was asked for: the submit line where there is accounting, the script's own `#SBATCH` lines, and the variable SBATCH_NO_KILL,
which sbatch obeys and hands on to the job.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from slurm import parsing, sbatch
from slurm.jobs import SUBMISSION, Submission
from slurm.states import Phase
from supervisor.doctor.cluster import Ask
from supervisor.doctor.verdict import Check
from supervisor.telling.say import count, span

SHORT_S: Final = 1800
"""Less than this left, and a run hardly gets anywhere: start, load, some updates and a save."""
_SUBMIT: Final = "relight sbatch, or `#SBATCH --no-kill` in the script: without it one lost node ends the job"


@dataclass(frozen=True, slots=True)
class Seen:
    """The verdicts, and the nodes that the job holds now; none where it isn't running."""

    checks: tuple[Check, ...]
    nodes: tuple[str, ...]


def look(ask: Ask, job: str, env: Mapping[str, str], *, needed: int, accounting: bool, spares: int = 0) -> Seen:
    """All checks. `env`: ours, of which SBATCH_NO_KILL counts only inside the job; `needed`: nodes of the layout; `spares`: those
    that were asked for beside them.
    """
    state, nodes = standing(ask, job, needed, spares)
    if state.state == "bad" and not nodes:
        return Seen((state,), ())
    inside = env if env.get("SLURM_JOB_ID") == job else {}
    return Seen((state, *times(ask, job), no_kill(ask, job, inside, accounting=accounting)), nodes)


def spares_asked(env: Mapping[str, str], job: str, otherwise: int) -> int:
    """How many spares `relight sbatch` has asked for with the job that we are in; `otherwise`: where that isn't known."""
    how = Submission.read(env.get(SUBMISSION, "")) if env.get("SLURM_JOB_ID") == job else None
    return otherwise if how is None or how.spares is None else how.spares


def standing(ask: Ask, job: str, needed: int, spares: int = 0) -> tuple[Check, tuple[str, ...]]:
    """Is it running, and on enough nodes, the spares that were asked for among them?"""
    answer = ask("squeue", "--noheader", "--states=all", f"--jobs={job}", "-o", parsing.JOB_FORMAT)
    if not answer.ok:
        return Check("job", "unknown", answer.why("squeue"), f"squeue -j {job}, by hand"), ()
    try:
        row = parsing.job(answer.out, job)
    except ValueError as error:
        return Check("job", "unknown", f"squeue: {error}", f"squeue -j {job}, by hand"), ()
    if row is None:
        return Check("job", "bad", f"Slurm does not know job {job}", "squeue --me shows yours"), ()
    if row.phase is not Phase.RUNNING:
        return Check("job", "bad", f"job {job} is {row.state}", "a job that is running"), ()
    text = f"job {job} is {row.state} on {count(len(row.nodes), 'node')}; the layout needs {needed:,}"
    if len(row.nodes) < needed:
        return Check("job", "bad", text, f"relight sbatch with --nodes={needed} in the script"), row.nodes
    free = len(row.nodes) - needed
    text += f", {free:,} spare" if free else ": none is spare"
    if free < spares:
        right = "a running job gets no more nodes: the next one may (relight stop RUN --next-job)"
        return Check("job", "warn", f"{text}, and {spares:,} were asked for", right), row.nodes
    if not free:
        return Check("job", "warn", text, "relight sbatch --spares 1, or more"), row.nodes
    return Check("job", "ok", text), row.nodes


def times(ask: Ask, job: str) -> tuple[Check, Check]:
    """Requeue, and the time left."""
    answer = ask("squeue", "--noheader", f"--jobs={job}", "-O", parsing.LEFT_FORMAT)
    found, why = None, f"squeue does not tell of job {job}" if answer.ok else answer.why("squeue")
    try:
        found = parsing.left(answer.out, job) if answer.ok else None
    except ValueError as error:
        why = f"squeue: {error}"
    if found is None:
        by_hand = f"scontrol show job {job}, by hand"
        return Check("job-requeue", "unknown", why, by_hand), Check("job-time", "unknown", why, by_hand)
    return requeue(found.requeue), left(found.seconds)


def requeue(may: bool | None) -> Check:
    """Would the job be there again after its batch host was lost?"""
    if may is None:
        return Check("job-requeue", "unknown", "squeue does not say", "scontrol show job, by hand: Requeue=")
    if may:
        return Check("job-requeue", "ok", "the job may be requeued")
    text = "the job may not be requeued: it ends with its batch host"
    return Check("job-requeue", "warn", text, "relight sbatch, or `#SBATCH --requeue`")


def left(seconds: float | None) -> Check:
    """Is it long enough for anything?"""
    if seconds is None:
        return Check("job-time", "unknown", "squeue does not say", "scontrol show job, by hand: EndTime=")
    if seconds == inf:
        return Check("job-time", "ok", "no time limit")
    if seconds < SHORT_S:
        text = f"{span(seconds)} left: hardly enough to start, load and save once"
        return Check("job-time", "warn", text, "the next job, with a longer --time")
    return Check("job-time", "ok", f"{span(seconds)} left")


def no_kill(ask: Ask, job: str, inside: Mapping[str, str], *, accounting: bool) -> Check:
    """Was `--no-kill` asked for? `inside`: the job's own environment; empty: we are not in it."""
    if inside.get("SBATCH_NO_KILL") in {"", "set"}:
        return Check("job-no-kill", "ok", "SBATCH_NO_KILL was set when the job was submitted")
    submitted = _submit_line(ask, job) if accounting else None
    if submitted is not None and (said := _flag(submitted)) is not None:
        return _said(said, "the submit line")
    script = ask("scontrol", "write", "batch_script", job, "-")
    try:
        kept = next((one for one in reversed(sbatch.options(script.out)) if one.name == "no-kill"), None)
    except sbatch.ConflictError:
        kept = None  # a line that can't be taken apart says nothing
    if script.ok and kept is not None:
        return _said(kept.value != "off", f"line {kept.line} of its script")
    if submitted is not None and script.ok and inside:
        return Check("job-no-kill", "bad", "neither the submit line nor the script has --no-kill", _SUBMIT)
    unseen = "" if submitted is not None else " (no accounting that keeps the submit line)"
    return Check("job-no-kill", "unknown", f"Slurm does not tell, and the script does not say{unseen}", _SUBMIT)


def _said(on: bool, where: str) -> Check:
    if on:
        return Check("job-no-kill", "ok", f"--no-kill stands in {where}")
    return Check("job-no-kill", "bad", f"--no-kill=off stands in {where}", _SUBMIT)


def _submit_line(ask: Ask, job: str) -> list[str] | None:
    answer = ask("sacct", "-j", job, "-X", "-n", "-P", "-o", "SubmitLine")
    lines = answer.out.splitlines()
    if not answer.ok or len(lines) != 1:
        return None
    try:
        return shlex.split(lines[0])
    except ValueError:
        return None


def _flag(words: list[str]) -> bool | None:
    """What the options before the script say; None where they say nothing that is beyond doubt.

    A bare word is the script, and what follows it is the script's own; only right behind `-X` is it surely a value.
    """
    said, before = None, ""
    for word in words[1:]:
        if not word.startswith("-") and not re.fullmatch(r"-[A-Za-z]", before):
            break
        if word in {"-k", "--no-kill"} or word.startswith("--no-kill="):
            said = not word.endswith("=off")
        before = word
    return said
