"""Random saves, damaged in random ways: none passes against its manifest, neither a check nor the making of a view.

Kinds of damage: bytes, sizes, chunks, files, names, links, modes. Each returns when the save is another one than before.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from policies.facts import CheckpointPhase
from supervisor.bench import fake_saves
from supervisor.bench.fake_saves import Chunk, Object
from supervisor.bench.proofs.work import Work
from supervisor.checkpoints.manifest import Manifest, parse_manifest
from supervisor.checkpoints.reading.findings import Verdict
from supervisor.checkpoints.reading.listed import listed
from supervisor.checkpoints.reading.verifying import Options, verify
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId, Tree
from supervisor.errors import NotRestorable, UserError

SAVES = 250
EACH = 8
"""Damaged copies of each save: 2,000 in all."""
STEP = 40
NAME: Final = f"iter_{STEP:07d}"
Damage = Callable[["Sealed", random.Random], None]
PASSED: Final = "passed"
LATER: Final = 4e9
"""The clock of the stores: nothing in them is young."""


def prove(work: Work, saves: int = SAVES, each: int = EACH) -> None:
    """`saves` random saves, each whole, and `each` damaged copies of it."""
    rng = random.Random(work.seed)
    seeds = [rng.randrange(1 << 60) for _ in range(saves)]
    told: Counter[str] = Counter()
    passed: list[str] = []
    wrong: list[str] = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = pool.map(lambda seed: one_save(work.path(f"{seed}"), seed, each), seeds)
        for number, (whole, found) in enumerate(results, 1):
            if whole:
                wrong.append(whole)
            for kind, outcome in found:
                told[f"{kind}: {outcome}"] += 1
                if outcome == PASSED:
                    passed.append(kind)
            if number % 25 == 0:
                work.say(f"{number} of {saves} saves, {number * each} damaged copies")
    careless = sum(count for kind, count in told.items() if kind.endswith("seen by names and sizes: no"))
    total = saves * each
    judged = {kind: count for kind, count in sorted(told.items()) if "names and sizes" not in kind}
    work.measured |= {"saves": saves, "damaged copies": total, "by kind": judged}
    work.check(f"{saves} whole saves are complete, with their manifest and without: {wrong[:3]}", ok=not wrong)
    work.check(f"{total} damaged copies: {len(passed)} pass against their manifest: {passed[:5]}", ok=not passed)
    kinds = {kind.partition(":")[0] for kind in told}
    work.check(f"each of {len(DAMAGE)} kinds of damage was done", ok=total < 10 * len(DAMAGE) or kinds == set(DAMAGE))
    work.check(f"planted: a check of names and sizes alone lets {careless} of them pass", ok=careless > 0)


def one_save(root: str, seed: int, each: int) -> tuple[str, list[tuple[str, str]]]:
    """Why the whole one was not complete, or nothing; and for each damaged copy its kind and what was said of it."""
    choose = random.Random(seed)
    megatron = choose.random() < 0.5
    try:
        one = sealed(root, choose, megatron=megatron)
        alone = verify(one.folder, Options(lag_s=0.0, threads=1))
        if alone.verdict is not Verdict.COMPLETE or one.judge(100) != PASSED:
            return f"seed {seed}: {alone.findings}", []
        found = []
        whole = os.path.join(root, "whole")
        shutil.copytree(one.folder, whole)
        for number in range(each):
            kind = damaged(one, choose)
            found.append((kind, one.judge(number)))
            found.append((kind, f"seen by names and sizes: {'yes' if one.seen_by_sizes() else 'no'}"))
            open_again(root)
            shutil.rmtree(one.folder)
            shutil.copytree(whole, one.folder)
    finally:
        open_again(root)
        shutil.rmtree(root, ignore_errors=True)
    return "", found


@dataclass(frozen=True, slots=True)
class Sealed:
    """A random save in a store, sealed: its folder, what it was written from, and what the seal says."""

    store: PosixStore
    folder: str
    items: list[Chunk | Object]
    manifest: Manifest
    megatron: bool

    def judge(self, attempt: int) -> str:
        """`passed` when a check against the manifest or the making of a view takes it; else the verdict."""
        verdict = verify(self.folder, Options(listed(self.manifest), lag_s=0.0, threads=1)).verdict
        try:
            self.store.make_view(attempt + 1, self.manifest.id)
            viewed = True
        except NotRestorable:
            viewed = False
        return PASSED if verdict is Verdict.COMPLETE or viewed else verdict.value

    def seen_by_sizes(self) -> bool:
        """Would a check of names and sizes see it?"""
        sizes = {name: entry.size for name, entry in self.manifest.files.items()}
        try:
            return {one.name: one.stat(follow_symlinks=False).st_size for one in os.scandir(self.folder)} != sizes
        except PermissionError:
            return True


def sealed(root: str, choose: random.Random, *, megatron: bool) -> Sealed:
    """Write a random save and seal it. Raises UserError when it is not completed."""
    store = PosixStore(os.path.join(root, "store"), 1, lambda: LATER, settle_s=0.0, threads=1)
    store.create()
    folder = os.path.join(store.save_dir(1), NAME)
    items = fake_saves.random_items(choose, files=choose.randrange(1, 5), tensors=choose.randrange(1, 5))
    if megatron:
        items.append(Object("common_state/shard_0_1", "__0_0.distcp", fake_saves.common_state(STEP, 320, 38, 0.001)))
    fake_saves.write(folder, items, iteration=STEP, megatron=megatron)
    name = SaveId(1, STEP)
    state = store.seal(str(name))
    if state.phase is not CheckpointPhase.COMPLETED:
        raise UserError(f"a whole save is {state.phase}: {state.reasons}", 1)
    with open(Tree(os.path.join(root, "store")).mark(name, "manifest.json"), "rb") as file:
        return Sealed(store, folder, items, parse_manifest(name, file.read()), megatron)


def damaged(one: Sealed, choose: random.Random, kinds: Sequence[str] = ()) -> str:
    """Damage a save until it is another one; the kind of the last damage."""
    before = everything(one.folder)
    while True:
        kind = choose.choice(kinds or sorted(DAMAGE))
        DAMAGE[kind](one, choose)
        if everything(one.folder) != before:
            return kind


def everything(folder: str) -> Mapping[str, tuple[object, ...]]:
    """All that makes a save: each name with its kind, mode and content; also of the folder itself."""
    found: dict[str, tuple[object, ...]] = {"": (os.stat(folder).st_mode,)}
    names: list[str] = []
    with suppress(PermissionError):  # closed, and we are not root
        names = os.listdir(folder)
    for name in names:
        path = os.path.join(folder, name)
        mode = os.lstat(path).st_mode
        content = os.readlink(path) if stat.S_ISLNK(mode) else _bytes(path) if stat.S_ISREG(mode) else ""
        found[name] = (mode, content)
    return found


def open_again(root: str) -> None:
    """Give back what was closed, so that it can be removed by whoever is not root."""
    for folder, _, _ in os.walk(root):
        os.chmod(folder, 0o700)


# --- kinds of damage: bytes and sizes ------------------------------------------------------------------------------------


def _any(one: Sealed, choose: random.Random) -> str:
    return os.path.join(one.folder, choose.choice(sorted(os.listdir(one.folder))))


def _bytes(path: str) -> bytes:
    """The content; nothing when its mode forbids that."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except PermissionError:
        return b""


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def flip_a_bit(one: Sealed, choose: random.Random) -> None:
    """One bit of one file."""
    path = _any(one, choose)
    data = bytearray(_bytes(path))
    data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    _write(path, bytes(data))


def other_bytes(one: Sealed, choose: random.Random) -> None:
    """Up to 64 bytes anywhere."""
    path = _any(one, choose)
    data = bytearray(_bytes(path))
    at = choose.randrange(len(data))
    size = min(choose.randrange(1, 64), len(data) - at)
    data[at : at + size] = choose.randbytes(size)
    _write(path, bytes(data))


def a_hole(one: Sealed, choose: random.Random) -> None:
    """Zeros, as a block that a file system has lost; the size stays."""
    path = _any(one, choose)
    size = os.path.getsize(path)
    at = choose.randrange(size)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes(min(choose.randrange(1, 4097), size - at)))


def shorten(one: Sealed, choose: random.Random) -> None:
    """A file is cut, perhaps to nothing."""
    path = _any(one, choose)
    os.truncate(path, choose.randrange(os.path.getsize(path)))


def lengthen(one: Sealed, choose: random.Random) -> None:
    """A file goes on."""
    with open(_any(one, choose), "ab") as file:
        file.write(bytes(choose.randrange(1, 5000)))


def swap_parts(one: Sealed, choose: random.Random) -> None:
    """Two parts of one file change places, as chunks that were written to each other's offset."""
    path = _any(one, choose)
    data = _bytes(path)
    size = choose.randrange(1, max(2, len(data) // 3))
    first = choose.randrange(max(1, len(data) - 2 * size))
    second = choose.randrange(first + size, max(first + size + 1, len(data) - size + 1))
    parts = data[:first], data[second : second + size], data[first + size : second], data[first : first + size]
    _write(path, b"".join(parts) + data[second + size :])


# --- files, names, links, modes ------------------------------------------------------------------------------------------


def remove(one: Sealed, choose: random.Random) -> None:
    """A file is gone."""
    os.unlink(_any(one, choose))


def copy_over(one: Sealed, choose: random.Random) -> None:
    """A file has the content of another."""
    _write(_any(one, choose), _bytes(_any(one, choose)))


def stray(one: Sealed, choose: random.Random) -> None:
    """Something that the save does not have."""
    name = choose.choice(["__99_0.distcp", "common.pt", "notes.txt", ".metadata.tmp", "__0.metadata", "sub"])
    if name == "sub":
        os.mkdir(os.path.join(one.folder, name))
    else:
        _write(os.path.join(one.folder, name), b"stray")


def no_plain_file(one: Sealed, choose: random.Random) -> None:
    """A folder or a pipe under a file's name."""
    path = _any(one, choose)
    os.unlink(path)
    choose.choice([os.mkdir, os.mkfifo])(path)


def rename(one: Sealed, choose: random.Random) -> None:
    """Another name, near or far."""
    path = _any(one, choose)
    name = os.path.basename(path)
    os.rename(
        path, os.path.join(one.folder, choose.choice([f"{name}.bak", f"{name} ", name.upper() + "_", "__7_7.distcp"]))
    )


def swap_names(one: Sealed, choose: random.Random) -> None:
    """Two files have each other's name."""
    first, second = _any(one, choose), _any(one, choose)
    aside = f"{one.folder}.aside"
    os.rename(first, aside)
    if os.path.exists(second):
        os.rename(second, first)
        os.rename(aside, second)
    else:
        os.rename(aside, first)


def symlink(one: Sealed, choose: random.Random) -> None:
    """A link: to the same content elsewhere, to nowhere, to itself."""
    path = _any(one, choose)
    elsewhere = f"{one.folder}.elsewhere"
    os.rename(path, elsewhere)
    os.symlink(choose.choice([elsewhere, "nowhere", os.path.basename(path)]), path)


def hard_link(one: Sealed, choose: random.Random) -> None:
    """Two names of one file."""
    first, second = _any(one, choose), _any(one, choose)
    if first != second:
        os.unlink(second)
        os.link(first, second)


def close(one: Sealed, choose: random.Random) -> None:
    """A mode that keeps its owner from reading it."""
    os.chmod(_any(one, choose), choose.choice([0, 0o100, 0o200, 0o044]))


def close_folder(one: Sealed, choose: random.Random) -> None:
    """The same for the folder."""
    os.chmod(one.folder, choose.choice([0o300, 0o200, 0]))


# --- chunks --------------------------------------------------------------------------------------------------------------


def rewrite(one: Sealed, choose: random.Random) -> None:
    """The save written anew with one chunk changed, moved, lost or doubled: whole in itself, perhaps, and another one."""
    changed = list(one.items)
    at = choose.choice([at for at, item in enumerate(one.items) if isinstance(item, Chunk)])
    chunk = changed[at]
    assert isinstance(chunk, Chunk)  # noqa: S101 - chosen among them
    match choose.choice(["content", "file", "lost", "doubled", "order"]):
        case "content":
            data = bytes(byte ^ 1 for byte in chunk.bytes)
            changed[at] = replace(chunk, data=data)
        case "file":
            changed[at] = replace(chunk, file="__5_0.distcp")
        case "lost":
            del changed[at]
        case "doubled":
            changed.append(chunk)
        case _:
            choose.shuffle(changed)
    shutil.rmtree(one.folder)
    fake_saves.write(one.folder, changed, iteration=STEP, megatron=one.megatron)


DAMAGE: Final[Mapping[str, Damage]] = {
    "a bit": flip_a_bit, "bytes": other_bytes, "a hole": a_hole, "short": shorten, "long": lengthen, "parts swapped": swap_parts,
    "chunks": rewrite, "removed": remove, "copied over": copy_over, "stray": stray, "no plain file": no_plain_file,
    "renamed": rename, "names swapped": swap_names, "symlink": symlink, "hard link": hard_link, "closed": close,
    "folder closed": close_folder,
}  # fmt: skip
