"""Which samples a step reads, and what is in them. A sample is made from its number alone, so any rank can make it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import xxhash


@dataclass(slots=True)
class Sampler:
    """Reads samples in the order of their numbers, `batch` a step, over all replicas together.

    `position` is the next sample that is not yet read. `shift` is 0; a planted fault makes it 1.
    """

    version: str
    batch: int
    replicas: int
    skip: tuple[tuple[int, int], ...] = ()
    position: int = 0
    shift: int = 0

    def first(self) -> int:
        """The first sample of the next batch; a batch that touches a span to skip starts behind that span."""
        first = self.position + self.shift
        for start, end in sorted(self.skip):
            if first < end and first + self.batch > start:
                first = end
        return first

    def part(self, replica: int) -> range:
        """The samples of the next batch that one replica reads."""
        share = self.batch // self.replicas
        start = self.first() + replica * share
        return range(start, start + share)

    def advance(self) -> None:
        """The next batch has been read."""
        self.position = self.first() - self.shift + self.batch


def batch_of(version: str, ids: range) -> tuple[int, int, str]:
    """How a batch is told: its first sample, how many, and a hash over version and numbers (16 hex digits)."""
    return ids.start, len(ids), f"{_hash(version, ids):016x}"


def small_hash(version: str, ids: range) -> int:
    """32 bits of the batch's hash: sums of up to two million of them are exact in float64."""
    return _hash(version, ids) & 0xFFFFFFFF


def _hash(version: str, ids: range) -> int:
    return xxhash.xxh3_64_intdigest(f"{version}:{','.join(map(str, ids))}".encode())


def tokens(version: str, ids: range, length: int, vocab: int) -> Any:
    """The samples as int64 tokens, shape (len(ids), length + 1): steps of a fixed width from a start, both by hash."""
    rows = []
    for number in ids:
        mixed = xxhash.xxh3_64_intdigest(f"{version}/{number}".encode())
        rows.append((mixed % vocab, 1 + (mixed >> 32) % 8))
    start, width = torch.tensor(rows, dtype=torch.int64).unbind(1)
    return (start[:, None] + width[:, None] * torch.arange(length + 1)) % vocab


def weights_of(ids: range, poisoned: frozenset[int]) -> Any:
    """How much each sample counts in the loss, shape (len(ids),): 1, and NaN for a poisoned one."""
    return torch.tensor([float("nan") if number in poisoned else 1.0 for number in ids])
