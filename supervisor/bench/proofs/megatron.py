"""Real saves of Megatron Core, made here: verified, laid beside their arguments, sealed, loaded by Megatron from the view.

In an environment of its own (`megatron_env`); where it can't be had, the saves that lie beside the repository are taken.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import time
from typing import Any

from policies.facts import CheckpointPhase
from supervisor.bench import megatron_env, megatron_ranks
from supervisor.bench.megatron_nursery import NONE, Nursery
from supervisor.bench.proofs.work import SkippedError, Work
from supervisor.checkpoints.reading.findings import Verdict
from supervisor.checkpoints.reading.folder import Located
from supervisor.checkpoints.reading.verifying import Options, Report, verify, verify_save
from supervisor.checkpoints.spec.checking import SpecCheck
from supervisor.checkpoints.spec.compare import Comparison
from supervisor.checkpoints.spec.items import State
from supervisor.checkpoints.spec.megatron import document_of
from supervisor.checkpoints.store import PosixStore
from supervisor.errors import NotRestorable

WORLD = 4
STEP = 3
LAYOUTS = {"dp_reshardable": False, "fully_reshardable": True}
SHIFTED = {"num_layers": 3, "hidden_size": 32}
"""Arguments of a model that the saves are not of."""


def prove(work: Work) -> None:
    """Every layout of the optimizer, in the foreground and behind; then three kinds of damage."""
    try:
        python = python_for(work)
    except megatron_env.NoMegatronError as error:
        work.say(f"Megatron Core {megatron_env.VERSION} is not here: {error}")
        with_samples(work, samples_path())
        return
    with megatron_ranks.start(python, WORLD, work.path("megatron.log")) as nursery:
        for attempt, (layout, background) in enumerate([(one, how) for one in LAYOUTS for how in (False, True)], 1):
            whole_way(work, nursery, layout, attempt=attempt, background=background)
        refusals(work, nursery)


def python_for(work: Work) -> str:
    """An interpreter that has Megatron Core, beside the results of the proofs. Raises NoMegatronError."""
    return megatron_env.make(os.path.abspath(work.path("..", "..", "megatron-env")))


def arguments(layout: str) -> dict[str, Any]:
    """Megatron's arguments of a training with this layout of its optimizer's state."""
    return {**megatron_ranks.ARGUMENTS, "dist_ckpt_optim_fully_reshardable": LAYOUTS[layout]}


def new_store(work: Work, name: str) -> PosixStore:
    """A store of the proof's own. It is local, so nothing is late."""
    store = PosixStore(work.path(name), WORLD, time.time, settle_s=0.0)
    store.create()
    return store


def whole_way(work: Work, nursery: Nursery, layout: str, *, attempt: int, background: bool) -> None:
    """One save from its arguments to Megatron's own load from the view."""
    store, asked = new_store(work, "store"), arguments(layout)
    what = f"{layout}, {'asynchronous' if background else 'synchronous'}"
    document = document_of(asked)  # written down before there is a save
    saved = digests(work, f"saved-{attempt}")
    nursery.whole(
        do="save", arguments=asked, folder=store.save_dir(attempt), step=STEP, background=background, digests=saved
    )
    report, compared = against(os.path.join(store.save_dir(attempt), f"iter_{STEP:07d}"), document)
    counted = {name: report.counters[name] for name in ("iteration", "samples", "updates", "skipped")}
    expected = {"iteration": STEP, "samples": STEP * asked["global_batch_size"], "updates": STEP, "skipped": 0}
    work.check(f"{what}: complete, and its counters are those of the training", ok=good(report) and counted == expected)
    agreed = compared.counts.get(State.AGREES, 0)
    work.check(
        f"{what}: what its arguments ask is there, and nothing else", ok=not compared.differences and agreed > 20
    )
    _, other = against(report.folder, document_of({**asked, **SHIFTED}))
    work.check(f"{what}: planted: the arguments of another model do not fit", ok=bool(other.differences))
    checkpoint = f"a{attempt:04d}-i{STEP:07d}"
    sealed = store.seal(checkpoint)
    work.check(f"{what}: sealed", ok=sealed.phase is CheckpointPhase.COMPLETED)
    view = store.make_view(100 + attempt, checkpoint)
    loaded = digests(work, f"loaded-{attempt}")
    told = nursery.whole(do="load", arguments=asked, path=os.path.join(view, f"iter_{STEP:07d}"), digests=loaded).said
    same = [read(saved, rank) == read(loaded, rank) for rank in range(WORLD)]
    right = all(same) and f"rank 0 loaded iteration {STEP}" in told
    work.check(f"{what}: Megatron loads from the view what was saved, weights, masters and moments alike", ok=right)
    work.measured[what] = {
        "files": len(report.look.files),
        "bytes": report.bytes,
        "items that agree": agreed,
        "verify s": round(report.seconds, 2),
    }


def refusals(work: Work, nursery: Nursery) -> None:
    """A flipped bit, a moment that was never written, a shard of another iteration; what Megatron makes of them, beside."""
    store, asked = new_store(work, "hurt"), arguments("dp_reshardable")
    document, told = document_of(asked), digests(work, "hurt-digests")
    order = {"do": "save", "arguments": asked, "digests": told}
    nursery.whole(**order, folder=store.save_dir(1), step=STEP)
    nursery.whole(**order, folder=store.save_dir(1), step=STEP + 1)
    nursery.whole(**order, folder=store.save_dir(3), step=STEP, without="exp_avg_sq")
    first, second = (os.path.join(store.save_dir(1), f"iter_{step:07d}") for step in (STEP, STEP + 1))

    flipped = os.path.join(store.save_dir(2), f"iter_{STEP:07d}")
    shutil.copytree(first, flipped)
    flip(os.path.join(flipped, "__0_0.distcp"))
    codes = {one.code for one in verify(flipped, Options(lag_s=0.0)).findings}
    phase = store.seal(f"a0002-i{STEP:07d}").phase
    work.check(
        "a flipped bit: verify and seal refuse it",
        ok=bool(codes & {"CRC", "BAD_RECORD"}) and phase is CheckpointPhase.BROKEN,
    )
    codes_of_load = nursery.begin(window=NONE, do="load", arguments=asked, path=flipped, digests=told).wait()
    work.measured["a flipped bit, exit codes of Megatron's own load"] = codes_of_load

    lost = os.path.join(store.save_dir(3), f"iter_{STEP:07d}")
    report, compared = against(lost, document)
    missing = [item for item in compared.differences if item.state in {State.MISSING, State.COVERAGE}]
    alone = verify(lost, Options(lag_s=0.0)).verdict
    work.check(
        "a moment that was never written: whole in itself, and refused beside its arguments",
        ok=bool(missing) and alone is Verdict.COMPLETE and report.verdict is Verdict.BROKEN,
    )

    sealed = store.seal(f"a0001-i{STEP:07d}")
    shard = "__3_0.distcp"
    shutil.copyfile(os.path.join(second, shard), os.path.join(first, shard))
    alone = verify(first, Options(lag_s=0.0)).verdict
    work.measured["mixed iterations without a manifest"] = alone.value
    refused = sealed.phase is CheckpointPhase.COMPLETED and not restorable(store, sealed.id)
    work.check("mixed iterations: the manifest refuses them", ok=refused)
    work.check("the save beside it is still good", ok=good(verify(second, Options(lag_s=0.0))))


def with_samples(work: Work, archive: str) -> None:
    """The way of the saves that were made elsewhere. Raises SkippedError when they are not here either."""
    if not os.path.exists(archive):
        raise SkippedError(f"neither Megatron Core nor {archive}")
    folder = work.path("samples")
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "tar_filter"):
            packed.extractall(folder, filter="tar")
        else:  # Python 3.11.0 to 3.11.3
            packed.extractall(folder)  # noqa: S202 - our own archive
    for name, step, world in (("00_good", 30, 2), ("real_8rank_fully_reshardable", 10, 8)):
        store = PosixStore(work.path("store", name), world, time.time, settle_s=0.0)
        store.create()
        path = os.path.join(store.save_dir(1), f"iter_{step:07d}")
        shutil.copytree(os.path.join(folder, name, f"iter_{step:07d}"), path)
        checkpoint = f"a0001-i{step:07d}"
        work.check(f"{name}: complete", ok=good(verify(path, Options(lag_s=0.0))))
        work.check(f"{name}: sealed", ok=store.seal(checkpoint).phase is CheckpointPhase.COMPLETED)
        work.check(f"{name}: a view is made of it", ok=restorable(store, checkpoint))
        flip(os.path.join(path, "__0_0.distcp"))
        work.check(f"{name}: with a flipped bit, no more", ok=not restorable(store, checkpoint, attempt=3))


def samples_path() -> str:
    """Where saves of Megatron Core may lie: beside the repository."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    return os.path.join(os.path.dirname(root), "shared", "checkpoints", "samples.tar.xz")


def against(path: str, document: Any) -> tuple[Report, Comparison]:
    """The whole check of a save with a spec. Raises OSError."""
    check = SpecCheck(document, path)
    report = verify_save(Located(path, STEP), Options(lag_s=0.0, extra_checks=(check,)))
    assert check.comparison is not None  # noqa: S101 - the check was called
    return report, check.comparison


def good(report: Report) -> bool:
    """Complete, read to the last byte, a save of Megatron's."""
    return report.verdict is Verdict.COMPLETE and report.structure.format == "megatron" and bool(report.sums)


def restorable(store: PosixStore, checkpoint: str, attempt: int = 2) -> bool:
    """Is a view made of it?"""
    try:
        store.make_view(attempt, checkpoint)
    except NotRestorable:
        return False
    return True


def flip(path: str) -> None:
    """One bit in the middle of a file."""
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 16]))


def digests(work: Work, name: str) -> str:
    """A folder for what each rank says that it holds."""
    os.makedirs(work.path(name))
    return os.path.abspath(work.path(name))


def read(folder: str, rank: int) -> dict[str, str]:
    """What one rank says."""
    with open(os.path.join(folder, f"{rank}.json"), encoding="utf-8") as file:
        found: dict[str, str] = json.load(file)
    return found
