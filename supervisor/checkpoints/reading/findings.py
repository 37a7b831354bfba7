"""What can be found about a checkpoint, how much each weighs, and the verdict that follows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Weight(StrEnum):
    """How much a finding counts."""

    BROKEN = "broken"  # it was read, and it is not what it must be
    NOT_YET = "not_yet"  # it could not be judged: unreadable, still being written, may still come
    NOTE = "note"  # worth a look; the verdict stands without it


class Verdict(StrEnum):
    """Three values, never two: what can't be judged is not broken."""

    COMPLETE = "complete"
    BROKEN = "broken"
    NOT_YET = "not_yet"


BROKEN: Final[Mapping[str, str]] = {
    "MISSING_FILE": "a file that the metadata or the manifest names is not there",
    "TRUNCATED": "a file is shorter than what it must hold",
    "TRAILING_BYTES": "a file goes on behind its last item",
    "STRAY_FILE": "a file that nothing names",
    "SYMLINK": "a link, where the ranks write plain files",
    "NOT_A_FILE": "a folder, pipe or device, where the ranks write plain files",
    "BAD_METADATA": "the metadata is not what the framework writes, or is cut short",
    "BAD_METADATA_JSON": "metadata.json is missing or is not what Megatron writes",
    "BAD_INDEX": "the index or header of safetensors is not what it must be",
    "COVER_GAP": "a part of a logical tensor is in no chunk",
    "COVER_OVERLAP": "a part of a logical tensor is in two chunks",
    "COVER_SHIFT": "chunks have the volume of their tensor, but leave a gap and overlap elsewhere",
    "OUT_OF_BOUNDS": "a chunk lies outside of its tensor",
    "NOT_STORED": "a chunk or object that is in no file",
    "NOT_LISTED": "a stored item that belongs to no tensor or object",
    "EXTENT_GAP": "bytes of a file belong to no item",
    "EXTENT_OVERLAP": "two items share bytes of a file",
    "EXTENT_SHORT": "an item is smaller than its elements",
    "BAD_RECORD": "an item is not the archive that torch writes",
    "CRC": "a record does not have the check sum that was written with it",
    "SUM": "a file does not have the content sum of the manifest",
    "INTEGRITY": "a file does not have the sum that Megatron's integrity.json gives",
    "IDENTITY": "two places say that this is another save",
    "COMMON_PT": "a common.pt beside a save that holds its own common state; Megatron would load the former",
    "NO_COMMON_STATE": "Megatron's common state is missing",
    "BAD_COMMON_STATE": "the common state can't be read, or names what no common state needs",
    "NON_FINITE": "NaN or infinity among the sampled elements",
    "NEGATIVE_MOMENT": "a second moment below zero among the sampled elements",
    "DENORMAL": "most sampled elements of a weight are denormal",
    "EMPTY": "there is no data beside the metadata",
    "SPEC_MISSING": "the spec names it, and the save does not hold it",
    "SPEC_UNEXPECTED": "the save holds it, and the spec does not name it",
    "SPEC_DTYPE": "a tensor has another dtype than the spec gives",
    "SPEC_SHAPE": "a tensor has another shape than the spec gives",
    "SPEC_COVERAGE": "weights, masters and moments do not hold the same elements",
    "SPEC_DIFFERS": "a setting has another value than the spec gives",
}
NOT_YET: Final[Mapping[str, str]] = {
    "NO_METADATA": "the framework has not finished the save",
    "METADATA_YOUNG": "the metadata is empty or cut short, and was written a moment ago",
    "BEING_WRITTEN": "the metadata is being written again",
    "UNREADABLE": "it may not or can't be read now",
    "LINK_LOOP": "a link that can't be followed",
    "CHANGED": "it changed while it was read",
    "NOT_SEEN_YET": "absent or short, on a network file system that may show it a little later",
    "SLOW": "it could not be read within the time that is allowed",
    "UNKNOWN_FORMAT": "a format that is not known here",
}
NOTES: Final[Mapping[str, str]] = {
    "TRACKER": "the tracker names another save, or none; it is never the truth",
    "UNPROVED": "what can't be proved from these files alone",
    "NEWER_SHARD": "a file is newer than the metadata: written again, or copied",
    "NEWER_SAVE": "a newer save lies beside the one that was looked at",
    "ALL_ZERO": "all sampled elements of a weight are zero",
    "UNKNOWN_CLASS": "the common state names a class that is not known here; it was not loaded",
    "COUNTERS": "counters could not be read",
    "OTHER_FILE": "a file that is no part of the format",
    "LEFTOVER": "a temporary file of a sidecar",
    "SPEC_UNSAID": "a setting that the spec gives, and of which the save says nothing",
    "BASELINE": "the spec was taken from a save, not from the configuration",
}
MEANING: Final[Mapping[str, str]] = {**BROKEN, **NOT_YET, **NOTES}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. `code` is one of MEANING; `path` a file relative to the save, or a tensor's name, or empty."""

    code: str
    path: str
    detail: str

    @property
    def weight(self) -> Weight:
        """How much it counts."""
        if self.code in BROKEN:
            return Weight.BROKEN
        return Weight.NOT_YET if self.code in NOT_YET else Weight.NOTE


def verdict(findings: Iterable[Finding]) -> Verdict:
    """Broken when anything is; else not yet when anything can't be judged; else complete."""
    weights = {finding.weight for finding in findings}
    if Weight.BROKEN in weights:
        return Verdict.BROKEN
    return Verdict.NOT_YET if Weight.NOT_YET in weights else Verdict.COMPLETE


def _printable(text: str) -> str:
    """For a terminal: names in a hostile save may hold its control sequences."""
    return "".join(char if char.isprintable() else "?" for char in text[:400])


class Collected:
    """Findings as they come; of one code only so many are kept, the rest is counted: 626,000 chunks can be wrong alike."""

    KEPT = 20

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._counts: dict[str, int] = {}

    def add(self, code: str, path: str, detail: str) -> None:
        """Keep one. Raises KeyError for a code that is not in MEANING."""
        MEANING[code]
        self._counts[code] = self._counts.get(code, 0) + 1
        if self._counts[code] <= self.KEPT:
            self._found.append(Finding(code, _printable(path), _printable(detail)))

    def extend(self, findings: Iterable[Finding]) -> None:
        """Keep many."""
        for finding in findings:
            self.add(finding.code, finding.path, finding.detail)

    def all(self) -> tuple[Finding, ...]:
        """Those that were kept, the weightiest first, and how many more there are of a code."""
        more = [
            Finding(code, "", f"and {count - self.KEPT} more of this kind")
            for code, count in self._counts.items()
            if count > self.KEPT
        ]
        order = list(Weight)
        return tuple(sorted([*self._found, *more], key=lambda finding: order.index(finding.weight)))
