"""Do the chunks of a logical tensor tile it exactly? Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Where a chunk begins and how large it is, one number a dimension."""

DIMENSIONS_MAX = 16
"""Each dimension doubles the corners of a chunk; no tensor has so many, and a hostile file could ask for 2^60."""


def fault(size: tuple[int, ...], chunks: Sequence[Box]) -> tuple[str, str] | None:
    """None when they tile it; else (code, where): COVER_GAP, COVER_OVERLAP, OUT_OF_BOUNDS or COVER_SHIFT.

    Each chunk must have as many dimensions as `size` and no negative number. A chunk of no elements covers nothing: a
    rank that holds only padding writes one.
    """
    if len(size) > DIMENSIONS_MAX:
        return "OUT_OF_BOUNDS", f"it has {len(size)} dimensions"
    if len(size) == 1:
        return _line(size[0], sorted((offset[0], length[0]) for offset, length in chunks if length[0]))
    full = [box for box in chunks if 0 not in box[1]]
    for offset, length in full:
        if any(o + n > whole for o, n, whole in zip(offset, length, size, strict=True)):
            return "OUT_OF_BOUNDS", f"a chunk at {list(offset)} of {list(length)} in a tensor of {list(size)}"
    if 0 in size or _is_grid(size, full):
        return None
    return _corners(size, full)


def _line(size: int, pieces: list[tuple[int, int]]) -> tuple[str, str] | None:
    """One dimension, pieces sorted by where they begin: nearly all of an optimizer's state is of this kind."""
    at = 0
    for start, length in pieces:
        if start != at:
            code = "COVER_GAP" if start > at else "COVER_OVERLAP"
            return code, f"elements {min(at, start)} to {max(at, start)} of {size}"
        at += length
    if at > size:
        return "OUT_OF_BOUNDS", f"its chunks reach to {at}, it has {size}"
    return None if at == size else ("COVER_GAP", f"elements {at} to {size} of {size}")


def _is_grid(size: tuple[int, ...], chunks: Sequence[Box]) -> bool:
    """Are they all the cells of one grid, each once? So it is in nearly all saves, and it is quick to see."""
    cuts = [
        sorted({(offset[d], length[d]) for offset, length in chunks})
        for d in range(len(size))
    ]  # fmt: skip
    if len(set(chunks)) != len(chunks) or prod(map(len, cuts)) != len(chunks):
        return False
    return all(_line(whole, along) is None for whole, along in zip(size, cuts, strict=True))


def _corners(size: tuple[int, ...], chunks: Sequence[Box]) -> tuple[str, str] | None:
    """Any shape of tiling. A set of boxes sums to the whole box exactly when their signed corners do.

    (The indicator of a box is the running sum, along every dimension, of plus or minus one at its corners.)
    """
    signed: dict[tuple[int, ...], int] = {}

    def add(offset: tuple[int, ...], length: tuple[int, ...], weight: int) -> None:
        ends = [((o, 1), (o + n, -1)) for o, n in zip(offset, length, strict=True)]
        for corner in product(*ends):
            key = tuple(at for at, _ in corner)
            signed[key] = signed.get(key, 0) + weight * prod(sign for _, sign in corner)

    for offset, length in chunks:
        add(offset, length, 1)
    add((0,) * len(size), size, -1)
    wrong = min((key for key, count in signed.items() if count), default=None)
    if wrong is None:
        return None
    # The first corner that is left over is where the first gap or overlap begins: one too few or one too many there.
    held = sum(prod(length) for _, length in chunks)
    whole = prod(size)
    code = "COVER_GAP" if held < whole else "COVER_OVERLAP" if held > whole else "COVER_SHIFT"
    return code, f"from {list(wrong)} on; {held} of {whole} elements are held"
