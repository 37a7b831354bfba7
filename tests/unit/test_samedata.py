"""Two failures on the same samples: who is cleared by it, and what does not count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.facts import FaultClass, Finding
from policies.history import Diagnosis, Incident, Times, Trouble
from policies.reasons import Reason
from policies.rules import DataRules
from policies.samedata import judge

RULES = DataRules(prefetch_steps=2)


def failed(
    number: int,
    node: str | None,
    first: int,
    *,
    fault: FaultClass = FaultClass.RANK_FAILED,
    category: str = "software.user",
    rank: int | None = 7,
) -> Incident:
    """A batch of 8 samples from `first` was being read."""
    told = Finding(number, "exit-code", "root", category, "", rank=rank, node=node)
    found = Diagnosis((told,), (), category, (first, 8), step=first // 8 + 1)
    trouble = Trouble(fault, Reason(fault.value), float(number), number, True, "")
    return Incident(number, number, trouble, Times(), 0, 0, diagnosis=found)


def test_the_same_samples_on_different_nodes_are_data_or_code() -> None:
    stop = judge((failed(1, "n1", 360), failed(2, "n2", 360)), RULES)
    assert stop is not None
    assert stop.reason is Reason.SAME_DATA
    assert stop.seen == (
        "Iterations 46 (n1, rank 7) and 46 (n2, rank 7): rank-failed on samples 360 to 383. "
        "Different nodes, the same data: the data or the code, not the machines. The nodes stay in use"
    )
    assert stop.lifts.endswith("leaves them out: --skip-samples 360:384")


@pytest.mark.parametrize(
    ("nodes", "said"),
    [(("n1", "n1"), "each time on n1"), ((None, None), "and not each time a node to name"), (("n1", None), "and not")],
)
def test_where_no_machine_is_cleared_it_says_so_and_halts(nodes: tuple[str | None, str | None], said: str) -> None:
    stop = judge((failed(1, nodes[0], 360, rank=None), failed(2, nodes[1], 360)), RULES)
    assert stop is not None
    assert said in stop.seen
    assert "cannot be told apart" in stop.seen


def test_a_place_that_is_not_known_is_told() -> None:
    one = failed(1, None, 360, rank=None)
    assert one.diagnosis is not None
    one = replace(one, diagnosis=replace(one.diagnosis, first=(), step=None))
    stop = judge((one, failed(2, "n2", 360)), RULES)
    assert stop is not None
    assert stop.seen.startswith("Iterations unknown (node unknown) and 46 (n2, rank 7)")


def test_reading_ahead_counts_for_a_rank_and_not_for_a_loss() -> None:
    """With two batches read ahead, the same sample fails from the step that trains it to the second before."""
    stop = judge((failed(1, "n1", 360), failed(2, "n2", 376)), RULES)
    assert stop is not None
    assert "on samples 376 to 383" in stop.seen
    assert judge((failed(1, "n1", 360), failed(2, "n2", 384)), RULES) is None
    assert judge((failed(1, "n1", 384), failed(2, "n2", 360)), RULES) is None
    numeric = {"fault": FaultClass.NON_FINITE, "category": "numeric"}
    assert judge((failed(1, "n1", 360, **numeric), failed(2, "n2", 368, **numeric)), RULES) is None  # type: ignore[arg-type]
    stop = judge((failed(1, "n1", 360, **numeric), failed(2, "n2", 360, **numeric)), RULES)  # type: ignore[arg-type]
    assert stop is not None
    assert "non-finite-loss on samples 360 to 367" in stop.seen


@pytest.mark.parametrize(
    ("fault", "category"),
    [
        (FaultClass.RANK_FAILED, "hardware.gpu"),
        (FaultClass.RANK_FAILED, "storage.io"),
        (FaultClass.RANK_DIED, "hang.unknown"),
        (FaultClass.STALL, "software.user"),
        (FaultClass.SAVE_STUCK, "software.user"),
        (FaultClass.LAUNCH_FAILED, "software.user"),
        (FaultClass.NODE_LOST, "hardware.host"),
    ],
)
def test_what_data_cannot_do_is_left_out(fault: FaultClass, category: str) -> None:
    pair = tuple(failed(n, f"n{n}", 360, fault=fault, category=category) for n in (1, 2))
    assert judge(pair, RULES) is None
    assert judge((failed(1, "n1", 360), pair[1]), RULES) is None
    assert judge((pair[0], failed(2, "n2", 360)), RULES) is None


def test_start_up_load_and_save_read_no_samples() -> None:
    one, other = failed(1, "n1", 360), failed(2, "n2", 360)
    assert other.diagnosis is not None
    assert judge((one, replace(other, diagnosis=replace(other.diagnosis, data=None))), RULES) is None
    assert judge((one, replace(other, diagnosis=None)), RULES) is None


def test_one_attempt_ends_once() -> None:
    """Two incidents of one attempt tell of one failure; and none at all of none."""
    assert judge((failed(1, "n1", 360), replace(failed(2, "n2", 360), attempt=1)), RULES) is None
    assert judge((), RULES) is None
    assert judge((failed(1, "n1", 360),), RULES) is None
