"""A lane each: what hangs holds up nobody, and what fails says so."""

from __future__ import annotations

import threading

import pytest

from supervisor.lanes import Lanes


def test_one_that_hangs_holds_up_nobody() -> None:
    lanes, held, begun = Lanes(), threading.Event(), [threading.Event() for _ in range(20)]

    def hang(begins: threading.Event) -> bool:
        begins.set()
        return held.wait(30)

    hanging = [lanes.submit(hang, one) for one in begun]
    assert all(one.wait(10) for one in begun)
    assert lanes.submit(lambda: 3).result(10) == 3
    assert lanes.busy
    held.set()
    assert all(one.result(10) for one in hanging)
    assert not lanes.busy


def test_what_fails_is_handed_on() -> None:
    lanes = Lanes()
    with pytest.raises(OSError, match="away"):
        lanes.submit(_fail).result(10)
    assert not lanes.busy


def _fail() -> None:
    raise OSError("away")
