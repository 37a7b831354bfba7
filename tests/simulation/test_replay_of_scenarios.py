"""Whatever a scenario's journal holds can be decided again from its bytes alone, over every death of the controller."""

from __future__ import annotations

import pytest

from supervisor.bench import simulate
from supervisor.journal.journal import read
from supervisor.replay import replay


@pytest.mark.parametrize("name", sorted(simulate.every()))
def test_every_decision_of_a_scenario_comes_out_the_same(name: str) -> None:
    simulate.quiet()
    outcome = simulate.tell(simulate.every()[name])
    again = list(replay(read(outcome.world.disk)))
    assert again
    assert [(one.number, one.differs) for one in again if one.differs] == []
