"""A folder of logs, read as blocks of whole lines; compressed ones too. Nothing here trusts what it reads."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, cast

BLOCK: Final = 1 << 20
"""Bytes of one block (before the rest of a line is added to it)."""

FILES: Final = 200_000
"""Files of one folder that are looked at."""

_OPENERS: Final[tuple[tuple[bytes, Callable[..., Any]], ...]] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ", lzma.open),
)
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_SKIP: Final = (".pt", ".pth", ".distcp", ".safetensors", ".npy", ".npz", ".bin", ".idx", ".so", ".whl", ".png", ".pyc")


def walk(folder: str) -> list[str]:
    """Regular files below the folder, relative, sorted. Links are not followed; raises OSError when it can't be listed."""
    if not os.path.isdir(folder):
        raise NotADirectoryError(f"{folder}: not a folder")
    os.listdir(folder)  # os.walk would hide that it may not be read
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(d for d in folders if not d.startswith("."))
        for name in sorted(names):
            path = os.path.join(root, name)
            if name.lower().endswith(_SKIP) or not _regular(path):
                continue
            found.append(os.path.relpath(path, folder))
            if len(found) >= FILES:
                return found
    return sorted(found)


def _regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


class UnreadableError(Exception):
    """A file that could not be read to its end; `args[0]` says why. What came before it has been given out."""


def _open(path: str) -> IO[bytes]:
    with open(path, "rb") as file:
        head = file.read(6)
    if head.startswith(_ZSTD):
        raise UnreadableError("zstd: unpack it first (zstd -d)")
    for magic, opener in _OPENERS:
        if head.startswith(magic):
            return cast("IO[bytes]", opener(path, "rb"))
    return open(path, "rb")


def blocks(path: str, size: int = BLOCK) -> Iterator[bytes]:
    """The file in blocks of whole lines. Only a line longer than a block, and the file's last, end without a line feed.

    Raises UnreadableError when the file breaks off (a damaged archive, a read error).
    """
    rest = b""
    try:
        with _open(path) as file:
            while data := file.read(size):
                cut = data.rfind(b"\n") + 1
                if cut == 0 and len(rest) + len(data) < size:
                    rest += data
                    continue
                cut = cut or len(data)
                yield rest + data[:cut] if rest else data[:cut]
                rest = data[cut:]
            if rest:
                yield rest
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UnreadableError(str(error) or type(error).__name__) from error
