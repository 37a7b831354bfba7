"""A folder of logs, read as blocks of whole lines; compressed ones too. Nothing here trusts what it reads."""

from __future__ import annotations

import bz2
import errno
import gzip
import importlib
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import IO, Any, Final, cast

BLOCK: Final = 1 << 19
"""Bytes of one block (before the rest of a line is added to it). Of twice as many each copy takes four times as long."""

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
    if not os.path.exists(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", folder)
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, "not a folder", folder)
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


WINDOW_LOG: Final = 26
"""A zstd file may ask for a window of 64 MiB at most (`zstd -19` asks for 8): what is read must fit a small memory."""


@cache
def zstd() -> Any | None:
    """Python's own zstd (from 3.14 on) or its backport; None where there is neither."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _open(path: str, unpacker: Any | None) -> IO[bytes]:
    with open(path, "rb") as file:
        head = file.read(6)
    if head.startswith(_ZSTD):
        if unpacker is None:
            raise UnreadableError(
                "not read, this Python has no zstd: pip install backports.zstd, or unpack it (zstd -d)"
            )
        options = {unpacker.DecompressionParameter.window_log_max: WINDOW_LOG}
        return cast("IO[bytes]", unpacker.open(path, "rb", options=options))
    for magic, opener in _OPENERS:
        if head.startswith(magic):
            return cast("IO[bytes]", opener(path, "rb"))
    return open(path, "rb")


def blocks(path: str, size: int = BLOCK, unpacker: Callable[[], Any | None] = zstd) -> Iterator[bytes]:
    """The file in blocks of whole lines. Only a line longer than a block, and the file's last, end without a line feed.

    `unpacker` gives what reads zstd. Raises UnreadableError when the file breaks off (a damaged archive, a read error).
    """
    rest = b""
    module = unpacker()
    damaged = (OSError, EOFError, zlib.error, lzma.LZMAError, *((module.ZstdError,) if module is not None else ()))
    try:
        with _open(path, module) as file:
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
    except damaged as error:
        raise UnreadableError(str(error) or type(error).__name__) from error
