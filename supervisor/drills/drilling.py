"""One drill from end to end: choose a save, bring it into a scratch place, read it, and as far as asked start from it."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from supervisor import drill_files
from supervisor.checkpoints.archive.carrying import Progress, no_progress
from supervisor.checkpoints.readers_store import StoreReading, by_threads
from supervisor.checkpoints.store import PosixStore
from supervisor.drill_files import Drill, Kind, Level
from supervisor.drills import fetching, training
from supervisor.errors import NotRestorable, UserError
from supervisor.rundir import RunDir
from supervisor.settings import Settings
from supervisor.stores import archive_of, open_store

VIEW_OF = 1
"""The first attempt of the scratch run: its view is what is read and loaded."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be tried. `checkpoint` empty: the newest. `scratch`: where; empty: below the run directory.

    `deadline_s`: for each of launch, load and update. `keep`: the scratch place stays. `beside`: the run trains now, so
    that its limit of reading holds.
    """

    kind: Kind
    level: Level
    checkpoint: str = ""
    scratch: str = ""
    deadline_s: float = 3600.0
    keep: bool = False
    beside: bool = False


@dataclass
class _Parts:
    """The seconds of each part, in order. `say` is told of each that begins."""

    say: Callable[[str], None]
    took: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self.say(name)
        began = time.monotonic()
        try:
            yield
        finally:
            self.took[name] = time.monotonic() - began


def drill(
    run: RunDir, settings: Settings, wish: Wish, say: Callable[[str], None], progress: Progress = no_progress
) -> Drill:
    """Run one and keep its record, whatever comes of it. Raises UserError where none can be begun, OSError.

    The run itself is not touched: its store is read, and nothing of it is changed.
    """
    began, parts, store = time.time(), _Parts(say), open_store(run, settings)
    with parts.part("choose"):
        chosen, size = _chosen(store, settings, wish)
    number = drill_files.begin(run)
    own = run.path(drill_files.FOLDER, f"{number:04d}")
    scratch, why = RunDir(own), ""
    try:
        scratch = RunDir(_scratch(wish.scratch, number) if wish.scratch else own)
        _bring(store, settings, scratch, wish, (chosen, size), parts, progress)
        if wish.level != "bytes":
            _train(settings, scratch, wish, chosen, parts)
    except (NotRestorable, UserError) as error:
        why = str(error)
    except OSError as error:
        why = f"{error.filename or scratch.root}: {error.strerror or error}"
    finally:
        _keep_log(scratch, f"{own}.log")
        if not wish.keep:
            shutil.rmtree(scratch.root, ignore_errors=True)
            shutil.rmtree(own, ignore_errors=True)
    one = Drill(
        number=number,
        kind=wish.kind,
        level=wish.level,
        checkpoint=chosen,
        bytes=size,
        began_at=began,
        ended_at=time.time(),
        parts=parts.took,
        ok=not why,
        why=why[:1000],
    )
    drill_files.keep(run, one)
    return one


def _scratch(above: str, number: int) -> str:
    """A folder that nobody else has: what is there already is somebody's, and runs may share a scratch place. Raises OSError."""
    above = os.path.abspath(above)
    os.makedirs(above, mode=0o700, exist_ok=True)
    while True:
        path = os.path.join(above, f"drill-{number:04d}")
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            number += 1
            continue
        return path


def _chosen(store: PosixStore, settings: Settings, wish: Wish) -> tuple[str, int]:
    """(id, bytes) of the save. Raises UserError."""
    archive = archive_of(settings, store) if wish.kind == "archive" else None
    if wish.kind == "archive" and archive is None:
        raise UserError("this run has no archive: [archive] place of relight.toml names one at the first start")
    seen = archive.scan() if archive is not None else store.scan()
    state = fetching.choose(seen, "archive" if archive is not None else "store", wish.checkpoint)
    return state.id, state.bytes


def _bring(
    store: PosixStore,
    settings: Settings,
    scratch: RunDir,
    wish: Wish,
    chosen: tuple[str, int],
    parts: _Parts,
    progress: Progress,
) -> None:
    """Into a store of its own, and a view of it made: that reads every byte, as before any start."""
    save, size = chosen
    own = settings.model_copy(
        update={"checkpoints": settings.checkpoints.model_copy(update={"dir": scratch.path("checkpoints")})}
    )
    place = open_store(scratch, own, reading_of(settings, beside=wish.beside))
    with parts.part("fetch"):
        archive = archive_of(settings, place, progress) if wish.kind == "archive" else None
        if archive is not None:
            _require_room(store, scratch, size)
            fetching.from_archive(archive, place, save)
        else:
            fetching.from_store(store, place, save)
    with parts.part("read"):
        place.make_view(VIEW_OF, save)


def reading_of(settings: Settings, *, beside: bool) -> StoreReading:
    """A way back is read as fast as it goes, but not where the run that trains would pay for it."""
    wanted = settings.checkpoints
    by = by_threads(wanted.read_threads or None, wanted.read_mb_s * 1e6 or None)
    return replace(by, urgent=by.beside, urgent_pace=by.pace) if beside else by


def _require_room(store: PosixStore, scratch: RunDir, size: int) -> None:
    """A copy beside the store must leave room for the run's next save. Raises NotRestorable, OSError."""
    free = store.free_bytes()
    if os.stat(store.tree.root).st_dev == os.stat(scratch.root).st_dev and free is not None and free < 2 * size:
        raise NotRestorable(
            f"{size} bytes more would take the room of the run's next save ({free} bytes are free): give a --scratch on"
            " another file system"
        )


def _train(settings: Settings, scratch: RunDir, wish: Wish, chosen: str, parts: _Parts) -> None:
    training.prepare(scratch, settings, scratch.path("checkpoints"))
    with training.supervised(scratch) as controller:
        for part in ("launch", "load", "update") if wish.level == "update" else ("launch", "load"):
            with parts.part(part):
                training.await_part(scratch, controller, part, chosen, wish.deadline_s)


def _keep_log(scratch: RunDir, path: str) -> None:
    """What the drill's controller said outlives the scratch place."""
    with contextlib.suppress(OSError):
        shutil.copyfile(scratch.path("drill.log"), path)
