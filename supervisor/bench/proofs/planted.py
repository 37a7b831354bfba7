"""A restore that is wrong in one detail: acceptance refuses it; without relight it would have changed the weights."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from dataclasses import replace

from policies.reasons import Reason
from supervisor.bench import nodes
from supervisor.bench.proofs.runs import running, undisturbed, with_extra
from supervisor.bench.proofs.work import Work
from supervisor.bench.real_run import RealRun, Shape, trainer_command, weights_of
from supervisor.bench.trainer.options import PLANTS
from supervisor.errors import HALTED_EXIT, UserError

SHAPE = Shape(
    tp=2, pp=1, dp=2, ranks_per_node=2, spares=1, steps=24, save_every=6, warm=True, extra=("--step-seconds", "0.1")
)
RANK = 1
BY_HAND_S = 120.0


def prove(work: Work, plants: tuple[str, ...] = PLANTS) -> None:
    """Each plant under relight and without it, from a checkpoint of the same step."""
    calm = undisturbed(work, SHAPE)
    work.measured["undisturbed"] = calm
    kept = keep_a_save(work)
    without = by_hand(work, kept, "unplanted")
    work.check("by hand and unplanted, the run from that save ends with the same weights", ok=without == calm)
    for kind in plants:
        refused_under_relight(work, kind)
        hurt = by_hand(work, kept, kind)
        work.measured.setdefault("by_hand", {})[kind] = hurt
        work.check(f"{kind}: without relight the weights end up different", ok=hurt != calm)


def keep_a_save(work: Work) -> str:
    """The folder that attempt 2 of a run loads from, copied: a tracker and the save of one step."""
    with running(work, "source", SHAPE) as run:
        kill_after_seal(run)
        run.wait_for("attempt 2", lambda: run.attempt() >= 2 or None)
        return shutil.copytree(run.run.path("checkpoints", "views", "a0002"), work.path("kept"), symlinks=False)


def kill_after_seal(run: RealRun) -> None:
    """SIGKILL of a rank once a save is sealed."""
    run.wait_for("a sealed save", lambda: run.history().completed or None)
    os.kill(nodes.rank_pid(run.run.root, 1, RANK), signal.SIGKILL)


def refused_under_relight(work: Work, kind: str) -> None:
    """A rank is killed; what is relaunched loads wrongly. It is never accepted, and the run halts."""
    # It halts long before its last step; with few of them a busy machine would end it before the kill.
    shape = replace(with_extra(SHAPE, "--plant", f"{kind}:rank={RANK}"), steps=10 * SHAPE.steps)
    with running(work, kind, shape) as run:
        kill_after_seal(run)
        code = run.wait_end(180)
        history = run.history()
    first, *later = history.incidents
    reasons = [incident.trouble.reason for incident in later]
    what = later[0].trouble.text if later else "nothing"
    refused = bool(later) and set(reasons) == {Reason.ACCEPTANCE_FAILED} and later[0].follows == first.number
    work.check(f"{kind}: acceptance refuses it: {what}", ok=refused)
    never = first.times.next_good is None and first.times.caught_up is None
    never = never and not any(a.accepted_at for a in history.attempts if a.number > 1)
    work.check(f"{kind}: no incident closes, nothing reaches probation", ok=never)
    halted = history.halted
    why = f"{halted.reason}: {halted.seen}" if halted else "nothing"
    work.check(f"{kind}: the run halts ({HALTED_EXIT}) and says why: {why}", ok=code == HALTED_EXIT and bool(halted))
    work.measured.setdefault("under_relight", {})[kind] = {"refusal": what, "halt": why, "refused": len(later)}


def by_hand(work: Work, load: str, kind: str) -> str:
    """The ranks started by hand from the kept save; the hash of what they end with. Raises UserError."""
    save = work.path(f"by-hand-{kind}")
    os.makedirs(save)
    extra = () if kind == "unplanted" else ("--plant", f"{kind}:rank={RANK}")
    command = [*trainer_command(with_extra(SHAPE, *extra)), "--save", save, "--load", load]
    base = {name: value for name, value in os.environ.items() if not name.startswith("RELIGHT_")}
    base |= {"WORLD_SIZE": str(SHAPE.world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    with open(os.path.join(save, "ranks.log"), "wb") as log:
        ranks = [
            subprocess.Popen(
                command, env=base | {"RANK": str(rank)}, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=save
            )
            for rank in range(SHAPE.world)
        ]
        try:
            codes = [rank.wait(BY_HAND_S) for rank in ranks]
        except subprocess.TimeoutExpired:
            raise UserError(f"{kind} by hand has not ended within {BY_HAND_S:.0f} s: {save}", 1) from None
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                    rank.wait()
    if any(codes):
        raise UserError(f"{kind} by hand: the ranks ended with {codes}: {save}/ranks.log", 1)
    return weights_of(os.path.join(save, f"iter_{SHAPE.steps:07d}"))


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
