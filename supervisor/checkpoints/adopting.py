"""Taking in a save from before relight, where it lies. Nothing is written there, and nothing of it is ever deleted by us."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from supervisor import durable
from supervisor.checkpoints import places, posix, sealing
from supervisor.checkpoints.manifest import UnsoundError
from supervisor.checkpoints.places import Adopted
from supervisor.checkpoints.reading.folder import NoCheckpointError, locate
from supervisor.checkpoints.tree import SaveId, Tree, step_name
from supervisor.errors import NotRestorable


@dataclass(frozen=True, slots=True)
class Outside:
    """A save outside of the store: the absolute path of its folder, links resolved, and its iteration."""

    path: str
    step: int


def locate_outside(tree: Tree, path: str) -> Outside:
    """The save at `path`, or below it. Raises NotRestorable where there is none that may be adopted, OSError."""
    try:
        found = locate(path)
    except NoCheckpointError as error:
        raise NotRestorable(f"{path}: {error}") from None
    store = os.path.realpath(tree.root)
    if os.path.commonpath([store, found.folder]) in {store, found.folder}:
        raise NotRestorable(f"{found.folder} is in this run's own store; what ranks wrote there is sealed, not adopted")
    if found.iteration is None:
        raise NotRestorable(f"{found.folder}: the folder of an iteration is named like {step_name(40)}")
    return Outside(found.folder, found.iteration)


def require_free(tree: Tree, save: SaveId, path: str) -> None:
    """Raises NotRestorable when this iteration was deleted here, or adopted from elsewhere; OSError."""
    if posix.exists(tree.tombstone(save)):
        raise NotRestorable(f"{save} was adopted before and deleted by retention; an id is never used again")
    standing = places.adopted_path(tree, save)
    if standing not in {None, path}:
        raise NotRestorable(f"iteration {save.step} is already adopted, from {standing}")


def claim(tree: Tree, save: SaveId, path: str, step: posix.Step) -> None:
    """Write down where it lies; of two who adopt the same iteration the first stands. Raises NotRestorable, OSError.

    The folder of the seal is made aside, with PLACE in it: without it, it would be the seal of a save that was never written.
    """
    aside = f"{tree.seal(save)}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    os.mkdir(aside, 0o700)
    try:
        record = Adopted(path=path).model_dump_json(by_alias=True).encode() + b"\n"
        posix.create_whole(os.path.join(aside, "PLACE"), record, step)
        os.rename(aside, tree.seal(save))
    except OSError as error:
        if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    durable.sync_folder(tree.seals)
    step("after claim")
    require_free(tree, save, path)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """What a check finds, as the reasons why it can't be adopted. Raises NotRestorable."""
    try:
        yield
    except sealing.NotYetError as error:
        raise NotRestorable(*error.reasons, not_yet=True) from None
    except UnsoundError as error:
        raise NotRestorable(*sealing.shorten(tuple(map(str, error.args)))) from None
