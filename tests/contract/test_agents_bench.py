"""The bench of the agents measures what it says; how fast it is, is for its figures to say."""

from __future__ import annotations

import pytest

from supervisor.bench.agents import measure_agents, measure_calls, measure_views


def test_every_agent_is_connected_and_every_row_is_taken():
    figures = measure_agents(n=20, ranks=2, beat_s=0.2, seconds=1.0)
    assert figures["agents"] == 20
    assert figures["rows"] == figures["frontier"] > 0
    assert figures["cpu_share"] >= 0
    assert figures["rss_mb"] > 5


def test_a_hub_that_hears_nothing_gives_no_figure():
    with pytest.raises(RuntimeError, match="heard 2 of 2 agents and 0 rows"):
        measure_agents(n=2, ranks=0, beat_s=0.2, seconds=0.3)  # without a rank nobody reports


def test_calls_and_views():
    figures = measure_calls(200) | measure_views(64, 5)
    assert figures["call_p99_us"] >= figures["call_p50_us"] > 0
    assert figures["view_ms"] > 0
    assert figures["dropped"] < 200
