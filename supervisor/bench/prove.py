"""The acceptance, long form: each proof leaves `NAME.json`; what is done for this commit is not done again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from supervisor.bench.proofs.work import SkippedError, Work, tell
from supervisor.durable import replace_whole
from supervisor.errors import NOT_YET_EXIT, UserError

HOUR_S = 3600.0
"""No proof is begun after so long in all."""


@dataclass(frozen=True, slots=True)
class Proof:
    """`prove(work)` in `module` does it. `usual_s`: how long it takes on two cores, seconds."""

    name: str
    issue: str
    module: str
    what: str
    usual_s: int

    def prove(self, work: Work) -> None:
        """Do it."""
        work_on: Callable[[Work], None] = import_module(self.module).prove
        work_on(work)


def _core(name: str, what: str, usual_s: int, module: str = "") -> Proof:
    return Proof(name, "core", f"supervisor.bench.proofs.{module or name}", what, usual_s)


def _of(issue: str, name: str, what: str, usual_s: int) -> Proof:
    return Proof(name, issue, f"supervisor.bench.proofs.{name}", what, usual_s)


PROOFS = (
    _core("map", "640 slots: every group, and 200 swaps that change one slot each", 5, "layout"),
    _core("simulated", "every scenario killed at every boundary, and 1,000 worlds from seeds", 2400),
    _core("demo", "five faults, and the bits of the run that nobody touched", 100),
    _core("calm", "slow saves, evaluations and start-ups are no stalls", 90),
    _core("planted", "a restore that is wrong in one detail is refused", 300),
    _core("modes", "observe, approve, paused, auto: who is asked, and what waits", 200),
    _core("limited", "a script that only prints lines", 30),
    _core("controller", "the controller dies before and after each kind of effect", 500),
    _core("random", "faults at random places and times", 900, "randomly"),
    _of(
        "diagnosis", "causes", "seven kinds of faults on the real trainer, 20 times each: the right rank and node", 2400
    ),
    _of("diagnosis", "retold", "the labelled logs told in ten other ways: the verdict moves with them", 240),
    _of(
        "checkpoints",
        "megatron",
        "saves of Megatron Core made here: from their arguments to its own load from the view",
        120,
    ),
    _of(
        "checkpoints",
        "windows",
        "the writer dies in every window of a save, Megatron itself too: each ends on its rung",
        200,
    ),
    _of(
        "checkpoints",
        "sealing",
        "sealing, retention, archiving killed at every step, alone and in a crowd; careless ones are found out",
        300,
    ),
    _of("checkpoints", "damage", "2,000 damaged copies of 250 random saves: none passes against its manifest", 250),
    _of(
        "slurm",
        "slurm",
        "the trainer on a real Slurm: ranks, nodes, spares, controllers, slurmctld and the batch host are lost",
        1800,
    ),
    _of(
        "slurm", "slurm_jobs", "on a real Slurm: the job ends, is requeued, drained, cancelled; spares are spent", 1500
    ),
    _of(
        "slurm",
        "slurm_launching",
        "on a real Slurm: ranks forked warm, one task a node below torchrun, ends that only srun tells of",
        120,
    ),
    _of("checkpoints", "stores", "100,000 reads, sixteen writers, killed writers, careless stores found out", 80),
)


def main(
    which: Sequence[str],
    folder: str,
    *,
    fresh: bool,
    seed: int,
    proofs: Sequence[Proof] = PROOFS,
    commit: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Do the proofs named in `which` (names or issues; none: all). The exit code. Raises UserError for an unknown name.

    `commit`: what is proved; with None nothing that was done before is believed.
    """
    chosen = choose(which, proofs)
    began, failed, left, skipped = clock(), [], [], []
    for number, proof in enumerate(chosen, 1):
        at = f"{number}/{len(chosen)} {proof.name}"
        before = None if fresh else read(folder, proof.name)
        if before is not None and (before["commit"], before["seed"], before["ok"]) == (commit, seed, True):
            tell(f"{at}: done before, for this commit ({before['seconds']:.0f} s)")
            continue
        if clock() - began > HOUR_S:
            left.append(proof.name)
            tell(f"{at}: not begun, the hour is over")
            continue
        tell(f"{at}: {proof.what} (about {proof.usual_s} s)")
        result = one(proof, folder, commit, seed)
        if result["skipped"]:
            tell(f"{at}: skipped: {result['skipped']}\n")
            skipped.append(proof.name)
            continue
        tell(f"{at}: {'held' if result['ok'] else 'FAILED'} after {result['seconds']:.0f} s\n")
        if not result["ok"]:
            failed.append(proof.name)
    if failed:
        tell(f"failed: {', '.join(failed)}")
        return 1
    if left:
        tell(f"not done yet: {', '.join(left)}. Again: relight bench prove")
        return NOT_YET_EXIT
    rest = f"; skipped: {', '.join(skipped)}" if skipped else ""
    tell(f"{len(chosen) - len(skipped)} of {len(chosen)} hold{rest}; see {folder}")
    return 0


def choose(which: Sequence[str], proofs: Sequence[Proof]) -> list[Proof]:
    """The proofs of these names or issues, in the order of the list. Raises UserError."""
    known = {proof.name for proof in proofs} | {proof.issue for proof in proofs}
    wrong = [name for name in which if name not in known]
    if wrong:
        raise UserError(f"{wrong[0]}: no such proof. There are: {', '.join(p.name for p in proofs)}")
    return [proof for proof in proofs if not which or proof.name in which or proof.issue in which]


def one(proof: Proof, folder: str, commit: str | None, seed: int) -> dict[str, Any]:
    """Do one proof and write its result. What goes wrong in it is its result, and does not hide the others."""
    root = os.path.abspath(folder)
    runs = os.path.join(root, "runs", proof.name)
    shutil.rmtree(runs, ignore_errors=True)
    os.makedirs(runs)
    work, skipped = Work(proof.name, runs, seed), ""
    try:
        proof.prove(work)
    except SkippedError as error:
        skipped = str(error)
    except UserError as error:
        work.check(str(error), ok=False)
    except Exception as error:  # noqa: BLE001 - the other proofs go on
        traceback.print_exc()
        work.check(f"{type(error).__name__}: {error}", ok=False)
    result = {
        "schema": 1,
        "name": proof.name,
        "issue": proof.issue,
        "commit": commit,
        "seed": seed,
        "ok": work.ok,
        "skipped": skipped,
        "checks": work.checks,
        "measured": work.measured,
        "at": time.time(),
        "seconds": round(work.seconds, 1),
    }
    replace_whole(os.path.join(root, f"{proof.name}.json"), json.dumps(result, indent=1).encode())
    return result


def read(folder: str, name: str) -> dict[str, Any] | None:
    """An earlier result; None when there is none that can be used."""
    try:
        with open(os.path.join(folder, f"{name}.json"), "rb") as file:
            found = json.loads(file.read(1_000_000))
        return {key: found[key] for key in ("commit", "seed", "ok", "seconds")} if found["commit"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def commit_of() -> str | None:
    """The commit of this code that is checked out; None when that can't be said: no git, or changes that are not committed."""
    folder = os.path.dirname(os.path.abspath(__file__))
    told = subprocess.run(
        ["git", "-C", folder, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
        check=False,
        capture_output=True,
        text=True,
    )
    name = told.stdout.strip()
    return None if told.returncode != 0 or name.endswith("-dirty") else name
