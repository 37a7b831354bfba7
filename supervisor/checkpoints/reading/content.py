"""Every byte of a save, read once: sums of files, the check sums of records, samples of numbers.

On a first read each record's own CRC is checked beside the sum that is taken: a sum alone would bless what has rotted
before. A later read compares sums with the manifest and does no more.
"""

from __future__ import annotations

import hashlib
import os
import queue
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import xxhash
from isal.isal_zlib import crc32

from supervisor.checkpoints.posix import Stamp, open_regular, stamp_of
from supervisor.checkpoints.reading import mapped, sanity
from supervisor.checkpoints.reading.archives import BadArchiveError, Record, read_records
from supervisor.checkpoints.reading.extents import NO_PAYLOAD, Extents
from supervisor.checkpoints.reading.findings import Collected, Finding
from supervisor.checkpoints.reading.structure import Structure
from supervisor.checkpoints.reading.throttle import Throttle

BLOCK: Final = 2 << 20
"""Bytes a read: larger and smaller ones were slower (14.0 GB/s with its sum; 512 kB: 11.3)."""
UNLISTED: Final = "?"


@dataclass(frozen=True, slots=True)
class Job:
    """One file to read. `xxh3`, `sha256`: the sums that it must have, if known; `extents`: its items, to check records."""

    name: str
    stamp: Stamp
    xxh3: str | None = None
    sha256: str | None = None
    extents: Extents | None = None

    @property
    def is_sum_only(self) -> bool:
        """Is its xxh3 all that is asked for?"""
        return self.sha256 is None and self.extents is None


@dataclass(frozen=True, slots=True)
class FileRead:
    """What came of one file; `xxh3` is None when it could not be read to its end."""

    name: str
    xxh3: str | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes start to end of a file, whose CRC-32 must be `crc`."""

    start: int
    end: int
    crc: int
    where: str


class ContentReader:
    """Reads the files of one save. `structure` None: a later read, nothing but sums."""

    def __init__(self, folder: str, structure: Structure | None, throttle: Throttle, *, local: bool = False) -> None:
        """`local`: the files are on a local file system, so that mapping them is safe for speed."""
        self._folder = folder
        self._local = local
        self._structure = structure
        self._throttle = throttle

    def read_all(self, jobs: list[Job], threads: int, progress: Callable[[int], None]) -> list[FileRead]:
        """Read the files by several threads, the largest first. `progress` gets bytes, from any thread.

        Raises CancelledError when the throttle was cancelled.
        """
        ordered = sorted(jobs, key=lambda job: (-job.stamp.size, job.name))
        # Under a limit of speed the small steps of ordinary reads are kinder to whoever shares the disk.
        large = sum(job.stamp.size for job in jobs if job.is_sum_only) >= mapped.WORTH_IT
        mapping = large and self._local and not self._throttle.limited
        # Buffers outlive files: a fresh megabyte a file costs page faults that show.
        hands: queue.SimpleQueue[Hand] = queue.SimpleQueue()
        made = [Hand(mapping=mapping) for _ in range(min(threads, len(jobs)))]
        for hand in made:
            hands.put(hand)

        def read_one(job: Job) -> FileRead:
            hand = hands.get()
            try:
                return self.read(job, hand, progress)
            finally:
                hands.put(hand)

        with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="read") as pool:
            futures = [pool.submit(read_one, job) for job in ordered]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self._throttle.cancel()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            finally:
                for hand in made:
                    hand.close()

    def read(self, job: Job, hand: Hand, progress: Callable[[int], None]) -> FileRead:
        """Read one file. A file that can't be read gives a finding, not an error. Raises CancelledError."""
        found = Collected()
        try:
            descriptor = open_regular(os.path.join(self._folder, job.name))
        except OSError as error:
            found.add("UNREADABLE", job.name, error.strerror or str(error))
            return FileRead(job.name, None, found.all())
        try:
            fit = job.is_sum_only and hand.mapping is not None and mapped.is_in_memory(descriptor, job.stamp.size)
            xxh3 = self._mapped(descriptor, job, hand, found, progress) if fit else None
            if xxh3 is None:
                xxh3 = self._through(descriptor, job, hand.buffer, found, progress)
            if stamp_of(os.fstat(descriptor)) != job.stamp:
                found.add("CHANGED", job.name, "it is not the file that was looked at before")
        except OSError as error:
            found.add("UNREADABLE", job.name, error.strerror or str(error))
            xxh3 = None
        finally:
            os.close(descriptor)
        return FileRead(job.name, xxh3, found.all())

    def _mapped(
        self, descriptor: int, job: Job, hand: Hand, found: Collected, progress: Callable[[int], None]
    ) -> str | None:
        """The sum of a mapped file; None when that is not to be had."""
        told = 0

        def tell(count: int) -> None:
            nonlocal told
            told += count
            progress(count)

        size = os.fstat(descriptor).st_size
        xxh3 = hand.mapping.sum(descriptor, size, self._throttle.take, tell) if hand.mapping is not None else None
        if xxh3 is None:
            hand.stop_mapping()
            progress(-told)  # it is read again
        else:
            _compare(job, xxh3, found)
        return xxh3

    def _through(
        self, descriptor: int, job: Job, buffer: memoryview, found: Collected, progress: Callable[[int], None]
    ) -> str:
        """One pass from its first byte to its last."""
        sums: list[Any] = [xxhash.xxh3_128()]
        if job.sha256 is not None:
            sums.append(hashlib.sha256())
        checker = _Checker(self._pieces(descriptor, job, found), job.name, found)
        at = 0
        while True:
            self._throttle.take(BLOCK)
            count = os.preadv(descriptor, [buffer], at)
            if not count:
                break
            block = buffer[:count]
            for one in sums:
                one.update(block)
            checker.feed(at, block)
            at += count
            progress(count)
        checker.finish(at)
        xxh3: str = sums[0].hexdigest()
        _compare(job, xxh3, found)
        if job.sha256 is not None and sums[1].hexdigest() != job.sha256:
            found.add("INTEGRITY", job.name, f"sha256 {sums[1].hexdigest()[:16]}..., said to be {job.sha256[:16]}...")
        return xxh3

    def _pieces(self, descriptor: int, job: Job, found: Collected) -> Iterator[_Piece]:
        """The records of each item, in order; each archive is opened when the reading has come to it."""
        structure, extents = self._structure, job.extents
        if structure is None or extents is None:
            return
        plain = structure.format == "safetensors" or structure.transformed
        columns = zip(extents.starts, extents.lengths, extents.payloads, extents.items, strict=True)
        for start, length, payload, item in columns:
            name = structure.names[item] if structure.names else UNLISTED
            where = f"{name} at {start}"
            if plain:
                if payload != NO_PAYLOAD and not structure.transformed:
                    self._sample(descriptor, name, start, payload, found)
                continue
            try:
                records = read_records(_within(descriptor, start, length), length)
            except BadArchiveError as error:
                found.add("BAD_RECORD", job.name, f"{where}: {error}")
                continue
            yield from (_Piece(start + r.start, start + r.end, r.crc, f"{where}: {r.name}") for r in records)
            held = sum(record.size for record in records if record.is_data)
            if payload != NO_PAYLOAD and held < payload:
                found.add("EXTENT_SHORT", job.name, f"{where}: {held} bytes of elements, not {payload}")
            elif payload != NO_PAYLOAD:
                self._sample_record(descriptor, name, start, payload, records, found)

    def _sample_record(
        self, descriptor: int, name: str, start: int, payload: int, records: tuple[Record, ...], found: Collected
    ) -> None:
        """Sample the one record that holds a tensor's elements; of other kinds (quantized, sparse) nothing is known."""
        data = [record for record in records if record.is_data]
        if len(data) == 1 and data[0].size == payload:
            self._sample(descriptor, name, start + data[0].start, payload, found)

    def _sample(self, descriptor: int, name: str, start: int, size: int, found: Collected) -> None:
        """The beginning, the middle and the end of a chunk's elements."""
        tensor = self._structure.tensors.get(name) if self._structure is not None else None
        width = sanity.width_of(tensor.dtype) if tensor is not None else None
        if tensor is None or width is None or size < width * sanity.FEWEST:
            return
        part = width * sanity.SAMPLED
        last = max(0, size - part) // width * width
        places = sorted({0, last // 2 // width * width, last})
        seen = sanity.Seen()
        for place in places:
            read = os.pread(descriptor, min(part, size - place), start + place)
            seen += sanity.look(read[: len(read) // width * width], tensor.dtype)
        fault = sanity.judge(name, tensor.dtype, seen)
        if fault is not None:
            found.add(fault[0], name, fault[1])


def _compare(job: Job, xxh3: str, found: Collected) -> None:
    if job.xxh3 is not None and xxh3 != job.xxh3:
        found.add("SUM", job.name, f"xxh3 {xxh3}, in the manifest {job.xxh3}")


class Hand:
    """What one thread works with: a buffer, and a process that sums mapped files where that is of use."""

    def __init__(self, *, mapping: bool) -> None:
        self.buffer = memoryview(bytearray(BLOCK))
        self.mapping = mapped.MappedSums() if mapping else None

    def stop_mapping(self) -> None:
        """Go on without that process."""
        if self.mapping is not None:
            self.mapping.close()
            self.mapping = None

    def close(self) -> None:
        """End what was started."""
        self.stop_mapping()


def _within(descriptor: int, start: int, length: int) -> Callable[[int, int], bytes]:
    """Reads of one item: nothing outside of it can be reached."""

    def read(at: int, count: int) -> bytes:
        return os.pread(descriptor, max(0, min(count, length - at)), start + at)

    return read


class _Checker:
    """Follows the reading and sums each piece as its bytes pass."""

    def __init__(self, pieces: Iterator[_Piece], file: str, found: Collected) -> None:
        self._pieces = pieces
        self._file = file
        self._found = found
        self._piece = next(pieces, None)
        self._crc = 0

    def feed(self, at: int, block: memoryview) -> None:
        """The bytes from `at` on. Pieces come in the order in which they lie."""
        end = at + len(block)
        while (piece := self._piece) is not None and piece.start <= end:
            self._crc = crc32(block[max(piece.start - at, 0) : min(piece.end, end) - at], self._crc)
            if piece.end > end:
                return
            if self._crc != piece.crc:
                self._found.add("CRC", self._file, piece.where)
            self._piece = next(self._pieces, None)
            self._crc = 0

    def finish(self, size: int) -> None:
        """All has passed; a piece that has not ended by now lies outside of the file."""
        if self._piece is not None:
            self._found.add("TRUNCATED", self._file, f"it ends at {size}, within {self._piece.where}")


def as_sums(read: list[FileRead]) -> Mapping[str, str]:
    """xxh3_128 by name, of the files that could be read."""
    return {one.name: one.xxh3 for one in read if one.xxh3 is not None}
