"""Do the metadata, the folder, the manifest and the names agree? Pure: values in, findings out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from supervisor.checkpoints.reading.findings import Collected, Finding
from supervisor.checkpoints.reading.folder import Look, iteration_of
from supervisor.checkpoints.reading.listed import Listed
from supervisor.checkpoints.reading.structure import Structure

_SHARD = re.compile(r"__[0-9]+_[0-9]+\.distcp")
_RANK_SHARD = re.compile(r"__([0-9]+)_[0-9]+\.distcp")
_UNFINISHED = re.compile(r".*\.(?:tmp|bck)")
_OWN = frozenset({".metadata", "metadata.json", "integrity.json", "common.pt", "model.safetensors.index.json"})


def identity(structure: Structure, named: int | None, manifest: Listed | None) -> tuple[Finding, ...]:
    """Every place that says which save this is must say the same. `named`: the iteration in the folder's name."""
    found = Collected()
    sure = structure.format == "megatron" or "ledger.step" in structure.tensors
    stated = structure.iteration
    if stated is not None and named is not None and stated != named:
        code = "IDENTITY" if sure else "COUNTERS"
        found.add(code, "", f"the state is of iteration {stated}, the folder of {named}")
    written = iteration_of(os.path.normpath(structure.checkpoint_id)) if structure.checkpoint_id else None
    known = named if named is not None else stated if sure else None
    if written is not None and known is not None and written != known:
        found.add("IDENTITY", ".metadata", f"it was written for iteration {written}, this is {known}")
    if manifest is not None:
        here = named if named is not None else stated
        if here is not None and here != manifest.iteration:
            found.add("IDENTITY", "", f"the manifest is of iteration {manifest.iteration}, this is {here}")
    return found.all()


def files(structure: Structure, look: Look, manifest: Listed | None, now: float, lag_s: float) -> tuple[Finding, ...]:
    """The files that must be there, and no others. `now` in wall seconds; `lag_s` as in Options."""
    found = Collected()
    if structure.format == "unknown" or not (structure.files or structure.tensors or structure.objects):
        # Nothing is known of what must be there: the metadata itself has been judged.
        _listed(look, manifest, found)
        return found.all()
    newest = max((stamp.mtime_ns for name, stamp in look.files.items() if name.endswith("metadata")), default=0)
    young = lag_s > 0 and now - newest / 1e9 < lag_s
    spoken = {finding.path for finding in look.findings}
    for name, wanted in _wanted(structure):
        stamp = look.files.get(name)
        if stamp is None:
            if name not in spoken:
                found.add("NOT_SEEN_YET" if young else "MISSING_FILE", name, "the metadata names it")
        elif wanted is not None and stamp.size < wanted:
            found.add("NOT_SEEN_YET" if young else "TRUNCATED", name, f"{stamp.size} of {wanted} bytes")
        elif wanted is not None and stamp.size > wanted:
            found.add("TRAILING_BYTES", name, f"{stamp.size} bytes, its items end at {wanted}")
    if not any(extents.end for extents in structure.files.values()):
        found.add("EMPTY", "", "no file holds any data")
    _strays(structure, look, manifest, found)
    _listed(look, manifest, found)
    return found.all()


def _wanted(structure: Structure) -> Iterator[tuple[str, int | None]]:
    for name, extents in structure.files.items():
        yield name, extents.end if extents.starts else None


def _strays(structure: Structure, look: Look, manifest: Listed | None, found: Collected) -> None:
    metadata = look.files.get(".metadata")
    for name, stamp in look.files.items():
        if name in structure.files or name in _OWN or name.endswith(".metadata"):
            continue
        shard = _RANK_SHARD.fullmatch(name)
        if name == ".metadata.tmp" and metadata is not None:
            newer = stamp.mtime_ns >= metadata.mtime_ns
            found.add("BEING_WRITTEN" if newer else "STRAY_FILE", name, "a save into this folder was begun again")
        elif shard and structure.format == "dcp-ranks" and f"__{shard[1]}.metadata" not in look.files:
            found.add("NO_METADATA", f"__{shard[1]}.metadata", f"{name} is there; this rank has not finished")
        elif _SHARD.fullmatch(name) or name.endswith(".distcp") or _UNFINISHED.fullmatch(name):
            found.add("STRAY_FILE", name, f"{stamp.size} bytes that the metadata does not name")
        elif manifest is None and structure.format != "safetensors":
            found.add("OTHER_FILE", name, f"{stamp.size} bytes")


def against(look: Look, manifest: Listed) -> tuple[Finding, ...]:
    """Names and sizes against a manifest alone, whatever the metadata says."""
    found = Collected()
    _listed(look, manifest, found)
    return found.all()


def _listed(look: Look, manifest: Listed | None, found: Collected) -> None:
    """Against the manifest: the same names, and the same sizes."""
    if manifest is None:
        return
    spoken = {finding.path for finding in look.findings}
    for name, entry in manifest.files.items():
        stamp = look.files.get(name)
        if stamp is None and name not in spoken:
            found.add("MISSING_FILE", name, "the manifest names it")
        elif stamp is not None and stamp.size != entry.size:
            code = "TRUNCATED" if stamp.size < entry.size else "TRAILING_BYTES"
            found.add(code, name, f"{stamp.size} bytes, in the manifest {entry.size}")
    for name in sorted(set(look.files) - set(manifest.files)):
        found.add("STRAY_FILE", name, "the manifest does not name it")
    for finding in look.findings:
        if finding.code == "OTHER_FILE" and "/" not in finding.path:
            found.add("STRAY_FILE", finding.path, "a folder that the manifest does not name")


def unproved(structure: Structure, look: Look, *, proved_by_sums: bool) -> tuple[Finding, ...]:
    """What even a complete save can't prove of itself."""
    found = Collected()
    if structure.format == "safetensors":
        found.add("UNPROVED", "", "that no bit has changed: safetensors holds no check sums, and no manifest was given")
    elif not proved_by_sums:
        found.add(
            "UNPROVED",
            "",
            "that all files are of one save: records hold check sums, but no id; only a manifest can tell",
        )
    metadata = look.files.get(".metadata")
    late = [
        name for name in structure.files if metadata and name in look.files and _newer(look, name, metadata.mtime_ns)
    ]
    for name in late:
        found.add("NEWER_SHARD", name, "it is newer than .metadata: copied, or written again after it")
    return found.all()


def _newer(look: Look, name: str, mtime_ns: int) -> bool:
    # Stamps of one second's grain are kept by some archives.
    return look.files[name].mtime_ns > mtime_ns + 1_000_000_000
