"""The product's log lines are not what these tests are about."""

import pytest

from supervisor.bench.simulate import quiet


@pytest.fixture(autouse=True, scope="session")
def _quiet() -> None:
    quiet()
