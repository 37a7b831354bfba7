"""Sealing, retention and archiving as one might write them at first: each must be found out by the judge of `sealers`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Final

from supervisor import durable
from supervisor.bench.proofs.sealers import BROKEN, KEEP, NEW, OLD, RUN, Operation, Scene, id_of, named
from supervisor.checkpoints.archive.documents import COPIED, Copied
from supervisor.checkpoints.archive.documents import MANIFESTS as ARCHIVED_MANIFESTS
from supervisor.checkpoints.archive.shelf import Shelf
from supervisor.checkpoints.manifest import CompletedList, Outcome
from supervisor.checkpoints.objects.bulk import FOLDER
from supervisor.checkpoints.objects.opening import open_bulk, open_objects
from supervisor.checkpoints.posix import Step
from supervisor.checkpoints.tree import SaveId


def _publish(scene: Scene, ids: Sequence[str]) -> None:
    durable.replace_whole(scene.tree.completed, CompletedList(generation=99, completed=tuple(ids)).to_bytes())


def committed_first(scene: Scene, step: Step) -> None:
    """COMMITTED and the list come before the manifest."""
    save = SaveId(1, NEW)
    os.makedirs(scene.tree.seal(save))
    said = Outcome(outcome="COMMITTED", completed_at=1.0, manifest_sha256="0" * 64)
    durable.create_whole(scene.tree.mark(save, "COMMITTED"), said.to_bytes())
    _publish(scene, [*(named(scene) or []), id_of(NEW)])
    step("before manifest.json")
    shutil.rmtree(scene.tree.seal(save))
    scene.store().seal(id_of(NEW))


def never_looks(scene: Scene, step: Step) -> None:
    """What the framework has finished is listed, whatever it is."""
    _publish(scene, [*(named(scene) or []), id_of(BROKEN)])
    step("after the list")


def data_first(scene: Scene, step: Step) -> None:
    """Retention removes the data, then the name."""
    listed_now = named(scene) or []
    for checkpoint in listed_now[:-KEEP]:
        step("before removal")
        shutil.rmtree(scene.tree.save(SaveId.parse(checkpoint)))
        step("after removal")
    _publish(scene, listed_now[-KEEP:])


def keeps_none(scene: Scene, step: Step) -> None:
    """Retention that makes room for the next one first."""
    listed_now = named(scene) or []
    _publish(scene, [])
    step("after the list")
    _publish(scene, listed_now[-KEEP:])


def in_place(scene: Scene, step: Step) -> None:
    """The list is rewritten where it stands."""
    data = CompletedList(generation=99, completed=tuple(named(scene) or [])).to_bytes()
    with open(scene.tree.completed, "wb", buffering=0) as file:
        file.write(data[:20])
        step("amid the list")
        file.write(data[20:])


def copied_first(scene: Scene, step: Step) -> None:
    """The archive makes room for the files of a save, and counts it before they are filled."""
    store, save = scene.store(), SaveId(1, OLD[-1])
    committed = store.committed(str(save))
    with open(committed.place.mark("manifest.json"), "rb") as file:
        raw = file.read()
    shelf = Shelf(scene.place, RUN, open_objects(scene.place, lag_s=0.0), open_bulk(scene.place))
    shelf.put(ARCHIVED_MANIFESTS, save, raw)
    said = Copied(id=str(save), manifest_sha256=committed.sha256, bytes=committed.manifest.bytes, verified_at=1.0)
    shelf.put(COPIED, save, said)
    folder = os.path.join(scene.place, FOLDER, shelf.files(save))
    os.makedirs(folder)
    for name, entry in committed.manifest.files.items():
        with open(os.path.join(folder, name), "wb") as file:
            os.posix_fallocate(file.fileno(), 0, entry.size)
    step("before files")
    shutil.rmtree(folder)
    scene.archive(store).copy(str(save))


PLANTED: Final[Mapping[str, Operation]] = {
    "COMMITTED before the manifest": committed_first,
    "a seal that never looks": never_looks,
    "data removed before the name": data_first,
    "a list that is empty for a moment": keeps_none,
    "a list rewritten in place": in_place,
    "an archive that counts a copy before it is there": copied_first,
}
