"""Sums of mapped files: the same as by reading, and a process that dies of a file costs nothing but time."""

import os
import random
import signal

import pytest
import xxhash

from supervisor.bench import checkpoint_reading, fake_saves
from supervisor.bench.checkpoint_reading import ContestError, make_content, of_content, of_structure
from supervisor.checkpoints.posix import stamp_of
from supervisor.checkpoints.reading import mapped
from supervisor.checkpoints.reading.content import ContentReader, Job
from supervisor.checkpoints.reading.mapped import MappedSums
from supervisor.checkpoints.reading.mapped_child import WINDOW
from supervisor.checkpoints.reading.throttle import CancelledError, Throttle


@pytest.fixture
def process():
    made = MappedSums()
    yield made
    made.close()


def summed(process, path, size=None, take=lambda _: None):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return process.sum(descriptor, os.path.getsize(path) if size is None else size, take, lambda _: None)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, WINDOW, WINDOW + 1])
def test_the_sum_is_that_of_the_bytes(process, tmp_path, size):
    path = tmp_path / "f"
    data = random.Random(size).randbytes(min(size, 1 << 20)) * (size // (1 << 20) + 1)
    path.write_bytes(data[:size])
    for _ in range(2):
        assert summed(process, path) == xxhash.xxh3_128_hexdigest(data[:size])


def test_a_file_that_shrinks_kills_that_process_and_not_us(process, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(bytes(WINDOW + 5000))
    asked = []

    def take(_):
        asked.append(1)
        if len(asked) == 2:
            os.truncate(path, 10)

    assert summed(process, path, take=take) is None
    assert summed(process, path) is None  # it is no more


def test_a_process_that_was_killed_is_told(process, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(bytes(1000))
    os.kill(process._process.pid, signal.SIGBUS)
    process._process.wait()
    assert summed(process, path) is None


def test_what_was_just_written_is_in_memory_and_what_was_dropped_is_not(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(bytes(4 << 20))
    descriptor = os.open(path, os.O_RDONLY)
    os.pread(descriptor, 4 << 20, 0)
    try:
        held = mapped.is_in_memory(descriptor, 4 << 20)
        checkpoint_reading.forget([str(path)])
        dropped = mapped.is_in_memory(descriptor, 4 << 20)
    finally:
        os.close(descriptor)
    # A file system that can't tell (tmpfs holds all, others none) gives the same answer twice.
    assert held >= dropped


def large(tmp_path, count=2):
    """Sparse files, large enough to be worth mapping, and read once so that they lie in memory."""
    jobs = []
    for number in range(count):
        path = tmp_path / f"f{number}"
        path.write_bytes(b"begin")
        os.truncate(path, mapped.WORTH_IT // count + number)
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass
        jobs.append(Job(path.name, stamp_of(os.stat(path))))
    return jobs


def test_both_ways_give_the_same_sums_and_the_same_progress(tmp_path):
    jobs = large(tmp_path)
    told = {}
    for local in (True, False):
        counts = []
        read = ContentReader(str(tmp_path), None, Throttle(None), local=local).read_all(jobs, 2, counts.append)
        told[local] = {one.name: one.xxh3 for one in read}
        assert sum(counts) == sum(job.stamp.size for job in jobs)
        assert [f for one in read for f in one.findings] == []
    assert told[True] == told[False]


def test_a_file_that_shrinks_while_it_is_mapped_is_read_again_and_said_to_have_changed(tmp_path):
    jobs = large(tmp_path, 1)

    class Cutting(Throttle):
        calls = 0

        def take(self, _):
            self.calls += 1
            if self.calls == 2:
                os.truncate(tmp_path / "f0", 100)

    read = ContentReader(str(tmp_path), None, Cutting(None), local=True).read_all(jobs, 1, lambda _: None)
    assert [f.code for f in read[0].findings] == ["CHANGED"]


def test_a_cancel_ends_the_reading_and_its_processes(tmp_path):
    jobs = large(tmp_path)
    throttle = Throttle(None)
    throttle.cancel()
    with pytest.raises(CancelledError):
        ContentReader(str(tmp_path), None, throttle, local=True).read_all(jobs, 2, lambda _: None)


def test_the_figures_of_reading(tmp_path):
    make_content(str(tmp_path / "s"), 2, 1 << 20)
    figures = {figure.name: figure for figure in of_content(str(tmp_path / "s"), 1)}
    first = figures["later read against the manifest, of a plain read"]
    assert first.least
    assert first.limit == checkpoint_reading.READ_SHARE
    assert all(figure.value > 0 for figure in figures.values())
    assert first.beside["sha256 GB/s"] < first.beside["plain 2 MiB GB/s"]


def test_a_figure_of_a_rotten_save_is_none(tmp_path):
    make_content(str(tmp_path / "s"), 1, 1 << 20)
    path = tmp_path / "s" / "__0_0.distcp"
    data = bytearray(path.read_bytes())
    data[1 << 19] ^= 1
    path.write_bytes(data)
    with pytest.raises(ContestError, match="CRC"):
        of_content(str(tmp_path / "s"), 1)


@pytest.mark.real
def test_both_sides_read_the_same_metadata(tmp_path):
    from supervisor.bench import large_metadata

    count = large_metadata.write(str(tmp_path), 8, 8, 1)
    figures = of_structure(str(tmp_path))
    assert figures[0].beside["chunks"] == count
    assert figures[0].limit == checkpoint_reading.TIME_SHARE


@pytest.mark.real
def test_a_contest_with_metadata_that_one_side_refuses_is_none(tmp_path):
    items = [fake_saves.Chunk("w", "float32", (4,), (0,), (3,), "__0_0.distcp")]
    fake_saves.write(str(tmp_path), items)
    with pytest.raises(ContestError):
        of_structure(str(tmp_path))
