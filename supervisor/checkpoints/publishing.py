"""completed.json and `latest`: what the marks say, written where other tools look.

The marks are the truth. The list follows them, and a crash between the two is healed by the next call.
"""

from __future__ import annotations

import contextlib
import os

from pydantic import ValidationError

from supervisor.checkpoints import places, posix
from supervisor.checkpoints.manifest import RECORD_LIMIT, CompletedList, UnsoundError, read_outcome, read_restored
from supervisor.checkpoints.tree import SaveId, Tree

_ROUNDS = 32


def read_list(tree: Tree) -> CompletedList:
    """The published list; an empty one of generation 0 before the first, and when what is there is no list.

    Raises OSError.
    """
    try:
        return CompletedList.model_validate_json(posix.read_bounded(tree.completed, 16 * RECORD_LIMIT))
    except (FileNotFoundError, ValidationError):
        return CompletedList(generation=0, completed=())


def read_latest(tree: Tree) -> str | None:
    """The published pointer; None when there is none. Raises OSError."""
    try:
        text = posix.read_bounded(tree.latest, 100).decode("ascii", "replace").strip()
        return str(SaveId.parse(text))
    except (FileNotFoundError, ValueError):
        return None


def publish(tree: Tree, step: posix.Step) -> None:
    """Bring list and pointer up to the marks. Raises OSError.

    It looks again after it has written: of two that publish at once, the one that wrote an older list sees it.
    """
    for _ in range(_ROUNDS):
        published = read_list(tree)  # before the marks: what is found then is at least as new
        wanted = _wanted(tree, published.completed)
        newest = max(wanted, key=SaveId.parse) if wanted else None  # a late seal of an older save is not the newest
        current = published.completed == wanted and (published.generation > 0 or not wanted)
        if current and read_latest(tree) == newest:
            return
        if not current:
            following = CompletedList(generation=published.generation + 1, completed=wanted)
            posix.replace_whole(tree.completed, following.to_bytes(), step)
        if newest is not None:
            posix.replace_whole(tree.latest, f"{newest}\n".encode(), step)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(tree.latest)
    raise OSError(11, "is being rewritten by somebody else all the time", tree.completed)


def _wanted(tree: Tree, published: tuple[str, ...]) -> tuple[str, ...]:
    """The completed saves: those published keep their order, new ones follow in the order of completion."""
    # Both folders must be there: a store that has just vanished must not be published as an empty one.
    deleted = set(os.listdir(tree.deleted))
    standing: list[str] = []
    fresh: list[tuple[float, SaveId]] = []
    for name in sorted({*os.listdir(tree.seals), *map(str, places.spoken_of(tree))}):
        try:
            save = SaveId.parse(name)
            place = places.find(tree, save)
            marks = set(posix.names_in(place.marks))
        except (ValueError, OSError):
            # What can't be read is left as it was published.
            standing += [name] if name in published and name not in deleted else []
            continue
        came_back = place.kind == "restored"
        if not came_back and (name in deleted or "COMMITTED" not in marks or marks & {"BROKEN", "ABANDONED"}):
            continue
        if name in published:
            standing.append(name)
            continue
        try:
            if came_back:
                at: float | None = read_restored(place.mark(places.RESTORED)).completed_at
            else:
                at = read_outcome(place.mark("COMMITTED")).completed_at
            fresh.append((at or 0.0, save))
        except (OSError, UnsoundError):
            continue  # not believed, so not published
    known = set(standing)
    return (*(name for name in published if name in known), *(str(save) for _, save in sorted(fresh)))
