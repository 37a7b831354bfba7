"""What seals, prunes and archives, as processes that are killed at a step; and a judge that trusts none of them.

A scene is a folder with a store, an archive, and `truth.json`: which saves are whole, and what is in their files. The judge
reads completed.json, the pointer and the archive's list from disk and holds each save that they name against that truth.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import xxhash

from policies.facts import CheckpointPhase, CheckpointState
from slurm.cluster import Unreadable
from supervisor.bench import fake_saves
from supervisor.checkpoints import places
from supervisor.checkpoints.archive import Archive, open_archive
from supervisor.checkpoints.manifest import UnsoundError, parse_manifest
from supervisor.checkpoints.objects.bulk import FOLDER
from supervisor.checkpoints.posix import Step
from supervisor.checkpoints.reading.findings import Verdict
from supervisor.checkpoints.reading.listed import listed
from supervisor.checkpoints.reading.verifying import Options, verify
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId, Tree, step_name

RUN: Final = "proof"
KEEP: Final = 3
OLD: Final = (10, 20, 30, 40, 50)
NEW, BROKEN = 60, 70
"""Steps of saves: sealed before; whole and not sealed yet; broken and not sealed yet."""
IDLE_S: Final = 0.02
"""How long a worker with nothing to do waits before it looks again."""
Truth = Mapping[str, Mapping[str, str] | None]
"""Save -> file -> content sum; None for one that was written broken."""


def id_of(step: int) -> str:
    """The id of a save of the first attempt."""
    return str(SaveId(1, step))


@dataclass(frozen=True, slots=True)
class Scene:
    """`root` holds `store`, `archive` and the truth."""

    root: str

    @property
    def tree(self) -> Tree:
        """The paths of the store."""
        return Tree(os.path.join(self.root, "store"))

    @property
    def place(self) -> str:
        """Of the archive."""
        return os.path.join(self.root, "archive")

    def store(self, step: Step = lambda _: None) -> PosixStore:
        """The store, as one process has it."""
        return PosixStore(self.tree.root, 1, time.time, settle_s=0.0, threads=1, step=step)

    def archive(self, store: PosixStore, step: Step = lambda _: None) -> Archive:
        """The archive, as one process has it."""
        return open_archive(self.place, RUN, store, time.time, step=step, threads=2)

    def truth(self) -> Truth:
        """What was written."""
        with open(os.path.join(self.root, "truth.json"), encoding="utf-8") as file:
            found: Truth = json.load(file)
        return found

    def make(self, good: Sequence[int], broken: Sequence[int], written: Sequence[int] = ()) -> None:
        """A store and an archive, and the truth about saves of these steps; those in `written` are written now."""
        store = self.store()
        store.create()
        self.archive(store).make()
        truth = {id_of(step): sums(content(step)) for step in good} | dict.fromkeys(map(id_of, broken))
        with open(os.path.join(self.root, "truth.json"), "w", encoding="utf-8") as file:
            json.dump(truth, file)
        for step in written:
            self.write(step, broken=step in broken)

    def write(self, step: int, *, broken: bool) -> None:
        """Write one save as a framework does; a broken one lies about a record."""
        folder = os.path.join(self.store().save_dir(1), step_name(step))
        os.mkdir(folder)
        files = dict(content(step))
        if broken:
            shard = bytearray(files["__0_0.distcp"])
            shard[len(shard) // 2] ^= 1
            files["__0_0.distcp"] = bytes(shard)
        for name in sorted(files, key=lambda name: name == ".metadata"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(files[name])

    def copy_to(self, root: str) -> Scene:
        """The same once more."""
        shutil.copytree(self.root, root, symlinks=True)
        return Scene(root)


@functools.cache
def content(step: int) -> Mapping[str, bytes]:
    """The files of the save of a step: two shards and their metadata."""
    items = []
    for part in range(2):
        data = random.Random(10 * step + part).randbytes(400)
        items.append(fake_saves.Chunk("w", "uint8", (800,), (400 * part,), (400,), f"__{part}_0.distcp", data))
    with tempfile.TemporaryDirectory(prefix="relight-save-") as folder:
        fake_saves.write(folder, items, iteration=step)
        return {name: pathlib.Path(folder, name).read_bytes() for name in os.listdir(folder)}


def sums(files: Mapping[str, bytes]) -> dict[str, str]:
    """Content sums by name."""
    return {name: xxhash.xxh3_128_hexdigest(data) for name, data in files.items()}


def sums_in(folder: str) -> dict[str, str]:
    """Of the files in a folder. Raises OSError."""
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = xxhash.xxh3_128_hexdigest(file.read())
    return found


# --- the judge -----------------------------------------------------------------------------------------------------------


def named(scene: Scene) -> list[str] | None:
    """What completed.json names now; None where there is none. Raises ValueError for what is no list, OSError."""
    try:
        with open(scene.tree.completed, "rb") as file:
            return list(json.loads(file.read())["completed"])
    except FileNotFoundError:
        return None
    except (TypeError, KeyError) as error:
        raise ValueError(str(error)) from error


def judge(scene: Scene, *, least: int = 1, deep: bool = True) -> list[str]:
    """What is wrong with what is listed as completed; empty when nothing is. `least`: so many must be, in store and archive.

    While others work on the scene a save may be deleted between two looks: it counts only if it is still listed.
    """
    truth, faults = scene.truth(), []
    try:
        listed_now = named(scene) or []
        for checkpoint in listed_now:
            fault = fault_of(scene, checkpoint, truth, deep=deep)
            if fault and checkpoint in (named(scene) or []):
                faults.append(f"completed.json names {checkpoint}: {fault}")
    except ValueError as error:
        return [f"completed.json is torn: {error}"]
    kept, in_archive = archive_faults(scene, truth)
    faults += in_archive
    if len(set(listed_now) | kept) < least:
        faults.append(f"{len(set(listed_now) | kept)} completed saves are left")
    return faults


def fault_of(scene: Scene, checkpoint: str, truth: Truth, *, deep: bool) -> str:
    """What is wrong with one save that is listed."""
    wanted = truth.get(checkpoint)
    if wanted is None:
        return "it was written broken"
    try:
        save = SaveId.parse(checkpoint)
        place = places.find(scene.tree, save)
        if sums_in(place.data) != wanted:
            return "its files are not those that were written"
        with open(place.mark("manifest.json"), "rb") as file:
            manifest = parse_manifest(save, file.read())
        if {name: entry.xxh3 for name, entry in manifest.files.items()} != wanted:
            return "its manifest is of other files"
        if deep and verify(place.data, Options(listed(manifest), lag_s=0.0, threads=1)).verdict is not Verdict.COMPLETE:
            return "a check refuses it"
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    except UnsoundError as error:
        return str(error)
    return ""


def archive_faults(scene: Scene, truth: Truth) -> tuple[set[str], list[str]]:
    """The copies that the archive lists as completed, and what is wrong with them."""

    def look() -> set[str]:
        seen = scene.archive(scene.store()).scan()
        if isinstance(seen, Unreadable):
            return set()
        return {state.id for state in seen if state.phase is CheckpointPhase.COMPLETED}

    kept, faults = look(), []
    for checkpoint in sorted(kept):
        folder = os.path.join(scene.place, FOLDER, RUN, "saves", checkpoint)
        try:
            same = sums_in(folder) == truth.get(checkpoint)
        except OSError:
            same = False
        if not same and checkpoint in look():
            faults.append(f"the archive lists {checkpoint}, whose files are not those that were written")
    return kept, faults


# --- the workers ---------------------------------------------------------------------------------------------------------


Operation = Callable[[Scene, Step], None]


class Death:
    """A step that notes each boundary in a file, and kills this process with SIGKILL at one of them."""

    def __init__(self, path: str | None, at: int | None) -> None:
        self._path = path
        self._left = at

    def __call__(self, name: str) -> None:
        """One boundary. Not to be caught: the process is gone."""
        if self._path is not None:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(f"{name}\n")
        if self._left is not None:
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1


def perform(operation: Operation, root: str, log: str | None, die_at: int | None) -> None:
    """One operation in this process."""
    operation(Scene(root), Death(log, die_at))


def context() -> Any:
    """Processes that are forked from a clean one which has this module: quick to start, and none inherits a lock."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__])
    return server


def run(operation: Operation, scene: Scene, die_at: int | None = None, log: str | None = None) -> int:
    """The operation in a process of its own; its exit code."""
    child = context().Process(target=perform, args=(operation, scene.root, log, die_at))
    child.start()
    child.join()
    return int(child.exitcode)


def states(store: PosixStore) -> tuple[CheckpointState, ...]:
    """Every save; none while the store can't be read."""
    seen = store.scan()
    return () if isinstance(seen, Unreadable) else seen
