"""What the controller logs: JSON, one line a change of reason, and nothing in between."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.bench import simulate
from supervisor.bench.world.desk import SimDesk
from supervisor.bench.world.world import Plant
from supervisor.ports import Desk

Line = dict[str, Any]


def decisions(lines: list[Line]) -> list[Line]:
    return [line for line in lines if str(line["event"]).startswith("decision ")]


def repeated(lines: list[Line]) -> list[Line]:
    """Lines about a decision that say what the one before them said."""
    return [after for before, after in pairwise(decisions(lines)) if before == after]


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(("name", "reasons"), [("person-sleeps", 8), ("ten-forty", 16)])
def test_each_change_of_reason_is_one_line(name: str, reasons: int) -> None:
    turns: list[None] = []

    class Counted(Plant):
        def desk(self, desk: SimDesk) -> Desk:
            class Counting:
                def __getattr__(self, name: str) -> Any:
                    return getattr(desk, name)

                def ticked(self) -> None:
                    turns.append(None)

            return Counting()

    with capture_logs() as lines:
        assert simulate.tell(simulate.every()[name], plant=Counted()).good
    assert repeated(lines) == []
    assert 3 <= len(decisions(lines)) <= reasons
    assert len(turns) > 10 * len(decisions(lines))  # many looks, few words
    for line in decisions(lines):
        assert {"reason", "mode"} <= set(line)
    assert repeated([*lines[:3], decisions(lines)[0], decisions(lines)[0]])  # the checker sees one that is said twice


def test_a_line_is_json_whatever_is_in_it() -> None:
    code = (
        "import structlog; from supervisor.app import log_to_stderr; log_to_stderr();"
        "structlog.get_logger().info('decision wait', reason='stall', text='two\\nlines \\x1b[2J \\u202e')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    told = json.loads(line)
    assert (told["event"], told["reason"], told["level"]) == ("decision wait", "stall", "info")
    assert told["timestamp"]
    assert "\x1b" not in line
