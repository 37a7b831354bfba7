"""From a save that the framework has finished to a verdict: sidecars, structure, content, manifest, outcome.

Nothing here overwrites: the manifest and the outcome are created exclusively, so any number of processes may seal the
same save at once, or one after the other was killed, and all end with what the first of them has put down.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from supervisor.checkpoints import ledgers, posix
from supervisor.checkpoints.framework import Framework, framework_done
from supervisor.checkpoints.manifest import (
    MANIFEST_LIMIT,
    METADATA_JSON,
    RECORD_LIMIT,
    CountersEntry,
    FileEntry,
    Manifest,
    Outcome,
    RankEntry,
    SpecEntry,
    UnsoundError,
    parse_manifest,
    read_outcome,
)
from supervisor.checkpoints.readers_store import StoreReading
from supervisor.checkpoints.reading.findings import Finding, Verdict, Weight
from supervisor.checkpoints.reading.folder import Located
from supervisor.checkpoints.reading.room import NoRoomError
from supervisor.checkpoints.reading.structure import ReaderFault, metadata_bytes
from supervisor.checkpoints.reading.verifying import Options, Report, verify_save
from supervisor.checkpoints.seal_spec import Question
from supervisor.checkpoints.sidecars import Sidecar, disagreements, listed_files, read_sidecars
from supervisor.checkpoints.survey import Survey, refused_entry, survey
from supervisor.checkpoints.tree import SaveId, Tree

MARKS = ("ABANDONED", "BROKEN", "COMMITTED")
_REASONS_KEPT = 20
METADATA_JSON_TEXT = '{"sharded_backend": "torch_dist", "sharded_backend_version": 1}'
"""What Megatron Core writes into metadata.json last of all, and what is written into the view where it has not."""


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
    sidecar on its way; it is "not yet" until then. `reading`: who reads, and how fast. `adopted`: it is
    from before relight, so sidecars beside it are none of this run's and are not looked at. `question`: what it is held against.
    """

    world: int
    now: float
    settle_s: float
    reading: StoreReading
    step: posix.Step = posix.no_step
    adopted: bool = False
    question: Question | None = None


def judge(path: str, save: SaveId, terms: Terms) -> Manifest:
    """Check the save in the folder `path` and describe it.

    Raises UnsoundError (broken), NotYetError, or OSError (can't be judged now).
    """
    _require_folder(path)
    framework = framework_done(path)
    if not framework.done or framework.at is None:
        raise UnfinishedError(framework.why)
    seen = survey(path)
    sidecars, problems = read_sidecars(path, () if terms.adopted else seen.sidecars, terms.reading.threads)
    problems += structure(seen, sidecars, save, terms.world)
    young = terms.now - framework.at < terms.settle_s
    _refuse(problems, young=young)
    if not sidecars and young and not terms.adopted:
        raise NotYetError(
            "no sidecar has been seen yet; without any, only what the save proves of itself can be sealed"
        )
    if young and _is_torn(os.path.join(path, METADATA_JSON)):
        raise NotYetError(f"{METADATA_JSON} does not parse yet")
    terms.step("before content")
    report = _read(path, save, {name: stamp.size for name, stamp in seen.files.items()}, terms)
    terms.step("after content")
    if survey(path) != seen or report.look.files != seen.files:
        raise NotYetError("the folder changed while it was read")
    if report.verdict is Verdict.NOT_YET:
        raise NotYetError(*reasons(report.findings, Weight.NOT_YET))
    # What only lacks its metadata.json is whole; but the framework gets its time to write it.
    if report.verdict is Verdict.BROKEN and (young or not report.repairable):
        _refuse(reasons(report.findings, Weight.BROKEN), young=young)
    if terms.question is not None and terms.question.unsettled:
        raise NotYetError(terms.question.unsettled)
    manifest = describe_save(save, report, sidecars, framework, terms=terms)
    _refuse(ledgers.apart_from_ranks(report.structure, manifest.counters), young=young)
    return manifest


def _is_torn(path: str) -> bool:
    """Is metadata.json there, and not whole? Then it is being written, or whoever wrote it is dead. Raises OSError."""
    try:
        json.loads(posix.read_bounded(path, RECORD_LIMIT))
    except FileNotFoundError:
        return False
    except (ValueError, RecursionError):
        return True
    return False


def _read(path: str, save: SaveId, sizes: Mapping[str, int], terms: Terms) -> Report:
    """The whole check of its files (name -> bytes), in one reading. Raises NotYetError for a fault of our own, OSError."""
    try:
        # What is young is told by the store's own clock, by whoever asked.
        extra = (terms.question,) if terms.question is not None else ()
        options = Options(reader=terms.reading.beside, lag_s=0.0, extra_checks=extra)
        with terms.reading.room.taken(metadata_bytes(sizes)):
            return verify_save(Located(path, save.step), options)
    except NoRoomError as error:
        raise NotYetError(str(error)) from error
    except ReaderFault as fault:
        raise NotYetError(f"our own reader failed, which says nothing about the save: {fault}") from fault


def _refuse(problems: Iterable[str], *, young: bool) -> None:
    """Broken when there are problems; not yet when they are young. Raises UnsoundError, NotYetError."""
    told = tuple(problems)
    if told:
        raise (NotYetError if young else UnsoundError)(*told)


def reasons(findings: Iterable[Finding], weight: Weight) -> tuple[str, ...]:
    """Findings of one weight as reasons: each its code, the file or tensor, and what is wrong with it."""
    return tuple(
        f"{f.code} {f.path}: {f.detail}" if f.path else f"{f.code}: {f.detail}" for f in findings if f.weight is weight
    )


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
    save: SaveId, report: Report, sidecars: Mapping[int, Sidecar], framework: Framework, *, terms: Terms
) -> Manifest:
    """The manifest of a save that has passed. Pure; the same save gives the same files, counters and ranks."""
    first = sidecars[0] if sidecars else None
    spec = terms.question.document if terms.question is not None else None
    fields = ("step", "samples", "updates", "skipped", "lr", "data_version")
    # A metadata.json to be repaired is no part of the data: whatever is there of it is replaced in the view.
    files = {
        name: FileEntry(size=stamp.size, xxh3=report.sums[name])
        for name, stamp in sorted(report.look.files.items())
        if not (report.repairable and name == METADATA_JSON)
    }
    return Manifest(
        id=str(save),
        attempt=save.attempt,
        step=save.step,
        world=terms.world,
        saved_at=framework.at or 0.0,
        completed_at=terms.now,
        bytes=sum(entry.size for entry in files.values()),
        files=files,
        counters=CountersEntry(**{name: getattr(first, name) for name in fields}) if first else None,
        ranks={
            str(rank): RankEntry(digest=s.digest, next=s.next, tp=s.tp, pp=s.pp, dp=s.dp)
            for rank, s in sorted(sidecars.items())
        },
        limited=not sidecars,
        checks=_checks(report, sidecars, framework, terms.world)
        | dict(terms.question.checks if terms.question else {}),
        state=ledgers.state_of(report.structure),
        repairs={METADATA_JSON: METADATA_JSON_TEXT} if report.repairable else {},
        spec=SpecEntry(digest=spec.digest, origin=spec.origin) if spec is not None else None,
    )


def _checks(report: Report, sidecars: Mapping[int, Sidecar], framework: Framework, world: int) -> dict[str, str]:
    """What was checked and what was not, in words for people."""
    structure = report.structure
    chunks = sum(tensor.chunks for tensor in structure.tensors.values())
    first_read = (
        "xxh3_128 of every file" if structure.transformed else "the check sum of every record, xxh3_128 of every file"
    )
    checks = {
        "framework": framework.why,
        "sizes": f"{len(report.look.files)} files" + (" as listed by the ranks" if sidecars else ""),
        "structure": f"{structure.format}: {len(structure.tensors)} tensors, {chunks} chunks, {len(structure.objects)} objects",
        "content": f"{first_read}, in one reading; samples of numbers",
        "sidecars": f"{len(sidecars)} of {world} agree" if sidecars else "none",
    }
    unproved = "; ".join(found.detail for found in report.findings if found.code == "UNPROVED")
    repaired = "; ".join(reasons(report.findings, Weight.BROKEN)) if report.repairable else ""
    return checks | ({"unproved": unproved} if unproved else {}) | ({"repair": repaired} if repaired else {})


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
