"""Optimizers that Megatron stores flat (dp_reshardable, its default): do all kinds cover all elements? Pure.

Their tensors have no names of parameters, only a number of elements a bucket, so what can be checked is: each bucket
holds each kind with as many elements as the others, no bucket is left out, and together they hold all of this rank's
parameters. Each parameter begins at a multiple of 64 elements (megatron/core/optimizer/param_layout.py in 0.19.2), which
leaves a total some play.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import Final

from supervisor.checkpoints.spec.document import FlatGroup
from supervisor.checkpoints.spec.items import Item, State, form

_BUCKET: Final = re.compile(r"(gbuf_idx_[0-9]+\.dtype_\([^()]{1,200}\))\.bucket_idx_(0|[1-9][0-9]{0,6})\.([a-z_]+)")
Form = tuple[str, tuple[int, ...]]
Buckets = dict[tuple[str, int], dict[str, Form]]


def judge(group: FlatGroup, tensors: Mapping[str, Form]) -> tuple[list[Item], set[str]]:
    """Items on one group, and the names that belong to it. `tensors`: those whose names begin with its prefix."""
    buckets: Buckets = {}
    taken: set[str] = set()
    for name, found in tensors.items():
        match = _BUCKET.fullmatch(name.removeprefix(group.prefix))
        if match and match[3] in group.kinds:
            buckets.setdefault((match[1], int(match[2])), {})[match[3]] = found
            taken.add(name)
    items = [item for key in sorted(buckets) for item in _bucket(group, key, buckets[key])]
    items += _gaps(group, buckets)
    items += [_total(group, kind, buckets) for kind in group.kinds]
    return items, taken


def _bucket(group: FlatGroup, key: tuple[str, int], kinds: Mapping[str, Form]) -> list[Item]:
    # Which of them is off when they differ: the one that is unlike the others.
    shape = Counter(found[1] for found in kinds.values()).most_common(1)[0][0]
    expected = form(group.dtype, shape)
    items = []
    for kind in group.kinds:
        name = f"{group.prefix}{key[0]}.bucket_idx_{key[1]}.{kind}"
        if kind not in kinds:
            items.append(Item("bucket", name, State.MISSING, expected))
            continue
        dtype, size = kinds[kind]
        found = form(dtype, size)
        if dtype != group.dtype:
            items.append(Item("bucket", name, State.DTYPE, expected, found))
        if size != shape or len(size) != 1:
            items.append(Item("bucket", name, State.SHAPE, expected if len(shape) == 1 else "one dimension", found))
        if dtype == group.dtype and size == shape and len(size) == 1:
            items.append(Item("bucket", name, State.AGREES, expected, found))
    return items


def _gaps(group: FlatGroup, buckets: Buckets) -> list[Item]:
    """Buckets are numbered without a gap."""
    items = []
    for buffer in sorted({buffer for buffer, _ in buckets}):
        there = {number for name, number in buckets if name == buffer}
        # A hostile number must not make a list of its length: a gap is as good as its first ones.
        gaps = [n for n in range(min(max(there), len(there) + 20)) if n not in there][:20]
        items += [Item("bucket", f"{group.prefix}{buffer}.bucket_idx_{n}", State.MISSING, "a bucket") for n in gaps]
    return items


def _total(group: FlatGroup, kind: str, buckets: Buckets) -> Item:
    total = sum(prod(kinds[kind][1]) for kinds in buckets.values() if kind in kinds)
    expected = (
        f"{group.least:,} elements" if group.least == group.most else f"{group.least:,} to {group.most:,} elements"
    )
    state = State.AGREES if group.least <= total <= group.most else State.COVERAGE
    return Item("coverage", f"{group.prefix}{kind}", state, expected, f"{total:,}")
