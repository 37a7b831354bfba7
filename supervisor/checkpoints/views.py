"""The load directory of an attempt: one link to one verified save, and the tracker that the framework reads."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping

from supervisor import durable
from supervisor.checkpoints import posix
from supervisor.checkpoints.manifest import LATE, Committed, FileEntry, Manifest
from supervisor.checkpoints.places import ADOPTED
from supervisor.checkpoints.posix import stamp_of
from supervisor.checkpoints.reading import agreement
from supervisor.checkpoints.reading.by_threads import ReadFiles
from supervisor.checkpoints.reading.content import Job
from supervisor.checkpoints.reading.findings import Finding, Weight
from supervisor.checkpoints.reading.folder import look_at
from supervisor.checkpoints.reading.listed import listed
from supervisor.checkpoints.reading.throttle import Throttle
from supervisor.checkpoints.sidecars import FOLDER
from supervisor.checkpoints.tree import SaveId, Tree, attempt_of, copy_of, step_name, step_of

TRACKER = "latest_checkpointed_iteration.txt"
_ALWAYS = frozenset({".metadata", "common.pt"})


class ViewTakenError(Exception):
    """The attempt already has a view, and it leads elsewhere."""


def damage(path: str, manifest: Manifest, budget: int | None, seed: str, reader: ReadFiles) -> tuple[Finding, ...]:
    """Compare a save's folder with its manifest; empty when they agree. Raises OSError, ReaderFault.

    `budget`: bytes of content to read; None reads all. A sample depends on `seed` alone, so that it can be repeated. What
    the metadata says was held against the files when the save was sealed: with the same names, sizes and sums it still holds.
    """
    found = seen_damage(path, manifest)
    return found or tuple(content_damage(path, sample(manifest.files, budget, seed), manifest, reader))


def seen_damage(path: str, manifest: Manifest) -> tuple[Finding, ...]:
    """What names and sizes show to be wrong, before anything is read. Raises OSError."""
    try:
        look = look_at(path)
    except (FileNotFoundError, NotADirectoryError):
        return (Finding("MISSING_FILE", "", "the save's folder is gone"),)
    return _that_count((*look.findings, *agreement.against(look, listed(manifest))), manifest)


def _that_count(findings: Iterable[Finding], manifest: Manifest) -> tuple[Finding, ...]:
    """Without what the framework may write after the seal, and what the view repairs."""
    excused = {("STRAY_FILE", name) for name in LATE} | {("BAD_METADATA_JSON", name) for name in manifest.repairs}
    return tuple(f for f in findings if f.weight is not Weight.NOTE and (f.code, f.path) not in excused)


def content_damage(
    path: str, names: list[str], manifest: Manifest, reader: ReadFiles, throttle: Throttle | None = None
) -> list[Finding]:
    """Sums that are not those of the manifest. What is not there is told by whoever looks at the names.

    Raises CancelledError when the throttle was cancelled.
    """
    jobs = []
    for name in names:
        try:
            jobs.append(Job(name, stamp_of(os.lstat(os.path.join(path, name))), xxh3=manifest.files[name].xxh3))
        except (FileNotFoundError, NotADirectoryError):
            continue
    return [finding for one in reader.read(path, None, jobs, lambda _: None, throttle) for finding in one.findings]


def sample(files: Mapping[str, FileEntry], budget: int | None, seed: str) -> list[str]:
    """Which files to read within `budget` bytes: metadata and state always, the others in an order that `seed` gives. Pure."""
    if budget is None:
        return list(files)

    def lot(name: str) -> tuple[bool, bytes]:
        return name not in _ALWAYS, hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()

    chosen: list[str] = []
    for name in sorted(files, key=lot):
        if chosen and name not in _ALWAYS and files[name].size > budget:
            continue
        chosen.append(name)
        budget -= files[name].size
    return chosen


def build(tree: Tree, attempt: int, committed: Committed | None, step: posix.Step) -> None:
    """Make the view of a save, or finish one that was begun for the same save. Raises ViewTakenError, OSError.

    It is made aside and renamed into place, so that an empty view always means a start from nothing. One that leads to
    where this save lay before, as when it has come back from the archive since, is made anew.
    """
    path = tree.view(attempt)
    if committed is not None and _leads_elsewhere(tree, attempt, committed):
        drop(tree, attempt)
    if committed is None:
        posix.make_folder(path)
    elif not _named(path):
        aside = f"{path}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
        os.mkdir(aside, 0o700)
        try:
            _fill(aside, committed, step)
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
    if not _named(path) <= ({step_name(committed.manifest.step), TRACKER} if committed else set()):
        raise ViewTakenError(f"the view of attempt {attempt} already leads elsewhere")
    if committed is not None:
        _fill(path, committed, step)


def _fill(path: str, committed: Committed, step: posix.Step) -> None:
    """Link first, tracker last; links into the store are relative, so that it can be moved."""
    manifest = committed.manifest
    entry = os.path.join(path, step_name(manifest.step))
    if manifest.repairs:
        _fill_repaired(entry, committed, step)
    else:
        _link(entry, committed.place.link)
    step("after link")
    durable.sync_folder(path)
    posix.create_whole(os.path.join(path, TRACKER), str(manifest.step).encode(), step)
    if posix.read_bounded(os.path.join(path, TRACKER), 100) != str(manifest.step).encode():
        raise ViewTakenError(f"{path} already tracks another save")


def _fill_repaired(folder: str, committed: Committed, step: posix.Step) -> None:
    """A folder of links to each file, and beside them the files that the data lacks: the data itself is never written."""
    manifest, place = committed.manifest, committed.place
    above = "" if os.path.isabs(place.link) else "../"
    # What the ranks left beside the data is no part of it, and does not come back from an archive.
    beside = [FOLDER] if manifest.ranks and posix.exists(os.path.join(place.data, FOLDER)) else []
    if os.path.islink(folder):  # through it we would write into the data
        raise ViewTakenError(f"{folder} already leads to a save")
    try:
        posix.make_folder(folder)
        for name in (*manifest.files, *beside):
            _link(os.path.join(folder, name), f"{above}{place.link}/{name}")
        for name, text in manifest.repairs.items():
            posix.create_whole(os.path.join(folder, name), text.encode(), step)
            if posix.read_bounded(os.path.join(folder, name), len(text.encode())) != text.encode():
                raise ViewTakenError(f"{folder} already holds another {name}")
    except NotADirectoryError:
        raise ViewTakenError(f"{folder} already is something else") from None
    durable.sync_folder(folder)


def _link(place: str, leads_to: str) -> None:
    try:
        os.symlink(leads_to, place)
    except FileExistsError:
        if not os.path.islink(place) or os.readlink(place) != leads_to:
            raise ViewTakenError(f"{os.path.dirname(place)} already leads to another save") from None


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
    led = _led(path)
    if led is None:
        return None
    name, link = led
    step = step_of(name)
    if os.path.isabs(link):
        saved_by: int | None = ADOPTED
    else:
        above, _, below = link.rpartition("/")
        copy = copy_of(os.path.basename(above))
        saved_by = copy[0].attempt if copy else attempt_of(os.path.basename(above))
        step = step if below == name else None
    if saved_by is None or step is None:
        raise ValueError(f"{path} leads to no save")
    return str(SaveId(saved_by, step))


def _led(path: str) -> tuple[str, str] | None:
    """The entry of a view, and the folder of the save that it leads to, from the view; None for an empty view."""
    links = [name for name in _named(path) if name != TRACKER]
    if not links:
        return None
    entry = os.path.join(path, links[0])
    if os.path.islink(entry):
        return links[0], os.readlink(entry)
    # A save with repairs has a folder of links, each to a file of the same save.
    inside = os.path.dirname(os.readlink(os.path.join(entry, ".metadata")))
    return links[0], inside if os.path.isabs(inside) else inside.removeprefix("../")


def _leads_elsewhere(tree: Tree, attempt: int, committed: Committed) -> bool:
    """Does the view lead to this very save, and to another place?"""
    try:
        led = _led(tree.view(attempt))
        same = led is not None and target(tree, attempt) == committed.manifest.id
    except (OSError, ValueError):
        return False
    return same and led is not None and led[1] != committed.place.link


def _whole(path: str) -> bool:
    names = _named(path)
    if not names:
        return True
    steps = [step_of(name) for name in names - {TRACKER}]
    if len(names) != 2 or TRACKER not in names or steps[0] is None:
        return False
    return posix.read_bounded(os.path.join(path, TRACKER), 100) == str(steps[0]).encode()
