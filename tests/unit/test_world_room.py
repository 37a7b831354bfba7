"""How much room the store has is part of the view, and unknown while the store is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from policies.facts import UNKNOWN
from policies.history import History
from policies.layout import Layout
from slurm.cluster import Unreadable
from supervisor.observe.world import World


class Store:
    """A store that can be away."""

    def create(self) -> None:
        """It is there."""

    def __init__(self) -> None:
        self.away = False

    def scan(self) -> tuple[()] | Unreadable:
        return Unreadable("away") if self.away else ()

    def view_targets(self) -> dict[int, str | None]:
        return {}

    def free_bytes(self) -> int:
        return 7


def test_free_room_is_seen_with_the_store() -> None:
    store, nothing = Store(), SimpleNamespace(capture=None, failures={}, delays={}, at_work=frozenset(), released=False)
    blind: Any = SimpleNamespace(has_exits=lambda _: False)
    world = World(blind, store, blind, blind, Layout(1, 1, 1, 1))  # type: ignore[arg-type]
    assert world.view(History(), 1.0, nothing).store_free_bytes is None
    assert world.view(History(), 1.0, nothing).unread == {"cluster", "store"}
    world.refresh_store(1.0, None)
    assert world.view(History(), 1.0, nothing).store_free_bytes == 7
    store.away = True
    world.refresh_store(2.0, None)
    seen = world.view(History(), 2.0, nothing)
    assert (seen.store_free_bytes, seen.checkpoints) == (None, UNKNOWN)
    assert seen.unread == {"cluster"}


def test_a_first_look_that_failed_was_a_look() -> None:
    store, nothing = Store(), SimpleNamespace(capture=None, failures={}, delays={}, at_work=frozenset(), released=False)
    store.away = True
    blind: Any = SimpleNamespace(has_exits=lambda _: False, read=lambda: Unreadable("away"))
    world = World(blind, store, blind, blind, Layout(1, 1, 1, 1))  # type: ignore[arg-type]
    world.refresh_cluster(1.0)
    assert world.view(History(), 1.0, nothing).unread == {"store"}
    world.refresh_store(1.0, None)
    assert world.view(History(), 1.0, nothing).unread == frozenset()
