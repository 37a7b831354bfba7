"""Samples that are left out, on their way from the map of an attempt to the environment of a rank."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.agent import place

MAP: dict[str, Any] = {
    "schema": 1, "run": "demo", "epoch": 1, "attempt": 3, "tp": 1, "pp": 1, "dp": 2, "ranks_per_node": 1,
    "slots": ["n000", "n001"], "master_addr": "127.0.0.1", "master_port": 29511, "command": ["x"], "cwd": "/", "env": {},
    "save_dir": "/s", "load_dir": "/l", "checkpoint": "", "warm": False, "reporter": 1, "agent_sockets": "/tmp",
}  # fmt: skip


@pytest.mark.parametrize(
    ("spans", "told"), [(None, ""), ([], ""), ([[8, 16]], "8:16"), ([[8, 16], [40, 41]], "8:16,40:41")]
)
def test_a_rank_is_told_what_is_left_out(spans: list[list[int]] | None, told: str) -> None:
    """A map of before this field was there leaves nothing out."""
    launch = MAP if spans is None else MAP | {"skip_samples": spans}
    place.check(launch, 3)
    where = place.Place("/run", 3, 1, "n001", launch)
    assert where.env["RELIGHT_SKIP_SAMPLES"] == told


@pytest.mark.parametrize(
    "spans", [None, 8, "8:16", [8, 16], [[8]], [[16, 8]], [[8, 8]], [[-1, 8]], [[True, 8]], [["0", 8]]]
)
def test_what_is_no_span_is_refused(spans: object) -> None:
    with pytest.raises(ValueError, match="skip_samples"):
        place.check(MAP | {"skip_samples": spans}, 3)
