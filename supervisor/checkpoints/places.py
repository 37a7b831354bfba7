"""Where the data of a save lies: where its ranks wrote it, in a copy that came back from an archive, or where it was adopted.

A restored copy is whole in itself: its folder `restored/ID.K` holds the data, the manifest, and what is said of it. It counts
from the moment at which RESTORED is there, until BROKEN is. The highest such copy stands before what the ranks wrote: it
was fetched because that was of no use. Adopted data lies outside of the store and belongs to others: it is read and never changed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from supervisor import durable
from supervisor.checkpoints import posix
from supervisor.checkpoints.tree import SaveId, Tree, copy_of, step_name

RESTORED: Final = "RESTORED"
BROKEN: Final = "BROKEN"
REMOVED: Final = "RESTORED.removed"
"""What RESTORED becomes when retention takes a copy away: no reader takes it for the mark."""
ADOPTED: Final = 0
"""The attempt in the id of an adopted save: attempts of a run begin at 1."""
IDLE_S: Final = 86400.0
"""Seconds after which a half copy that nobody has added to is nobody's any more."""
_PLACE_LIMIT: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class Place:
    """`data`: the folder of its files. `marks`: the folder of what is said of it here. `link`: how a view leads to `data`."""

    kind: Literal["saved", "restored", "adopted"]
    data: str
    marks: str
    link: str

    def mark(self, name: str) -> str:
        """One file of what is said of it."""
        return os.path.join(self.marks, name)


class Adopted(BaseModel):
    """PLACE in the seal of an adopted save."""

    model_config = ConfigDict(frozen=True, strict=True, populate_by_name=True)

    schema_: Literal[1] = Field(alias="schema", default=1)
    path: Annotated[str, StringConstraints(pattern=r"^/[^\x00]{1,4000}$")]


def find(tree: Tree, save: SaveId) -> Place:
    """Where this save's data lies now. Raises OSError when that can't be seen."""
    for number in reversed(numbers(tree, save)):
        if is_good(posix.names_in(tree.copy(save, number))):
            return restored(tree, save, number)
    return original(tree, save)


def original(tree: Tree, save: SaveId) -> Place:
    """Where it lay first: where its ranks wrote it, or where it was adopted. Raises OSError."""
    path = adopted_path(tree, save) if save.attempt == ADOPTED else None
    if path is not None:
        return Place("adopted", path, tree.seal(save), path)
    link = f"../../saves/a{save.attempt:04d}/{step_name(save.step)}"
    return Place("saved", tree.save(save), tree.seal(save), link)


def restored(tree: Tree, save: SaveId, number: int) -> Place:
    """The place of one restored copy, whether it is whole or not."""
    folder, name = tree.copy(save, number), step_name(save.step)
    return Place("restored", os.path.join(folder, name), folder, f"../../restored/{save}.{number}/{name}")


def adopted_path(tree: Tree, save: SaveId) -> str | None:
    """The absolute path from which a save was adopted; None when it was not. Raises OSError, also for a PLACE that is none."""
    path = tree.mark(save, "PLACE")
    try:
        return Adopted.model_validate_json(posix.read_bounded(path, _PLACE_LIMIT)).path
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValidationError:
        raise OSError(errno.EBADMSG, "is no record of where a save was adopted", path) from None


def is_good(names: Iterable[str]) -> bool:
    """Do these names, of a copy's folder, say that it is whole?"""
    return RESTORED in names and BROKEN not in names


def numbers(tree: Tree, save: SaveId) -> list[int]:
    """The numbers of the restored copies of a save, rising, whatever they are worth. Raises OSError."""
    found = filter(None, map(copy_of, posix.names_in(tree.restored)))
    return sorted(number for of, number in found if of == save)


def taken(tree: Tree, save: SaveId) -> list[int]:
    """The numbers that no new copy may have: also those of copies that are just being removed. Raises OSError."""
    names = (name.removesuffix(".gone") for name in posix.names_in(tree.restored))
    return sorted(number for of, number in filter(None, map(copy_of, names)) if of == save)


def spoken_of(tree: Tree) -> set[SaveId]:
    """The saves of which there is a copy that is whole or was found broken; a half one says nothing yet. Raises OSError."""
    found = filter(None, map(copy_of, posix.names_in(tree.restored)))
    return {save for save, number in found if {RESTORED, BROKEN} & set(posix.names_in(tree.copy(save, number)))}


def condemned(tree: Tree, save: SaveId) -> Place | None:
    """The newest restored copy, if it was found broken. Raises OSError."""
    last = numbers(tree, save)[-1:]
    return restored(tree, save, last[0]) if last and BROKEN in posix.names_in(tree.copy(save, last[0])) else None


def is_away(place: Place) -> bool:
    """Adopted data that is not there may only be out of sight: where it lies, others mount and unmount. Raises OSError."""
    return place.kind == "adopted" and not posix.exists(place.data)


def take_away(tree: Tree, save: SaveId, step: posix.Step) -> list[int]:
    """Take the mark of every whole copy of a save away, and return their numbers: nobody sees them then. Raises OSError."""
    taken = []
    for number in numbers(tree, save):
        marks = tree.copy(save, number)
        step(f"before removing {RESTORED}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(marks, RESTORED), os.path.join(marks, REMOVED))
            durable.sync_folder(marks)
            taken.append(number)
        step(f"after removing {RESTORED}")
    return taken


def put_back(tree: Tree, save: SaveId, taken: Iterable[int]) -> None:
    """Have them seen again. Raises OSError."""
    for number in taken:
        marks = tree.copy(save, number)
        os.rename(os.path.join(marks, REMOVED), os.path.join(marks, RESTORED))
        durable.sync_folder(marks)


def superfluous(tree: Tree, protect: frozenset[str], now: float) -> list[tuple[SaveId, int]]:
    """Copies that take room for nothing: taken away, found broken, or left half by somebody who is gone. Raises OSError.

    `now`: wall seconds. Only what no reader counts is ever among them.
    """
    found = [copy for copy in filter(None, map(copy_of, posix.names_in(tree.restored))) if str(copy[0]) not in protect]
    return [copy for copy in found if _is_over(tree, *copy, now)]


def _is_over(tree: Tree, save: SaveId, number: int, now: float) -> bool:
    folder = tree.copy(save, number)
    names = set(posix.names_in(folder))
    if RESTORED in names:
        return BROKEN in names
    if {REMOVED, BROKEN} & names:
        return True
    touched = [os.lstat(os.path.join(folder, name)).st_mtime for name in names] + [os.lstat(folder).st_mtime]
    return now - max(touched) > IDLE_S


def remove(tree: Tree, save: SaveId, number: int, step: posix.Step) -> None:
    """Remove a superfluous copy: its data first, what is said of it last. Raises OSError."""
    place = restored(tree, save, number)
    step("before removing a copy")
    # Its folder gets another name at once, so that whoever still fills a half copy finds it gone, not half gone.
    gone = f"{place.marks}.gone"
    os.rename(place.marks, gone)
    posix.remove_save(os.path.join(gone, os.path.basename(place.data)))
    shutil.rmtree(gone)
    step("after removing a copy")


def sweep(tree: Tree) -> None:
    """Finish removals that were cut off. Raises OSError."""
    for name in posix.names_in(tree.restored):
        if name.endswith(".gone") and copy_of(name.removesuffix(".gone")):
            shutil.rmtree(os.path.join(tree.restored, name))
