"""A stack dump of py-spy -> what its process was doing. Pure."""

from __future__ import annotations

import re
from typing import Final, Literal

Waits = Literal["communication", "data", "storage", "other"]

SHOWN: Final = 4
"""Innermost calls that are told."""
_LOOKED_AT: Final = 6
_FRAME: Final = re.compile(r"^\s{2,}(\S[^\n]*\([^\n]*:\d+\))", re.MULTILINE)
_MAIN: Final = re.compile(r'^Thread [^\n]*"MainThread"[^\n]*\n', re.MULTILINE)
_NEXT: Final = re.compile(r"^(?:Thread |Process \d+: )", re.MULTILINE)
_COMMUNICATES: Final = re.compile(
    r"distributed_c10d|nccl|all_?reduce|all_?gather|reduce_scatter|broadcast|barrier|gloo|\b(send|recv|isend|irecv)\b|p2p|synchronize"
)
_DATA: Final = re.compile(r"dataloader|utils/data|dataset|tokenizer", re.IGNORECASE)
_STORAGE: Final = re.compile(
    r"serialization|checkpoint|filesystem|torch/storage|\b(fsync|write|read|open)\b", re.IGNORECASE
)


def read_stack(dump: str) -> tuple[Waits, str] | None:
    """(what kind of wait, `innermost < its caller < ...`) of the main thread; of the first one, where none is named so.

    None where there is no frame.
    """
    main = _MAIN.search(dump)
    body = dump[main.end() :] if main else dump
    if main and (after := _NEXT.search(body)):
        body = body[: after.start()]
    frames = _FRAME.findall(body)[:_LOOKED_AT]
    if not frames:
        return None
    return _kind(frames), " < ".join(frames[:SHOWN])[:300]


def _kind(frames: list[str]) -> Waits:
    if _COMMUNICATES.search(" ".join(frames[:3])):
        return "communication"
    whole = " ".join(frames)
    if _DATA.search(whole):
        return "data"
    return "storage" if _STORAGE.search(whole) else "other"
