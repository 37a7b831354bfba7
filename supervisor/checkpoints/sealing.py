"""From a save that the framework has finished to a verdict: structure, content, manifest, outcome.

Nothing here overwrites: the manifest and the outcome are created exclusively, so any number of processes may seal the
same save at once, or one after the other was killed, and all end with what the first of them has put down.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.checkpoints import posix
from supervisor.checkpoints.framework import Framework, framework_done
from supervisor.checkpoints.manifest import (
    MANIFEST_LIMIT,
    CountersEntry,
    FileEntry,
    Manifest,
    Outcome,
    RankEntry,
    UnsoundError,
    parse_manifest,
    read_outcome,
)
from supervisor.checkpoints.sidecars import Sidecar, disagreements, listed_files, read_sidecars
from supervisor.checkpoints.sums import ChangedError, sum_files
from supervisor.checkpoints.survey import Survey, refused_entry, survey
from supervisor.checkpoints.tree import SaveId, Tree

MARKS = ("ABANDONED", "BROKEN", "COMMITTED")
_REASONS_KEPT = 20


class NotYetError(Exception):
    """The save can't be judged now. `reasons` say why."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class UnfinishedError(NotYetError):
    """The framework itself has not finished the save."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a verdict needs to know. `now` wall seconds.

    `settle_s`: a fault that is younger than this may be a lagging cache (NFS keeps names and sizes for up to 60 s) or a
    sidecar on its way; it is "not yet" until then.
    """

    world: int
    now: float
    settle_s: float
    threads: int
    step: posix.Step = posix.no_step


def judge(path: str, save: SaveId, terms: Terms) -> Manifest:
    """Check the save in the folder `path` and describe it.

    Raises UnsoundError (broken), NotYetError, or OSError (can't be judged now).
    """
    _require_folder(path)
    framework = framework_done(path)
    if not framework.done or framework.at is None:
        raise UnfinishedError(framework.why)
    seen = survey(path)
    sidecars, problems = read_sidecars(path, seen.sidecars, terms.threads)
    problems += structure(seen, sidecars, save, terms.world)
    age = terms.now - framework.at
    if problems and age < terms.settle_s:
        raise NotYetError(*problems)
    if problems:
        raise UnsoundError(*problems)
    if not sidecars and age < terms.settle_s:
        raise NotYetError("no sidecar has been seen yet; without any, only sizes and sums can be sealed")
    terms.step("before content")
    try:
        sums = sum_files(path, seen.files, terms.threads)
    except ChangedError as error:
        raise NotYetError(str(error)) from None
    terms.step("after content")
    if survey(path) != seen:
        raise NotYetError("the folder changed while it was read")
    return describe_save(save, seen, sums, sidecars, framework, terms=terms)


def _require_folder(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise UnfinishedError("nothing is written yet") from None
    if not stat.S_ISDIR(mode):
        raise UnsoundError(refused_entry(path, mode))


def structure(seen: Survey, sidecars: Mapping[int, Sidecar], save: SaveId, world: int) -> list[str]:
    """What is wrong with the files and the sidecars; empty when they agree. Pure."""
    problems = list(seen.problems)
    sizes = {name: stamp.size for name, stamp in seen.files.items()}
    if sidecars:
        problems += disagreements(sidecars, save, world)
        problems += listed_files(sidecars, sizes)
    else:
        # Without sidecars no size is known, but a shard of no bytes is never right: such ranks make no file.
        problems += [f"{name!r} is empty" for name, size in sizes.items() if name.endswith(".distcp") and not size]
    if not any(size for name, size in sizes.items() if name != ".metadata"):
        problems.append("there is no data beside .metadata")
    return problems


def describe_save(
    save: SaveId,
    seen: Survey,
    sums: Mapping[str, str],
    sidecars: Mapping[int, Sidecar],
    framework: Framework,
    *,
    terms: Terms,
) -> Manifest:
    """The manifest of a save that has passed. Pure; the same save gives the same files, counters and ranks."""
    first = sidecars[0] if sidecars else None
    fields = ("step", "samples", "updates", "skipped", "lr", "data_version")
    return Manifest(
        id=str(save),
        attempt=save.attempt,
        step=save.step,
        world=terms.world,
        saved_at=framework.at or 0.0,
        completed_at=terms.now,
        bytes=sum(stamp.size for stamp in seen.files.values()),
        files={name: FileEntry(size=seen.files[name].size, xxh3=sums[name]) for name in sorted(seen.files)},
        counters=CountersEntry(**{name: getattr(first, name) for name in fields}) if first else None,
        ranks={
            str(rank): RankEntry(digest=s.digest, next=s.next, tp=s.tp, pp=s.pp, dp=s.dp)
            for rank, s in sorted(sidecars.items())
        },
        limited=not sidecars,
        checks={
            "framework": framework.why,
            "sizes": f"{len(seen.files)} files" + (" as listed by the ranks" if sidecars else ""),
            "content": "xxh3_128 of every file, read back",
            "sidecars": f"{len(sidecars)} of {terms.world} agree" if sidecars else "none",
        },
    )


def put_manifest(tree: Tree, manifest: Manifest, save: SaveId, step: posix.Step) -> str:
    """Write manifest.json, or adopt the one that is there when it describes the same content; return its sha256.

    Raises UnsoundError when the save is no longer what an earlier sealer saw; OSError.
    """
    path = tree.mark(save, "manifest.json")
    posix.create_whole(path, manifest.to_bytes(), step)
    data = posix.read_bounded(path, MANIFEST_LIMIT)
    if not parse_manifest(save, data).same_save(manifest):
        raise UnsoundError("the files are not those of the manifest that was written for them before")
    return hashlib.sha256(data).hexdigest()


def settle(tree: Tree, save: SaveId, wanted: Outcome, step: posix.Step) -> Outcome:
    """Decide what the save came to, once: the first OUTCOME stands, and its mark is set. Returns the one that stands.

    One exclusive name decides between committed, broken and abandoned; with three names, a sealer and a controller that
    gives the save up could both win.
    """
    kept = wanted.model_copy(update={"reasons": shorten(wanted.reasons)})
    posix.create_whole(tree.mark(save, "OUTCOME"), kept.to_bytes(), step)
    standing = read_outcome(tree.mark(save, "OUTCOME"))
    posix.create_whole(tree.mark(save, standing.outcome), standing.to_bytes(), step)
    return standing


def standing_outcome(tree: Tree, save: SaveId) -> Outcome | None:
    """What was decided before; None when nothing was. Raises OSError, UnsoundError."""
    try:
        return read_outcome(tree.mark(save, "OUTCOME"))
    except FileNotFoundError:
        return None


def shorten(reasons: tuple[str, ...]) -> tuple[str, ...]:
    """The first reasons, and how many more there are: 5,120 ranks can be wrong in the same way."""
    if len(reasons) <= _REASONS_KEPT:
        return reasons
    return (*reasons[:_REASONS_KEPT], f"and {len(reasons) - _REASONS_KEPT} more")
