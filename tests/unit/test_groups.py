"""What shares one Slurm, one browser or one undisturbed run is given to one worker: pytest and pytest-xdist must agree on that."""

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="only where tests are spread over workers")
@pytest.mark.xdist_group("together")
def test_a_group_is_one_for_the_workers(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("@together")
