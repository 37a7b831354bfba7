"""Bytes on their way to a name: summed as they pass, written aside, linked when they are whole, and read again there."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import xxhash

from supervisor import durable
from supervisor.checkpoints.objects.patience import Until
from supervisor.checkpoints.posix import open_regular

BLOCK: Final = 4 << 20
"""Bytes a read."""
Pace = Callable[[int], None]
"""Called with the bytes of each block that was read, by the thread that reads: it may wait, or raise to give up."""


def no_pace(_count: int) -> None:
    """As fast as it goes."""


class DiffersError(Exception):
    """Read in full, and not what the sum says. `landed`: it lies at the goal; else it was what was to be copied."""

    def __init__(self, text: str, *, landed: bool) -> None:
        super().__init__(text)
        self.landed = landed


def blocks(path: str, until: Until, pace: Pace) -> Iterator[bytes]:
    """The content of a regular file. Raises OSError, LateError."""
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        while block := file.read(BLOCK):
            until.check()
            pace(len(block))
            yield block


def summed(source: Iterable[bytes], xxh3: str, what: str, *, landed: bool = False) -> Iterator[bytes]:
    """Pass them on. Raises DiffersError at the end, before whoever takes them believes that it has them all."""
    digest = xxhash.xxh3_128()
    for block in source:
        digest.update(block)
        yield block
    if digest.hexdigest() != xxh3:
        why_not = f"{what} is not what its manifest says (xxh3 {digest.hexdigest()}, not {xxh3})"
        raise DiffersError(why_not, landed=landed)


def land(source: Iterable[bytes], target: str, xxh3: str, until: Until, pace: Pace, folder: str | None = None) -> int:
    """Write them aside, whole and durable; link them to their name; read them again; their number. Raises DiffersError, OSError."""
    if not os.path.lexists(target):
        beside = target if folder is None else os.path.join(folder, os.path.basename(target))
        aside = f"{beside}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
        try:
            with open(
                os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb", buffering=0
            ) as file:
                for block in summed(source, xxh3, f"what was to become {os.path.basename(target)}"):
                    _write(file.fileno(), block)
                os.fsync(file.fileno())
                # What is read below comes from the store, not from our own memory, as far as the system lets us choose.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            until.check()
            with contextlib.suppress(FileExistsError):
                os.link(aside, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
        durable.sync_folder(os.path.dirname(target))
    return sum(map(len, summed(blocks(target, until, pace), xxh3, target, landed=True)))


def _write(descriptor: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]
