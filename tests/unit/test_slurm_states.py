"""What Slurm's words mean, over 22.05 to 26.05. Nothing that is not known is fine."""

import itertools

import pytest

from slurm.cluster import NodeCondition
from slurm.states import Phase, node_condition, node_words, phase

UP, SILENT, DOWN, DRAINED, UNKNOWN = (
    NodeCondition.UP,
    NodeCondition.SILENT,
    NodeCondition.DOWN,
    NodeCondition.DRAINED,
    NodeCondition.UNKNOWN,
)

NODES = [
    # as sinfo -O StateComplete printed them on 22.05, 24.11 and 26.05
    ("idle", UP),
    ("allocated", UP),
    ("mixed", UP),
    ("allocated+drain", DRAINED),
    ("allocated+not_responding", SILENT),
    ("allocated+drain+not_responding", SILENT),
    ("idle+drain", DRAINED),
    ("down+not_responding", DOWN),
    ("down+drain+invalid_reg", DOWN),
    ("unknown", UNKNOWN),
    ("unknown+not_responding", SILENT),
    # each flag of slurm.h, on a node that would be fine without it
    ("allocated+fail", DRAINED),
    ("allocated+invalid_reg", DRAINED),
    ("allocated+maintenance", DRAINED),
    ("allocated+reboot_requested", DRAINED),
    ("allocated+power_down", DRAINED),
    ("allocated+power_drain", DRAINED),
    ("allocated+reboot_issued", SILENT),
    ("idle+powering_up", SILENT),
    ("idle+power_up", SILENT),
    ("idle+powered_down", DOWN),
    ("idle+powering_down", DOWN),
    ("idle+cloud+powered_down", DOWN),
    ("idle+dynamic_future", DOWN),
    ("idle+external", UNKNOWN),
    *((f"allocated+{flag}", UP) for flag in ("blocked", "cancel_reboot", "cloud", "completing", "dynamic_norm")),
    *((f"mixed+{flag}", UP) for flag in ("perfctrs", "planned", "reserved", "resume", "undrain")),
    ("future", DOWN),
    ("error", DOWN),
    ("ALLOCATED+DRAIN", DRAINED),  # scontrol writes it large
    # what nobody knows
    ("", UNKNOWN),
    ("?", UNKNOWN),
    ("invalid", UNKNOWN),
    ("idle+?", UNKNOWN),
    ("idle+quantum", UNKNOWN),
    ("allocated+drain+quantum", UNKNOWN),
    ("allocated+not_responding+quantum", SILENT),
    ("down+quantum", DOWN),
    ("alloc*", UNKNOWN),  # the short form is not what we ask for
    ("draining", UNKNOWN),
]


@pytest.mark.parametrize(("text", "condition"), NODES, ids=[text for text, _ in NODES])
def test_a_nodes_state(text, condition):
    assert node_condition(text) is condition


def test_the_order_of_flags_changes_nothing():
    flags = ("drain", "not_responding", "planned", "cloud")
    for some in itertools.permutations(flags):
        assert node_condition("+".join(("allocated", *some))) is SILENT


def test_our_own_drain_is_looked_through_and_nothing_else_is():
    assert node_condition("allocated+drain", drained_by_us=True) is UP
    assert node_condition("allocated+drain+not_responding", drained_by_us=True) is SILENT
    assert node_condition("allocated+drain+fail", drained_by_us=True) is DRAINED
    assert node_condition("down+drain", drained_by_us=True) is DOWN
    assert node_condition("allocated+drain+quantum", drained_by_us=True) is UNKNOWN


def test_the_words_are_kept_apart():
    words = node_words("Mixed+DRAIN+quantum")
    assert (words.base, words.flags, words.unknown) == ("MIXED", {"DRAIN", "QUANTUM"}, {"QUANTUM"})
    assert node_words("").unknown == {""}


JOBS = {
    Phase.WAITING: "PENDING CONFIGURING POWER_UP_NODE REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT EXPEDITING",
    Phase.RUNNING: "RUNNING RESIZING SIGNALING running",
    Phase.PAUSED: "SUSPENDED STOPPED",
    Phase.ENDING: "COMPLETING STAGE_OUT UPDATE_DB",
    Phase.ENDED: "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED "
    "RECONFIG_FAIL REVOKED TIMEOUT",
}


@pytest.mark.parametrize(("word", "where"), [(word, where) for where, words in JOBS.items() for word in words.split()])
def test_where_a_job_or_step_stands(word, where):
    assert phase(word) is where


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("COMPLETED,COMPLETING", Phase.ENDING),
        ("RUNNING+CONFIGURING", Phase.WAITING),
        ("PENDING+REQUEUE_HOLD", Phase.WAITING),
        ("PENDING+LAUNCH_FAILED", Phase.WAITING),
        ("RUNNING+STOPPED", Phase.PAUSED),
        ("RUNNING+SIGNALING", Phase.RUNNING),
        ("CANCELLED by 1000", Phase.ENDED),
        ("", Phase.UNKNOWN),
        ("?", Phase.UNKNOWN),
        ("RUNNING+QUANTUM", Phase.UNKNOWN),
    ],
)
def test_several_words_and_strange_ones(text, where):
    assert phase(text) is where
