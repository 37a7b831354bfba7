"""The load directory of an attempt: one link to one verified save, and the tracker that the framework reads."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Mapping

from supervisor import durable
from supervisor.checkpoints import posix
from supervisor.checkpoints.manifest import FileEntry, Manifest
from supervisor.checkpoints.posix import Stamp
from supervisor.checkpoints.sums import ChangedError, sum_files
from supervisor.checkpoints.survey import survey
from supervisor.checkpoints.tree import SaveId, Tree, attempt_of, step_name, step_of

TRACKER = "latest_checkpointed_iteration.txt"
_LATE = frozenset({"metadata.json", "integrity.json"})
"""Megatron writes these after `.metadata`, so they may have come after the seal; no loader takes state from them."""


class ViewTakenError(Exception):
    """The attempt already has a view, and it leads elsewhere."""


def damage(path: str, manifest: Manifest, budget: int | None, seed: str, threads: int) -> list[str]:
    """Compare a save's folder with its manifest; empty when they agree. Raises OSError when it can't be seen.

    `budget`: bytes of content to read; None reads all. A sample depends on `seed` alone, so that it can be repeated.
    """
    try:
        seen = survey(path)
    except (FileNotFoundError, NotADirectoryError):
        return ["the save's folder is gone"]
    problems = list(seen.problems)
    for name, entry in manifest.files.items():
        if name not in seen.files:
            problems.append(f"{name!r} is missing")
        elif seen.files[name].size != entry.size:
            problems.append(f"{name!r} has {seen.files[name].size} bytes, not {entry.size}")
    # A loader may take a file that nobody verified before those that were (Megatron prefers a stray common.pt).
    extra = sorted(set(seen.files) - set(manifest.files) - _LATE)
    problems += [f"{name!r} is not in the manifest" for name in extra]
    return problems or _content_damage(path, manifest, seen.files, sample(manifest.files, budget, seed), threads)


def _content_damage(
    path: str, manifest: Manifest, stamps: Mapping[str, Stamp], names: list[str], threads: int
) -> list[str]:
    try:
        sums = sum_files(path, {name: stamps[name] for name in names}, threads)
    except ChangedError as error:
        return [str(error)]
    return [
        f"{name!r} is not what was sealed (xxh3 {sums[name]}, not {manifest.files[name].xxh3})"
        for name in names
        if sums[name] != manifest.files[name].xxh3
    ]


def sample(files: Mapping[str, FileEntry], budget: int | None, seed: str) -> list[str]:
    """Which files to read within `budget` bytes: `.metadata` always, the others in an order that `seed` gives. Pure."""
    if budget is None:
        return list(files)

    def lot(name: str) -> tuple[bool, bytes]:
        return name != ".metadata", hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()

    chosen: list[str] = []
    for name in sorted(files, key=lot):
        if chosen and files[name].size > budget:
            continue
        chosen.append(name)
        budget -= files[name].size
    return chosen


def build(tree: Tree, attempt: int, save: SaveId | None, step: posix.Step) -> None:
    """Make the view, or finish one that was begun for the same save. Raises ViewTakenError, OSError.

    It is made aside and renamed into place, so that an empty view always means a start from nothing.
    """
    path = tree.view(attempt)
    if save is None:
        posix.make_folder(path)
    elif not _named(path):
        aside = f"{path}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
        os.mkdir(aside, 0o700)
        try:
            _fill(aside, save, step)
            step("before view")
            os.rename(aside, path)  # POSIX lets it replace an empty folder, and refuses one that is not
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        durable.sync_folder(tree.views)
        step("after view")
    if not _named(path) <= ({step_name(save.step), TRACKER} if save else set()):
        raise ViewTakenError(f"the view of attempt {attempt} already leads elsewhere")
    if save is not None:
        _fill(path, save, step)


def _fill(path: str, save: SaveId, step: posix.Step) -> None:
    """Link first, tracker last; the link is relative, so that a store can be moved."""
    link = os.path.join(path, step_name(save.step))
    try:
        os.symlink(_target(save), link)
    except FileExistsError:
        if not os.path.islink(link) or os.readlink(link) != _target(save):
            raise ViewTakenError(f"{path} already leads to another save") from None
    step("after link")
    durable.sync_folder(path)
    posix.create_whole(os.path.join(path, TRACKER), str(save.step).encode(), step)
    if posix.read_bounded(os.path.join(path, TRACKER), 100) != str(save.step).encode():
        raise ViewTakenError(f"{path} already tracks another save")


def _named(path: str) -> set[str]:
    return {name for name in posix.names_in(path) if not name.endswith(".tmp")}


def drop(tree: Tree, attempt: int) -> None:
    """Remove the view of an attempt that has never been launched; the save stays. Raises OSError."""
    path = tree.view(attempt)
    if posix.exists(path):
        shutil.rmtree(path)  # a link is removed, never followed


def standing(tree: Tree) -> frozenset[int]:
    """The attempts whose view is whole: empty, or one link and a tracker that agree. Raises OSError."""
    found = {attempt_of(name): os.path.join(tree.views, name) for name in posix.names_in(tree.views)}
    return frozenset(attempt for attempt, path in found.items() if attempt is not None and _whole(path))


def target(tree: Tree, attempt: int) -> str | None:
    """The id of the save that a view leads to; None for an empty view. Raises OSError, ValueError for another link."""
    path = tree.view(attempt)
    links = [name for name in _named(path) if name != TRACKER]
    if not links:
        return None
    parts = os.readlink(os.path.join(path, links[0])).split("/")
    saved_by, step = attempt_of(parts[-2]), step_of(parts[-1])
    if saved_by is None or step is None:
        raise ValueError(f"{path} leads to no save")
    return str(SaveId(saved_by, step))


def _whole(path: str) -> bool:
    names = _named(path)
    if not names:
        return True
    steps = [step_of(name) for name in names - {TRACKER}]
    if len(names) != 2 or TRACKER not in names or steps[0] is None:
        return False
    return posix.read_bounded(os.path.join(path, TRACKER), 100) == str(steps[0]).encode()


def _target(save: SaveId) -> str:
    return f"../../saves/a{save.attempt:04d}/{step_name(save.step)}"
