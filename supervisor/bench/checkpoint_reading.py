"""How fast a checkpoint is checked, each beside a rival in the same run: `python -m supervisor.bench.checkpoint_reading`.

Structure: all that `relight verify` does with the metadata, coverage and storage included, in its own process, beside
torch's `read_metadata` of the same file (which checks nothing), without torch's import. Content: a later read against the
manifest, beside a plain read of the same bytes from page cache and beside sha256, on one core.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from supervisor.bench import fake_saves, store_latency
from supervisor.bench.agent_readers import of_agents
from supervisor.bench.figure import Figure
from supervisor.bench.timed import timed
from supervisor.checkpoints.reading.content import BLOCK, ContentReader, Job
from supervisor.checkpoints.reading.folder import look_at
from supervisor.checkpoints.reading.structure import Structure, limits_for, read_structure
from supervisor.checkpoints.reading.throttle import Throttle

TIME_SHARE: Final = 0.7
MEMORY_SHARE: Final = 0.8
READ_SHARE: Final = 0.8
DISK_SHARE: Final = 0.95
THREADS: Final = 4
"""As by default."""
PLAIN_BLOCKS: Final = (BLOCK, 4 * BLOCK)
"""Bytes a read, for the plain read; the best of them counts."""

_OURS: Final = """
import sys, json, time
from supervisor.checkpoints.reading.structure import limits_for, read_structure
found = read_structure(sys.argv[1], limits_for(int(sys.argv[2])))
assert {f.code for f in found.findings if f.weight != "note"} <= {"BAD_METADATA_JSON"}, found.findings
print(json.dumps({"chunks": sum(t.chunks for t in found.tensors.values()), "tensors": len(found.tensors)}))
"""
_TORCH: Final = """
import sys, json, os, resource, time
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint import metadata
base, cpu, wall = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.process_time(), time.perf_counter()
read = FileSystemReader(sys.argv[1]).read_metadata()
took = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall, "base_mb": base}
took["chunks"] = sum(len(t.chunks) for t in read.state_dict_metadata.values() if hasattr(t, "chunks"))
print(json.dumps(took), flush=True)
os._exit(0)
"""


class ContestError(RuntimeError):
    """One side of the contest failed, or both did not read the same."""


def of_structure(folder: str) -> list[Figure]:
    """Figures on the metadata in `folder`. CPU seconds, since a busy machine says little about the clock on the wall."""
    size = os.path.getsize(os.path.join(folder, ".metadata"))
    ours = timed([sys.executable, "-c", _OURS, folder, str(size)])
    theirs = timed([sys.executable, "-W", "ignore", "-c", _TORCH, folder])
    for side in (ours, theirs):
        if side.code != 0:
            raise ContestError(side.last_words)
    told, torch = json.loads(ours.output), json.loads(theirs.output)
    if told["chunks"] != torch["chunks"]:
        raise ContestError(f"{told['chunks']} chunks here, {torch['chunks']} there")
    beside = {
        "s": ours.cpu_s, "torch s": torch["cpu_s"], "on the wall s": ours.wall_s, "torch on the wall s": torch["wall_s"],
        "chunks": told["chunks"], "metadata MB": size / 1e6,
    }  # fmt: skip
    memory = {"MB": ours.peak_mb, "torch MB": theirs.peak_mb, "torch before it reads MB": torch["base_mb"]}
    return [
        Figure("structure check, of torch's read_metadata", ours.cpu_s / torch["cpu_s"], "x", TIME_SHARE, beside),
        Figure("its memory, of torch's", ours.peak_mb / theirs.peak_mb, "x", MEMORY_SHARE, memory),
    ]


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this thread, and what it starts, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def make_content(folder: str, files: int, size: int) -> None:
    """A save of so many files with `size` bytes of elements each."""
    block = os.urandom(min(size, 64 << 20))
    data = (block * (size // len(block) + 1))[:size]
    items = [fake_saves.Chunk(f"w{n}", "uint8", (size,), (0,), (size,), f"__{n}_0.distcp", data) for n in range(files)]
    fake_saves.write(folder, items)


def plain_read(paths: Sequence[str], block: int, update: Callable[[memoryview], object] | None = None) -> None:
    """Read files into one buffer, block by block."""
    buffer = memoryview(bytearray(block))
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        at = 0
        while count := os.preadv(descriptor, [buffer], at):
            if update is not None:
                update(buffer[:count])
            at += count
        os.close(descriptor)


def plain_read_by(pool: Executor, paths: Sequence[str]) -> None:
    """The same by several threads, a file each."""
    for done in [pool.submit(plain_read, [path], BLOCK) for path in paths]:
        done.result()


def of_content(folder: str, rounds: int = 5) -> list[Figure]:
    """Figures on reading the save in `folder` from page cache: the best of some rounds, taken in turn."""
    look = look_at(folder)
    structure = read_structure(folder, limits_for(1 << 20))
    paths = [os.path.join(folder, name) for name in look.files]
    total = sum(look.sizes.values())
    later = [Job(name, stamp) for name, stamp in look.files.items()]
    first = [Job(name, stamp, extents=structure.files.get(name)) for name, stamp in look.files.items()]

    def read(jobs: list[Job], structure: Structure | None, threads: int, *, local: bool) -> None:
        reader = ContentReader(folder, structure, Throttle(None), local=local)
        found = [finding for one in reader.read_all(jobs, threads, lambda _: None) for finding in one.findings]
        if found:
            raise ContestError(str(found[0]))

    ways: dict[str, Callable[[], None]] = {
        **{f"plain {block >> 20} MiB": _bound(paths, block) for block in PLAIN_BLOCKS},
        "later": lambda: read(later, None, 1, local=True),
        "later, not mapped": lambda: read(later, None, 1, local=False),
        "first": lambda: read(first, structure, 1, local=True),
        "sha256": lambda: plain_read(paths, BLOCK, hashlib.sha256().update),
    }
    with one_core():
        took = _take_turns(ways, rounds)
    with ThreadPoolExecutor(THREADS) as pool:
        cold = _take_turns(
            {
                "plain": lambda: plain_read(paths, BLOCK),
                f"plain by {THREADS}": lambda: plain_read_by(pool, paths),
                f"later by {THREADS}": lambda: read(later, None, THREADS, local=True),
                "later": lambda: read(later, None, 1, local=True),
            },
            rounds,
            before=lambda: forget(paths),
        )
    pair = _take_turns({"one": ways["later"], "two": lambda: read(later, None, 2, local=True)}, rounds)
    speed = {name: total / seconds / 1e9 for name, seconds in took.items()}
    disk = {name: total / seconds / 1e9 for name, seconds in cold.items()}
    plain = max(rate for name, rate in speed.items() if name.startswith("plain"))
    beside = {f"{name} GB/s": rate for name, rate in speed.items()}
    return [
        Figure(
            "later read against the manifest, of a plain read",
            speed["later"] / plain,
            "x",
            READ_SHARE,
            beside,
            least=True,
        ),
        Figure(
            "the same from disk",
            disk["later"] / disk["plain"],
            "x",
            DISK_SHARE,
            {f"{name} GB/s": rate for name, rate in disk.items()},
            least=True,
        ),
        Figure("the same without mapping, of a plain read", speed["later, not mapped"] / plain, "x"),
        Figure("the same, of sha256", speed["later"] / speed["sha256"], "x", 1.0, least=True),
        Figure("first read with the sums of records, of a plain read", speed["first"] / plain, "x"),
        Figure("two readers, of one", pair["one"] / pair["two"], "x", None, {"cores": float(os.cpu_count() or 1)}),
    ]


def forget(paths: Sequence[str]) -> None:
    """Have the kernel drop what it keeps of the files, so that the next read comes from disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _bound(paths: Sequence[str], block: int) -> Callable[[], None]:
    return lambda: plain_read(paths, block)


def _take_turns(
    ways: dict[str, Callable[[], None]], rounds: int, before: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Seconds of the best round of each; the first round only warms the cache. `before` comes before each, untimed."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            before()
            began = time.perf_counter()
            way()
            took[name].append(time.perf_counter() - began)
    return {name: min(seconds[1:]) for name, seconds in took.items()}


def figures(
    folder: str | None = None,
    dp: int = 80,
    files: int = 4,
    size: int = 512 << 20,
    rounds: int = 5,
    say: Callable[[str], None] = lambda _: None,
) -> list[Figure]:
    """All of them, with files below `folder`. Some three minutes with 80 x 64 writers, most of it to write their metadata."""
    with tempfile.TemporaryDirectory(prefix="relight-reading-", dir=folder) as scratch:
        large, content = os.path.join(scratch, "large"), os.path.join(scratch, "content")
        os.mkdir(large)
        say(f"torch writes the metadata of {dp * 64} writers")
        made = timed([sys.executable, "-W", "ignore", "-m", "supervisor.bench.large_metadata", large, "--dp", str(dp)])
        if made.code != 0:
            raise ContestError(made.last_words)
        say(f"its structure is checked, beside torch's read_metadata ({made.wall_s:.0f} s to write it)")
        found = of_structure(large)
        say(
            f"{files * size / 1e9:.1f} GB of content: plain reads, later and first reads, sha256; from memory and from disk"
        )
        make_content(content, files, size)
        return found + of_content(content, rounds) + of_agents(content, THREADS, rounds)


def measure(folder: str, say: Callable[[str], None]) -> tuple[list[Figure], list[str]]:
    """Reading and committing of checkpoints: the figures, and what could not be had. Works below `folder`."""
    skipped = []
    found: list[Figure] = []
    if importlib.util.find_spec("torch") is None:
        skipped.append("checkpoints: torch is not installed, and nothing else writes its metadata")
    else:
        found += figures(folder, say=say)
    say("commits")
    found += store_latency.figures(folder)
    if not any("S3" in one.name for one in found):
        skipped.append("checkpoints: moto is not installed: no commit to an object store")
    return found, skipped


def main(argv: Sequence[str]) -> int:
    """Print the figures. 1 when one is out of its limit."""
    parser = argparse.ArgumentParser(prog="supervisor.bench.checkpoint_reading")
    parser.add_argument("--metadata", help="a directory with a .metadata; instead of one that is made")
    parser.add_argument("--dp", type=int, default=80)
    given = parser.parse_args(argv)
    if given.metadata is None:
        found = figures(dp=given.dp)
    else:
        found = of_structure(given.metadata)
        with tempfile.TemporaryDirectory(prefix="relight-reading-") as scratch:
            make_content(scratch, 4, 512 << 20)
            found += of_content(scratch) + of_agents(scratch, THREADS, 3)
    for figure in found:
        limit = "" if figure.limit is None else f"  ({'at least' if figure.least else 'at most'} {figure.limit:g})"
        print(f"{figure.value:8.3f} {figure.unit}  {figure.name}{limit}{'' if figure.good else '  MISSED'}")
        for name, value in figure.beside.items():
            print(f"{'':13}{name}: {value:,.2f}")
    return 0 if all(figure.good for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
