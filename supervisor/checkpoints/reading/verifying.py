"""The whole check of one save: where it is, what its metadata says, what lies there, and every byte of it.

    report = verify("/ckpt/iter_0000040", Options())
    report.verdict, report.findings, report.counters, report.sums

The caller decides what to make of it; nothing is written, nothing of the save is executed, torch is not imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.checkpoints import posix
from supervisor.checkpoints.reading import agreement
from supervisor.checkpoints.reading.by_threads import ByThreads, ReadFiles
from supervisor.checkpoints.reading.content import Job, as_sums
from supervisor.checkpoints.reading.findings import Collected, Finding, Verdict, Weight, verdict
from supervisor.checkpoints.reading.folder import Located, Look, lag_of, locate, look_at
from supervisor.checkpoints.reading.listed import Listed, integrity_sums
from supervisor.checkpoints.reading.structure import Structure, limits_for, metadata_bytes, read_structure
from supervisor.checkpoints.reading.throttle import Pace

REPAIRABLE = "BAD_METADATA_JSON"


class Watcher:
    """Hears how far a check has come. Its methods may be called from any thread; this one does nothing."""

    def begin(self, what: str, total: int) -> None:
        """A part of the check begins; `total` bytes are to be read, 0 when that can't be said."""

    def read(self, count: int) -> None:
        """So many bytes more were read; less than none when a file is read again from its beginning."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to check. `manifest`: what the files must be; without one it is a first read, and records' sums are checked.

    `rate`: bytes a second at most, over all threads. `reader`: who reads, instead of `threads` at `rate`. `lag_s`: for so
    long an absent or short file may still come (None: by the kind of file system). `content` False: metadata and sizes
    only. `extra_checks`: called with the structure when it is known, for checks that need more than the save itself (a spec).
    """

    manifest: Listed | None = None
    threads: int = 4
    rate: float | None = None
    reader: ReadFiles | None = None
    lag_s: float | None = None
    content: bool = True
    extra_checks: tuple[Callable[[Structure], tuple[Finding, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a check. `seconds` on the wall; `sums`: xxh3_128 by file, of all that was read."""

    folder: str
    verdict: Verdict
    structure: Structure
    iteration: int | None
    findings: tuple[Finding, ...]
    look: Look
    seconds: float
    sums: Mapping[str, str] = field(default_factory=dict)

    @property
    def counters(self) -> Mapping[str, Any]:
        """Both ledgers and the schedule, as far as the save tells."""
        return self.structure.counters

    @property
    def bytes(self) -> int:
        """Of all plain files in the folder."""
        return sum(self.look.sizes.values())

    @property
    def repairable(self) -> bool:
        """Is metadata.json all that is wrong? Its 63 bytes can be written again."""
        return _weighty(self.findings) == {REPAIRABLE}


def unseen(path: str, error: OSError) -> Report:
    """The report on a path that can't be seen now."""
    finding = Finding("UNREADABLE", "", posix.why(error))
    return Report(path, Verdict.NOT_YET, Structure("unknown"), None, (finding,), Look({}, ()), 0.0)


def _weighty(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.code for finding in findings if finding.weight is not Weight.NOTE}


def verify(path: str, options: Options, watcher: Watcher | None = None) -> Report:
    """Check the save at `path`: the folder of an iteration, or the one above it.

    Raises NoCheckpointError (nothing there to check), OSError (the path can't be seen), ReaderFault (our own fault).
    """
    return verify_save(locate(path), options, watcher)


def verify_save(located: Located, options: Options, watcher: Watcher | None = None) -> Report:
    """Check the save in a folder that is known. Raises OSError, ReaderFault."""
    began = time.monotonic()
    watcher = watcher or Watcher()
    look = look_at(located.folder)
    watcher.begin("metadata", 0)
    structure = read_structure(located.folder, limits_for(metadata_bytes(look.sizes)))
    lag_s = lag_of(located.folder) if options.lag_s is None else options.lag_s
    found = Collected()
    found.extend(located.findings)
    found.extend(look.findings)
    found.extend(structure.findings)
    found.extend(agreement.identity(structure, located.iteration, options.manifest))
    found.extend(agreement.files(structure, look, options.manifest, time.time(), lag_s))
    for check in options.extra_checks:
        found.extend(check(structure))
    sums: Mapping[str, str] = {}
    if not options.content:
        found.add("UNPROVED", "", "the content, which was not to be read")
    elif _weighty(found.all()) <= {REPAIRABLE}:
        # With nothing but metadata.json at fault, the content decides whether its 63 bytes are worth writing again.
        sums = _read_content(located.folder, structure, look, options, found, watcher)
    else:
        found.add("UNPROVED", "", "the content, which was not read: what was found before is enough")
    iteration = structure.iteration if structure.iteration is not None else located.iteration
    took = time.monotonic() - began
    findings = found.all()
    return Report(located.folder, verdict(findings), structure, iteration, findings, look, took, sums)


def _read_content(
    folder: str, structure: Structure, look: Look, options: Options, found: Collected, watcher: Watcher
) -> Mapping[str, str]:
    """Read every file; findings go to `found`. The sums by name."""
    manifest = options.manifest
    sha256: Mapping[str, str] = {}
    if manifest is None:
        # That metadata.json is bad is said already; its sum would say so again.
        bad = REPAIRABLE in _weighty(found.all())
        sha256 = integrity_sums(folder, look.sizes, found, frozenset({"metadata.json"} if bad else ()))
    jobs = [
        Job(
            name,
            stamp,
            xxh3=manifest.files[name].xxh3 if manifest is not None and name in manifest.files else None,
            sha256=sha256.get(name),
            extents=structure.files.get(name) if manifest is None else None,
        )
        for name, stamp in look.files.items()
    ]
    watcher.begin("content", sum(look.sizes.values()))
    reader = options.reader or ByThreads(options.threads, Pace(options.rate))
    read = reader.read(folder, structure if manifest is None else None, jobs, watcher.read)
    for one in read:
        found.extend(one.findings)
    try:
        again = look_at(folder)
        if again.files != look.files:
            found.add("CHANGED", "", "the folder changed while it was read")
    except OSError as error:
        found.add("UNREADABLE", os.path.basename(folder), posix.why(error))
    if manifest is None:
        found.extend(agreement.unproved(structure, look, proved_by_sums=bool(sha256)))
    return as_sums(read)
