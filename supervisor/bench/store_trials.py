"""What is asked of a store under load: no read is torn, one of many writers wins, no count is lost.

The same trials run over every store, from threads or from processes, and over careless ones, where they must fail.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeAlias

import xxhash

from supervisor.checkpoints.objects.port import Conflict, Found, Objects, Version, Written

Open: TypeAlias = Callable[[], Objects]
"""Opens the store anew. It goes to other processes, so it is a class or function with its arguments (`partial`)."""
WITHIN_S = 60.0
POINTER = "trials/latest"
KILLED = "trials/killed"
"""The pointer of writers that are killed."""
COUNT = "trials/count"
_THREADS = 4
"""Writers of one process."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What readers saw. `torn`: half of a change; `unsure`: no document; `backwards`: an older one after a newer."""

    reads: int
    torn: int
    unsure: int
    backwards: int
    seen: int
    """Different contents that a reader saw, the most of any: how much was rewritten meanwhile."""
    rewrites: int = 0
    why: str = ""
    """Of one that was unsure."""

    @property
    def good(self) -> bool:
        """Whole each time, and there was something to see."""
        return self.torn == self.unsure == self.backwards == 0 and self.seen > 1


def document(generation: int) -> bytes:
    """A pointer that vouches for itself, of another length each time: 0.1 to 24 kB."""
    fill = random.Random(generation).randbytes(50 + generation * 3571 % 12_000).hex()
    return json.dumps({"generation": generation, "fill": fill, "sum": _sum(generation, fill)}).encode()


def generation_of(data: bytes) -> int | None:
    """Which one it is; None when it is not one as it was written."""
    try:
        read = json.loads(data)
        whole = read["sum"] == _sum(read["generation"], read["fill"])
    except (ValueError, KeyError, TypeError):
        return None
    return int(read["generation"]) if whole else None


def _sum(generation: int, fill: str) -> str:
    return xxhash.xxh3_64(f"{generation} {fill}".encode()).hexdigest()


def read_many(open_: Open, count: int) -> Reads:
    """One reader: `count` reads of the pointer."""
    store = open_()
    torn = unsure = backwards = newest = 0
    seen, why = set(), ""
    for _ in range(count):
        there = store.get(POINTER, within_s=WITHIN_S)
        if not isinstance(there, Found):
            unsure, why = unsure + 1, str(there)
            continue
        generation = generation_of(there.data)
        if generation is None:
            torn += 1
            continue
        backwards += generation < newest
        newest = max(newest, generation)
        seen.add(generation)
    return Reads(count, torn, unsure, backwards, len(seen), why=why)


def reads_during_rewrites(open_: Open, reads: int, readers: int, pool: Executor, least: int = 2) -> Reads:
    """`reads` in all by `readers` in the pool, while one writer here replaces the pointer without a pause.

    They go on until there were `least` rewrites: a disk may take its time. A writer that has stopped is waited for no more.
    """
    store, over = open_(), threading.Event()
    store.make(within_s=WITHIN_S)
    store.put_if_absent(POINTER, document(1), within_s=WITHIN_S)
    rewrites: list[int] = []
    writer = threading.Thread(target=_rewrite, args=(store, over, rewrites))
    writer.start()
    parts: list[Reads] = []
    try:
        while not parts or (len(rewrites) < least and writer.is_alive()):
            parts += pool.map(read_many, [open_] * readers, [reads // readers] * readers)
    finally:
        over.set()
        writer.join()
    return Reads(
        sum(part.reads for part in parts),
        sum(part.torn for part in parts),
        sum(part.unsure for part in parts),
        sum(part.backwards for part in parts),
        max(part.seen for part in parts),
        len(rewrites),
        next((part.why for part in parts if part.why), ""),
    )


def _rewrite(store: Objects, over: threading.Event, rewrites: list[int]) -> None:
    there = store.get(POINTER, within_s=WITHIN_S)
    version = there.version if isinstance(there, Found) else Version("")
    while not over.is_set():
        following = len(rewrites) + 2
        done = store.put_if_version(POINTER, document(following), version, within_s=WITHIN_S)
        if not isinstance(done, Written):
            return  # there is no other writer: the number of rewrites tells that it stopped
        version = done.version
        rewrites.append(following)


def _rewrite_and_tell(open_: Open, pipe: Any) -> None:
    """Replace a pointer for ever, and tell of each generation before and after. For a process that will be killed."""
    store = open_()
    store.make(within_s=WITHIN_S)
    store.put_if_absent(KILLED, document(1), within_s=WITHIN_S)
    there = store.get(KILLED, within_s=WITHIN_S)
    while isinstance(there, Found):
        following = (generation_of(there.data) or 0) + 1
        data = document(following)
        pipe.send((following, False))
        done = store.put_if_version(KILLED, data, there.version, within_s=WITHIN_S)
        if not isinstance(done, Written):
            return
        pipe.send((following, True))
        there = Found(data, done.version)


def kill_writers(open_: Open, kills: int, rng: random.Random) -> tuple[int, int]:
    """Kill a process that writes, again and again. How often all that it told of was there, whole; the last generation."""
    good = last = 0
    for _ in range(kills):
        last = _killed_writer(open_, rng.randrange(1, 60), last)
        there = open_().get(KILLED, within_s=WITHIN_S)
        found = generation_of(there.data) if isinstance(there, Found) else None
        good += found in (last, last + 1)  # the one that it was about may be there too
        last = found or last
    return good, last


def _killed_writer(open_: Open, after: int, last: int) -> int:
    """Kill it as it begins its next after `after` generations. The last that it told of as written; else `last`."""
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe(duplex=False)
    child = context.Process(target=_rewrite_and_tell, args=(open_, its), daemon=True)
    child.start()
    its.close()
    with contextlib.suppress(EOFError):  # it is dead, by us or of itself, and has told all
        begun = 0
        while True:
            generation, written = ours.recv()
            last = generation if written else last
            begun += not written
            if begun > after:
                child.kill()
    child.join()
    return last


@dataclass(frozen=True, slots=True)
class Race:
    """One commit that many tried: who won, by their own account, how many were refused, and whose is there."""

    winners: tuple[int, ...]
    refused: int
    there: int | None

    @property
    def good(self) -> bool:
        """Exactly one won, and it is there."""
        return len(self.winners) == 1 and self.there == self.winners[0]


def race(open_: Open, rounds: int, writers: int, *, replace: bool = False, processes: bool = False) -> list[Race]:
    """`writers` at once put one key, in each of `rounds`: if it is absent, or (`replace`) if it is as all have read it."""
    store = open_()
    store.make(within_s=WITHIN_S)
    for number in range(rounds) if replace else ():
        store.put_if_absent(_key(number, replace=True), b"before", within_s=WITHIN_S)
    if processes:
        answers = _by_processes(open_, rounds, writers, replace)
    else:
        answers = _by_threads(open_, range(writers), rounds, replace, threading.Barrier(writers))
    races = []
    for number in range(rounds):
        told = {writer: answers[writer][number] for writer in answers}
        there = store.get(_key(number, replace), within_s=WITHIN_S)
        data = there.data if isinstance(there, Found) else b""
        races.append(
            Race(
                winners=tuple(sorted(writer for writer, answer in told.items() if answer == "written")),
                refused=sum(answer == "conflict" for answer in told.values()),
                there=int(data) if data.isdigit() else None,
            )
        )
    return races


def _by_processes(open_: Open, rounds: int, writers: int, replace: bool) -> dict[int, list[str]]:
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(writers), context.SimpleQueue()
    groups = [range(first, min(first + _THREADS, writers)) for first in range(0, writers, _THREADS)]
    children = [
        context.Process(target=_group, args=(open_, group, rounds, replace, barrier, queue), daemon=True)
        for group in groups
    ]
    for child in children:
        child.start()
    answers: dict[int, list[str]] = {}
    for _ in children:
        answers |= queue.get()
    for child in children:
        child.join()
    return answers


def _group(open_: Open, group: Sequence[int], rounds: int, replace: bool, barrier: Any, queue: Any) -> None:
    queue.put(_by_threads(open_, group, rounds, replace, barrier))


def _by_threads(open_: Open, group: Sequence[int], rounds: int, replace: bool, barrier: Any) -> dict[int, list[str]]:
    answers: dict[int, list[str]] = {writer: [] for writer in group}

    def write(writer: int, store: Objects) -> None:
        for number in range(rounds):
            key = _key(number, replace)
            before = store.get(key, within_s=WITHIN_S) if replace else None
            barrier.wait(WITHIN_S)
            answers[writer].append(_put(store, key, b"%d" % writer, before))

    threads = [threading.Thread(target=write, args=(writer, open_())) for writer in group]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _put(store: Objects, key: str, data: bytes, before: object) -> str:
    if isinstance(before, Found):
        done = store.put_if_version(key, data, before.version, within_s=WITHIN_S)
    else:
        done = store.put_if_absent(key, data, within_s=WITHIN_S)
    if isinstance(done, Written):
        return "written"
    return "conflict" if isinstance(done, Conflict) else str(done)


def _key(number: int, replace: bool) -> str:
    return f"trials/{'replaced' if replace else 'committed'}/{number}/COMMITTED"


def count_up(open_: Open, writers: int, each: int, pool: Executor) -> tuple[int, int]:
    """Each of `writers` adds 1 `each` times by compare and swap. What they say they added, and what is there."""
    store = open_()
    store.make(within_s=WITHIN_S)
    store.put_if_absent(COUNT, b"{}", within_s=WITHIN_S)
    added = sum(pool.map(_add, [open_] * writers, range(writers), [each] * writers))
    there = store.get(COUNT, within_s=WITHIN_S)
    return added, sum(_counts(there.data).values()) if isinstance(there, Found) else -1


def _add(open_: Open, writer: int, times: int) -> int:
    """One writer's own count is part of the document: after an answer that is none, it reads whether its put landed."""
    store, added = open_(), 0
    while added < times:
        there = store.get(COUNT, within_s=WITHIN_S)
        if not isinstance(there, Found):
            continue
        counts = _counts(there.data)
        added = max(added, counts.get(str(writer), 0)) if counts else added
        following = json.dumps(counts | {str(writer): added + 1}).encode()
        done = store.put_if_version(COUNT, following, there.version, within_s=WITHIN_S)
        added += isinstance(done, Written)
    return added


def _counts(data: bytes) -> dict[str, int]:
    try:
        return {str(writer): int(count) for writer, count in json.loads(data).items()}
    except (ValueError, AttributeError, TypeError):
        return {}  # torn
