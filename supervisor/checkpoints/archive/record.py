"""What a run has written down about itself, kept in the archive: journal, settings, manifests, incidents, drills.

Files are cut into pieces that lie under their sums, so what has not changed is not sent again, and of a journal that grows
only its end is. An index names all files; it is replaced at once, when all its pieces are there.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import xxhash
from pydantic import ValidationError

from supervisor import durable
from supervisor.checkpoints import posix
from supervisor.checkpoints.archive.documents import INDEX, NAME_MOST, Index, KeptFile
from supervisor.checkpoints.archive.shelf import WITHIN_S, Shelf, sure
from supervisor.checkpoints.objects.port import Broken, Conflict, Found, Version
from supervisor.checkpoints.tree import Tree
from supervisor.errors import UserError

PIECE: Final = 4 << 20
"""Bytes of a piece: what a journal that has grown by one line costs at most."""
MOST: Final = 256 << 20
"""Bytes that one call sends at most; the rest goes with the next one."""
FILE_MOST: Final = 4 << 30
"""Bytes of the largest file that is kept. A journal has some hundred MB after months."""
JOURNAL: Final = "journal"
INCIDENTS: Final = "incidents"
DRILLS: Final = "drills"
FILES: Final = ("settings.json", "spec.json")
"""And no other: beside them lie secrets (the run's token, addresses of those who are told), and what is of one moment."""
MANIFESTS: Final = "manifests"
"""What the store says of each save: not where it lies in a store, for marks without their data must never look like one."""
_DRILL = re.compile(r"drills/[0-9]{4,}\.(json|log)")
_PART = re.compile(r"[^/\x00]{1,255}")
_ROUNDS: Final = 16


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one run. `clock`: wall seconds; `most`: bytes that one call sends at most."""

    shelf: Shelf
    clock: Callable[[], float]
    step: posix.Step
    most: int = MOST

    def keep(self, run_root: str, tree: Tree) -> int:
        """Send what has changed since; how many bytes that were. Raises OSError.

        The journal and the manifests go first. What was kept before and is gone here stays kept.
        """
        index, version = self._index()
        known = {piece for kept in index.files.values() for piece in kept.objects}
        files, sent = dict(index.files), 0
        for name, path in _wanted(run_root, tree):
            if not _fits(name):
                continue
            try:
                kept, cost = self._keep_file(path, known, self.most - sent)
            except (FileNotFoundError, NotADirectoryError):
                continue  # it was there when the names were read
            sent += cost
            if kept is None:
                break
            files[name] = kept
        self._put_index(files, version)
        return sent

    def restore(self, into: str) -> tuple[str, ...]:
        """Write the record into a folder that is not there, or empty, and return the names of its files.

        It is written aside and gets its name when it is whole. Raises OSError, UserError.
        """
        index, _ = self._index()
        if not index.files:
            raise UserError(f"{self.shelf.place} has no record of {self.shelf.run}")
        into = os.path.abspath(into)
        for there in posix.names_in(into)[:1]:
            raise UserError(f"{into} already has {there}; give an empty folder")
        aside = f"{into}.coming-back"
        shutil.rmtree(aside, ignore_errors=True)
        os.makedirs(aside, mode=0o700)
        for name, kept in index.files.items():
            self._restore_file(os.path.join(aside, *_parts(name)), name, kept)
        os.rename(aside, into)
        durable.sync_folder(os.path.dirname(into))
        return tuple(index.files)

    # --- how -----------------------------------------------------------------------------------------------------

    def _key(self, name: str) -> str:
        return f"{self.shelf.run}/record/{name}"

    def _index(self) -> tuple[Index, Version]:
        """The index as it is now, and its version; there is one from the beginning. Raises OSError."""
        answer = sure(self.shelf.objects.get(self._key(INDEX), within_s=WITHIN_S))
        if not isinstance(answer, Found):
            said = answer.why if isinstance(answer, Broken) else f"there is no archive of {self.shelf.run} here"
            raise OSError(errno.ENOENT, said, self.shelf.place)
        try:
            return Index.model_validate_json(answer.data), answer.version
        except ValidationError:
            raise OSError(errno.EBADMSG, "is no index of a run's record", self._key(INDEX)) from None

    def _keep_file(self, path: str, known: set[str], room: int) -> tuple[KeptFile | None, int]:
        """Send the pieces of one file that are not there; None in place of it when there is no room for all of them.

        Raises OSError.
        """
        whole, objects, size, sent = xxhash.xxh3_128(), list[str](), 0, 0
        for data in _pieces(path):
            name = xxhash.xxh3_128_hexdigest(data)
            whole.update(data)
            if name not in known:
                if sent + len(data) > room:
                    return None, sent
                self.step("before piece")
                # What an earlier call has sent of a file that it could not finish costs nothing, else no call ever could.
                sent += self._put_piece(name, data)
                self.step("after piece")
                known.add(name)
            objects.append(name)
            size += len(data)
        return KeptFile(size=size, xxh3=whole.hexdigest(), objects=tuple(objects)), sent

    def _put_piece(self, name: str, data: bytes) -> int:
        """Put a piece, and return the bytes that were sent; one that is there and rotten is put again. Raises OSError."""
        key = self._key(f"objects/{name}")
        while isinstance(sure(self.shelf.objects.put_if_absent(key, data, within_s=WITHIN_S)), Conflict):
            answer = sure(self.shelf.objects.get(key, within_s=WITHIN_S))
            if isinstance(answer, Found) and answer.data == data:
                return 0
            sure(self.shelf.objects.delete(key, within_s=WITHIN_S))
        return len(data)

    def _put_index(self, files: dict[str, KeptFile], version: Version) -> None:
        """Replace the index; what somebody else has put there meanwhile is kept beside ours. Raises OSError."""
        key = self._key(INDEX)
        for _ in range(_ROUNDS):
            data = Index(at=self.clock(), files=files).to_bytes()
            self.step("before index")
            answer = self.shelf.objects.put_if_version(key, data, version, within_s=WITHIN_S)
            if not isinstance(sure(answer), Conflict):
                self.step("after index")
                return
            theirs, version = self._index()
            files = {**theirs.files, **files}
        raise OSError(errno.EAGAIN, "is being rewritten by somebody else all the time", key)

    def _restore_file(self, path: str, name: str, kept: KeptFile) -> None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        digest, size = xxhash.xxh3_128(), 0
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            for piece in kept.objects:
                answer = sure(self.shelf.objects.get(self._key(f"objects/{piece}"), within_s=WITHIN_S))
                if not isinstance(answer, Found):
                    raise OSError(errno.EIO, "a piece of it is missing in the archive, or damaged", name)
                digest.update(answer.data)
                size += len(answer.data)
                file.write(answer.data)
            file.flush()
            os.fsync(file.fileno())
        if (size, digest.hexdigest()) != (kept.size, kept.xxh3):
            raise OSError(errno.EIO, "is not what was kept of it", name)
        durable.sync_folder(os.path.dirname(path))


def _parts(name: str) -> list[str]:
    """The parts of a file's name in the index. Raises OSError for one that could lead anywhere else."""
    parts = name.split("/")
    if not all(_PART.fullmatch(part) and part not in {".", ".."} for part in parts):
        raise OSError(errno.EBADMSG, "is no name of a file of a run", name)
    return parts


def _wanted(run_root: str, tree: Tree) -> Iterator[tuple[str, str]]:
    """Name in the record and path of each file to keep, what matters most first. Links are not followed."""
    for name in FILES:
        yield name, os.path.join(run_root, name)
    yield from _below(os.path.join(run_root, JOURNAL), JOURNAL)
    for save in posix.names_in(tree.seals):
        for mark in posix.names_in(os.path.join(tree.seals, save)):
            yield f"{MANIFESTS}/{save}/{mark}", os.path.join(tree.seals, save, mark)
    yield from _below(os.path.join(run_root, INCIDENTS), INCIDENTS)
    # Of drills the records alone: the folder beside each is a run of its own, with a token, a store and whole saves.
    yield from (one for one in _below(os.path.join(run_root, DRILLS), DRILLS) if _DRILL.fullmatch(one[0]))


def _fits(name: str) -> bool:
    """May the index hold this name? What relight itself writes always fits."""
    return len(name) <= NAME_MOST and name.isprintable()


def _below(path: str, name: str) -> Iterator[tuple[str, str]]:
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path, f"{name}/{entry.name}")
        elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(".tmp"):
            yield f"{name}/{entry.name}", entry.path


def _pieces(path: str) -> Iterator[bytes]:
    """A file as it is now, in pieces. What is appended while it is read may be in it or not. Raises OSError."""
    with os.fdopen(posix.open_regular(path), "rb", buffering=0) as file:
        left = os.fstat(file.fileno()).st_size
        if left > FILE_MOST:
            raise OSError(errno.EFBIG, f"has more than {FILE_MOST} bytes", path)
        while left > 0:
            data = bytearray()
            while len(data) < min(PIECE, left) and (more := file.read(min(PIECE, left) - len(data))):
                data += more
            if not data:
                return
            left -= len(data)
            yield bytes(data)
