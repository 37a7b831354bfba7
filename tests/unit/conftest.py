"""What the unit tests share."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def heard() -> Iterator[None]:
    """Lines of the log are made, whatever a test before has set: the bench turns them off."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    yield
    structlog.configure(**before)
