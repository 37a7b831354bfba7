"""The controller's look at an archive, and what it does with one: a place that hangs, fails or lies delays nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from builders import save, save_id

from policies.facts import UNKNOWN, CheckpointState, Copied
from policies.history import History
from policies.layout import Layout
from slurm.cluster import Unreadable
from supervisor import actions
from supervisor.drill_files import Drill, fetched
from supervisor.errors import NotRestorable
from supervisor.lanes import Lanes
from supervisor.observe.world import ARCHIVE_DEADLINE_S, World
from supervisor.perform.effects import Effects, Ports
from supervisor.ports import NoArchive
from supervisor.settings import ArchiveSettings, Settings

NOTHING = SimpleNamespace(capture=None, failures={}, delays={}, at_work=frozenset(), released=False)
COPY = save(40, location="archive")


class Place:
    """An archive that answers as it is told."""

    def __init__(self, *copies: CheckpointState) -> None:
        self.answer: tuple[CheckpointState, ...] | Unreadable | Exception = copies
        self.fails: dict[str, Exception] = {}
        self.calls: list[object] = []

    def make(self) -> None:
        """It is there."""

    def scan(self) -> tuple[CheckpointState, ...] | Unreadable:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def _do(self, what: str, *told: object) -> None:
        self.calls.append((what, *told))
        if what in self.fails:
            raise self.fails[what]

    def copy(self, checkpoint: str) -> None:
        self._do("copy", checkpoint)

    def restore(self, checkpoint: str) -> None:
        self._do("restore", checkpoint)

    def keep_record(self, run_root: str) -> int:
        self._do("record", run_root)
        return 0

    def retain(self, keep: int, protect: Collection[str]) -> tuple[str, ...]:
        self._do("retain", keep, protect)
        return ()


def world_of(archive: Place | None) -> World:
    blind: Any = SimpleNamespace(has_exits=lambda _: False)
    return World(blind, blind, blind, blind, Layout(1, 1, 1, 1), archive)


def test_without_an_archive_nothing_is_unknown_of_it() -> None:
    view = world_of(None).view(History(), 1.0, NOTHING)  # type: ignore[arg-type]
    assert (view.has_archive, view.archive) == (False, ())


def test_an_archive_is_unknown_until_it_was_read_and_whenever_it_cannot_be() -> None:
    place = Place(COPY)
    world = world_of(place)

    def seen(now: float) -> tuple[object, float | None, str]:
        view = world.view(History(), now, NOTHING)  # type: ignore[arg-type]
        return view.archive, view.archive_as_of, view.archive_why

    assert seen(1.0) == (UNKNOWN, None, "not read yet")
    world.refresh_archive(2.0)
    assert seen(3.0) == ((COPY,), 2.0, "")
    place.answer = Unreadable("no answer")
    world.refresh_archive(4.0)
    assert seen(5.0) == (UNKNOWN, 2.0, "no answer")
    place.answer = OSError("stale handle")
    world.refresh_archive(6.0)
    assert seen(7.0) == (UNKNOWN, 2.0, "stale handle")


def test_a_look_that_hangs_shows_nothing_after_its_deadline() -> None:
    world = world_of(Place(COPY))
    world.refresh_archive(2.0)
    world.ask_archive(100.0)
    late = 100.0 + ARCHIVE_DEADLINE_S
    assert world.view(History(), late - 1, NOTHING).archive == (COPY,)  # type: ignore[arg-type]
    view = world.view(History(), late, NOTHING)  # type: ignore[arg-type]
    assert (view.archive, view.archive_why) == (UNKNOWN, "it has not answered for 30 s")
    world.refresh_archive(late)
    assert world.view(History(), late + 1, NOTHING).archive == (COPY,)  # type: ignore[arg-type]


class Scene:
    """Effects with a store that holds `saves`, a place, and real threads."""

    def __init__(self, place: Place, *saves: CheckpointState) -> None:
        self.scrubbed: list[str] = []
        store: Any = SimpleNamespace(scan=lambda: saves, scrub=self.scrubbed.append, seal=lambda name: name)
        run: Any = SimpleNamespace(root="/run/demo")
        none: Any = None
        settings = Settings(archive=ArchiveSettings(place="/elsewhere", keep=5))
        ports = Ports(run, settings, Layout(1, 1, 1, 1), none, store, none, none, 1, 1.0, archive=place)
        self.looked: list[str] = []
        self.lanes, self.workers = Lanes(), ThreadPoolExecutor(1)
        self._seen = threading.Condition()
        self.effects = Effects(ports, self.workers, self._look, self.lanes)

    def _look(self, part: str) -> None:
        with self._seen:
            self.looked.append(part)
            self._seen.notify_all()

    def do(self, action: actions.Action) -> None:
        """Ask, and wait until it is over."""
        before = len(self.looked)
        self.effects.perform(action, History())
        with self._seen:
            assert self._seen.wait_for(lambda: len(self.looked) > before, 10)


def test_a_copy_keeps_the_record_copies_and_tidies() -> None:
    place = Place()
    scene = Scene(place, save(40))
    scene.do(actions.Archive(save_id(40), (save_id(20),)))
    assert place.calls == [
        ("record", "/run/demo"),
        ("copy", save_id(40)),
        ("retain", 5, frozenset({save_id(20)})),
    ]
    assert scene.looked == ["archive"]
    assert scene.effects.failures == {}


def test_a_record_that_cannot_be_kept_does_not_stop_the_copy_and_is_told() -> None:
    place = Place()
    place.fails["record"] = OSError(28, "No space left on device")
    scene = Scene(place, save(40))
    scene.do(actions.Archive(save_id(40)))
    assert [call[0] for call in place.calls] == ["record", "copy", "retain"]  # type: ignore[index]
    assert "No space left" in scene.effects.failures[f"archive:{save_id(40)}"]


def test_what_is_there_already_is_neither_copied_nor_fetched_again() -> None:
    place = Place(COPY)
    scene = Scene(place, save(40))
    scene.do(actions.Archive(save_id(40)))
    scene.do(actions.Restore(save_id(40)))
    assert place.calls == []


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (OSError(5, "no answer"), False),
        (NotRestorable("no room now", not_yet=True), False),
        (NotRestorable("its copy is damaged"), True),
    ],
)
def test_only_a_no_of_the_archive_says_something_about_a_copy(error: Exception, failed: bool) -> None:
    place, key = Place(), f"restore:{save_id(40)}"
    place.fails["restore"] = error
    scene = Scene(place)
    scene.do(actions.Restore(save_id(40)))
    assert (key in scene.effects.failures) == failed
    assert (key in scene.effects.delays) != failed
    assert key not in scene.effects.at_work
    place.fails.clear()
    scene.do(actions.Restore(save_id(40)))
    assert scene.effects.delays == {}
    assert scene.effects.failures == {}
    assert scene.looked == ["store", "store"]


def test_a_place_that_hangs_holds_up_no_seal_and_is_not_asked_twice() -> None:
    held, inside = threading.Event(), threading.Event()

    class Hangs(Place):
        def copy(self, checkpoint: str) -> None:
            super().copy(checkpoint)
            inside.set()
            held.wait(30)

    place = Hangs()
    scene = Scene(place, save(40))
    copying = actions.Archive(save_id(40))
    scene.effects.perform(copying, History())
    assert inside.wait(10)
    assert scene.effects.at_work == {f"archive:{save_id(40)}"}
    scene.effects.perform(copying, History())
    scene.do(actions.Seal(save_id(60)))
    scene.do(actions.Scrub(save_id(40), None))
    assert scene.scrubbed == [save_id(40)]
    assert scene.lanes.busy
    held.set()
    scene.workers.shutdown()
    assert [call[0] for call in place.calls].count("copy") == 1  # type: ignore[index]


@pytest.mark.parametrize("ask", [lambda a: a.copy("x"), lambda a: a.restore("x")])
def test_without_an_archive_nothing_can_be_had_from_it(ask: Callable[[NoArchive], None]) -> None:
    none = NoArchive()
    none.make()
    assert (none.scan(), none.retain(1, ()), none.keep_record("/run")) == ((), (), 0)
    with pytest.raises(NotRestorable, match=r"\[archive\] place") as caught:
        ask(none)
    assert not caught.value.not_yet


def drill(number: int, kind: str = "archive", **more: object) -> Drill:
    told = {"number": number, "kind": kind, "level": "bytes", "checkpoint": save_id(40), "bytes": 700, "ok": True}
    times = {"began_at": 1.0, "ended_at": 100.0 * number, "parts": {"choose": 1.0, "fetch": 7.0, "read": 3.0}}
    return Drill.model_validate(told | times | more)


def test_what_a_drill_of_the_archive_has_fetched_is_seen_with_the_archive() -> None:
    good = drill(1)
    later = (drill(2, "shared"), drill(3, ok=False))
    assert fetched((good, *later)) == Copied(save_id(40), 100.0, 700, 7.0)
    assert fetched(later) is None
    assert fetched((drill(1, parts={"choose": 1.0}),)) is None
    blind: Any = SimpleNamespace(has_exits=lambda _: False)
    world = World(blind, blind, blind, blind, Layout(1, 1, 1, 1), Place(), drilled=lambda: fetched((good,)))
    assert world.view(History(), 1.0, NOTHING).drilled is None  # type: ignore[arg-type]
    world.refresh_archive(2.0)
    assert world.view(History(), 3.0, NOTHING).drilled == fetched((good,))  # type: ignore[arg-type]
