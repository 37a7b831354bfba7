"""Every window in which a save can die, by SIGKILL of real writers: torch's own, and Megatron Core where it can be had.

Windows as in `megatron_nursery`. A first save of a step must end on the right rung; a second one must not hurt the first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from policies.facts import CheckpointPhase
from policies.ladder import climb
from slurm.cluster import Unreadable
from supervisor.bench import megatron_env, megatron_order, megatron_ranks, nodes
from supervisor.bench import megatron_nursery as nursery
from supervisor.bench.proofs.megatron import WORLD, arguments, digests, new_store, python_for, restorable
from supervisor.bench.proofs.runs import SMALL, running, undisturbed, with_extra
from supervisor.bench.proofs.work import Work
from supervisor.checkpoints.reading.findings import Verdict
from supervisor.checkpoints.reading.listed import read_listed
from supervisor.checkpoints.reading.verifying import Options, verify
from supervisor.checkpoints.store import PosixStore

OLD, NEW = 2, 3
"""Steps of the save that is whole, and of the one that dies."""
KILLED = [-signal.SIGKILL] * WORLD
LETTERS = {
    nursery.SHARDS: "A", nursery.UNBEGUN: "A, one rank not begun", nursery.METADATA: "B", nursery.RENAME: "B, not renamed",
    nursery.JSON: "C", nursery.TORN: "the tracker torn",
}  # fmt: skip
AGAIN = {nursery.SHARDS: "D", nursery.UNBEGUN: "D2", nursery.RENAME: "E"}
LOST, SLOW_S = 8, 1.5
"""The step of the save that dies in the loop; its last rank begins to write after so many seconds."""
WHY = "its attempt was stopped before the framework had finished it"
Order = Callable[[str, int, str], dict[str, Any]]
"""Folder, step and a word that makes the content another: an order for the nursery."""


def prove(work: Work) -> None:
    """The whole loop; torch's writer in Megatron's order; then Megatron itself."""
    in_the_loop(work, undisturbed(work, SMALL))
    with megatron_order.start(WORLD, work.path("torch.log")) as ranks:
        every_window(work, "torch", ranks, lambda folder, step, word: {"folder": folder, "step": step, "word": word})
    try:
        python = python_for(work)
    except megatron_env.NoMegatronError as error:
        work.say(f"without Megatron Core {megatron_env.VERSION}: {error}")
        return
    told = digests(work, "digests")

    def order(folder: str, step: int, word: str) -> dict[str, Any]:
        asked = {**arguments("dp_reshardable"), "seed": 1234 + len(word)}
        return {"do": "save", "arguments": asked, "folder": folder, "step": step, "digests": told}

    with megatron_ranks.start(python, WORLD, work.path("megatron.log")) as ranks:
        every_window(work, "Megatron", ranks, order)


def in_the_loop(work: Work, calm: str) -> None:
    """A run of the reference trainer whose coordinator dies between the last shard and `.metadata`: it ends with the same bits.

    The coordinator is stopped when its own shard is written, and killed when all are.
    """
    with running(work, "loop", with_extra(SMALL, "--slow-save", f"{LOST}:{SLOW_S}")) as run:
        run.wait_for("a sealed save", lambda: run.history().completed or None)
        store = run.run.path("checkpoints")
        save = run.wait_for("the coordinator's shard", lambda: writing(store), 60)
        attempt = int(os.path.basename(os.path.dirname(save))[1:])
        coordinator = nodes.rank_pid(run.run.root, attempt, 0)
        os.kill(coordinator, signal.SIGSTOP)
        run.wait_for("all shards", lambda: all(told_by(save, rank) for rank in range(SMALL.world)) or None)
        left = set(os.listdir(save))
        os.kill(coordinator, signal.SIGKILL)
        whole = left == {"relight", "__0_0.distcp", "__1_0.distcp"}
        work.check("the loop: B: all shards are there, and no .metadata", ok=whole)
        lost = f"a{attempt:04d}-i{LOST:07d}"
        given_up = os.path.join(store, "seals", lost, "ABANDONED")
        run.wait_for("the save that was being written is given up", lambda: os.path.exists(given_up) or None)
        loaded = os.path.join(store, "views", f"a{attempt + 1:04d}", f"iter_{LOST - SMALL.save_every:07d}")
        run.wait_for("the older save is loaded", lambda: os.path.lexists(loaded) or None)
        code = run.wait_end()
        history = run.history()
        work.check("the loop: B: the older save is loaded, the other given up", ok=lost not in history.completed)
        same = code == 0 and all(one.closed for one in history.incidents) and run.weights_hash() == calm
        work.check("the loop: B: the run ends with the bits of one that nobody touched", ok=same)


def writing(store: str) -> str | None:
    """The folder of the save that will be lost, once the coordinator's shard is in it."""
    for attempt in sorted(os.listdir(os.path.join(store, "saves"))):
        save = os.path.join(store, "saves", attempt, f"iter_{LOST:07d}")
        if told_by(save, 0):
            return save
    return None


def told_by(save: str, rank: int) -> bool:
    """Has this rank written its shard? Its sidecar comes after it."""
    return os.path.exists(os.path.join(save, "relight", f"rank_{rank:05d}.json"))


def every_window(work: Work, who: str, ranks: nursery.Nursery, order: Order) -> None:
    """The windows of a first save, and of a second save of the same step."""
    store = new_store(work, f"{who}-store")
    ranks.whole(**order(store.save_dir(1), OLD, ""))
    old = store.seal(f"a0001-i{OLD:07d}").id
    for attempt, window in enumerate(LETTERS, 2):
        new, folder = f"a{attempt:04d}-i{NEW:07d}", store.save_dir(attempt)
        codes = ranks.held_at(window, **order(folder, NEW, "")).kill()
        phase = store.seal(new).phase
        if window in {nursery.JSON, nursery.TORN}:
            right = phase is CheckpointPhase.COMPLETED and rung(store) == new and restorable(store, new, 100 + attempt)
            ends = "the save is taken" + (", repaired in the view" if window == nursery.JSON else "")
            right = right and ("metadata.json" in os.listdir(os.path.join(folder, f"iter_{NEW:07d}"))) == (
                window == nursery.TORN
            )
        else:
            unsure = verify(os.path.join(folder, f"iter_{NEW:07d}"), Options(lag_s=0.0)).verdict is Verdict.NOT_YET
            store.abandon(new, WHY)
            right = phase is CheckpointPhase.IN_PROGRESS and unsure and rung(store) == old
            right = right and restorable(store, old, 100 + attempt)
            ends = "the older one is taken, and this one given up"
        work.check(f"{who}: {LETTERS[window]}: {ends}", ok=codes == KILLED and right)
        if phase is CheckpointPhase.COMPLETED:
            store.condemn(new, "so that the next window stands alone")
    for attempt, window in enumerate(AGAIN, 20):
        second_save(work, who, ranks, order, store, window, attempt)


def second_save(
    work: Work, who: str, ranks: nursery.Nursery, order: Order, store: PosixStore, window: str, attempt: int
) -> None:
    """Under relight in a folder of its own; and into the same folder, as without it."""
    old = f"a0001-i{OLD:07d}"
    again = f"a{attempt:04d}-i{OLD:07d}"
    codes = ranks.held_at(window, **order(store.save_dir(attempt), OLD, "again")).kill()
    store.abandon(again, WHY)
    right = rung(store) == old and restorable(store, old, 100 + attempt)
    work.check(
        f"{who}: {AGAIN[window]}, under relight: the first save is whole and taken", ok=codes == KILLED and right
    )
    bare = work.path(f"{who}-bare-{AGAIN[window]}")
    ranks.whole(**order(bare, OLD, ""))
    save, alone = os.path.join(bare, f"iter_{OLD:07d}"), new_store(work, f"{who}-judge-{AGAIN[window]}")
    os.rename(save, os.path.join(alone.save_dir(1), f"iter_{OLD:07d}"))
    alone.seal(old)
    os.rename(os.path.join(alone.save_dir(1), f"iter_{OLD:07d}"), save)
    codes = ranks.held_at(window, **order(bare, OLD, "again")).kill()
    manifest = read_listed(os.path.join(work.path(f"{who}-judge-{AGAIN[window]}"), "seals", old, "manifest.json"))
    beside = verify(save, Options(manifest, lag_s=0.0)).verdict
    by_itself = verify(save, Options(lag_s=0.0)).verdict
    work.measured[f"{who}: {AGAIN[window]} in one directory"] = {"alone": by_itself.value, "manifest": beside.value}
    right = beside is not Verdict.COMPLETE and (window == nursery.UNBEGUN or by_itself is not Verdict.COMPLETE)
    work.check(
        f"{who}: {AGAIN[window]}, in one directory: what is left is called {beside.value}", ok=codes == KILLED and right
    )


def rung(store: PosixStore) -> str | None:
    """Where the ladder ends now."""
    seen = store.scan()
    found = None if isinstance(seen, Unreadable) else climb(seen).checkpoint
    return found.id if found is not None else None
