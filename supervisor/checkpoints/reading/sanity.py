"""Are sampled numbers what numbers of a model can be? Bytes in, counts out; pure.

It looks at the upper two bytes of each element, by whole columns, so that a clean sample of 500 elements costs a few
microseconds without any library for arrays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SAMPLED = 512
"""Elements of one sample."""
FEWEST = 128
"""A chunk with fewer elements is not judged: Megatron fills the padding between parameters with whatever was there."""
_SECOND = re.compile(r"(?:^|[./_])(?:max_)?exp_avg_sq(?:$|[./])")
_MOMENT = re.compile(r"(?:^|[./_])(?:exp_avg|momentum_buffer)(?:$|[./])")
_MASK = re.compile(r"mask|(?:^|[./_])inf")


@dataclass(frozen=True, slots=True)
class _Kind:
    width: int
    exponent: int  # its bits among the upper 16 of an element


_KINDS: Final = {
    "float64": _Kind(8, 0x7FF0),
    "float32": _Kind(4, 0x7F80),
    "bfloat16": _Kind(2, 0x7F80),
    "float16": _Kind(2, 0x7C00),
}
_LARGE, _SMALL, _NEGATIVE = 1, 2, 4


def _table(kind: _Kind) -> bytes:
    """For each value of an element's upper byte: may it be NaN or infinite, may it be zero or denormal, is it below 0?"""
    top = kind.exponent >> 8
    flags = []
    for value in range(256):
        held = value & top
        size = _LARGE if held == top else _SMALL if not held else 0
        flags.append(size | (_NEGATIVE if value & 0x80 else 0))
    return bytes(flags)


_TABLES: Final = {name: _table(kind) for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class Seen:
    """Counts over sampled elements."""

    count: int = 0
    nan: int = 0
    infinite: int = 0
    zero: int = 0
    denormal: int = 0
    negative: int = 0

    def __add__(self, other: Seen) -> Seen:
        return Seen(
            self.count + other.count,
            self.nan + other.nan,
            self.infinite + other.infinite,
            self.zero + other.zero,
            self.denormal + other.denormal,
            self.negative + other.negative,
        )


def width_of(dtype: str) -> int | None:
    """Bytes of an element, for a dtype that can be judged."""
    return _KINDS[dtype].width if dtype in _KINDS else None


def look(data: bytes, dtype: str) -> Seen:
    """Count over little-endian elements of `dtype`, one of those that `width_of` knows."""
    kind = _KINDS[dtype]
    flags = data[kind.width - 1 :: kind.width].translate(_TABLES[dtype])
    negative = sum(flags.count(_NEGATIVE | size) for size in (0, _LARGE, _SMALL))
    nan = infinite = zero = denormal = 0
    odd = [at for at, flag in enumerate(flags) if flag & (_LARGE | _SMALL)] if flags.strip(b"\x00\x04") else []
    shift, sign = 8 * kind.width - 16, 8 * kind.width - 1
    for at in odd:
        bits = int.from_bytes(data[at * kind.width : (at + 1) * kind.width], "little")
        value = bits & ((1 << sign) - 1)
        exponent = value >> shift & kind.exponent
        if exponent == kind.exponent:
            infinite += value == exponent << shift
            nan += value != exponent << shift
        elif not value:
            zero += 1
            negative -= bits >> sign  # minus zero is no negative number
        elif not exponent:
            denormal += 1
    return Seen(len(flags), nan, infinite, zero, denormal, negative)


def judge(name: str, dtype: str, seen: Seen) -> tuple[str, str] | None:
    """What a sample of the tensor `name` shows: (code, detail), or None."""
    if seen.count < FEWEST:
        return None
    if seen.nan or (seen.infinite and not _MASK.search(name)):
        return "NON_FINITE", f"{seen.nan} NaN and {seen.infinite} infinite of {seen.count} sampled"
    if _SECOND.search(name):
        return ("NEGATIVE_MOMENT", f"{seen.negative} of {seen.count} sampled are below zero") if seen.negative else None
    # Moments of a parameter that is hardly used are tiny or zero by right, and halves are denormal early.
    if _MOMENT.search(name) or dtype == "float16":
        return None
    if 2 * seen.denormal > seen.count:
        return "DENORMAL", f"{seen.denormal} of {seen.count} sampled"
    if seen.zero == seen.count:
        return "ALL_ZERO", f"all {seen.count} sampled"
    return None
