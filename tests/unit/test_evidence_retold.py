"""A verdict moves with the job that it is about, and with nothing else: logs told another way, on cases of our own and on
the labelled ones where a checkout has them beside it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from logcases import EACH, NODES, READER, WORLD, head, steps, timeout, timeouts, traceback

from supervisor.evidence.retelling import WAYS, Layout, differences
from supervisor.evidence.retold import Labelled, answer, labelled, retell

CASES = Path(__file__).resolve().parents[3] / "shared" / "logs" / "cases"
SEEDS = range(4)
LAYOUT = Layout(NODES, EACH)
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1209, name=python3, GPU has fallen off the bus."
NVLINK = "ProcessGroupNCCL.cpp:1895] CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"


def by_node(slot, last=""):
    lines = [f"{NODES[slot]}:{500 + slot}:{500 + slot} [0] NCCL INFO cudaDriverVersion 13000"]
    lines += [f"2026-05-04 10:{20 + n:02d}:00,000 INFO trainer: step {n} done" for n in range(6)]
    return "\n".join(lines) + "\n" + last


def job(name, **files):
    return Labelled(name, {n.replace("__", "-") + ".log": text.encode() for n, text in files.items()}, LAYOUT)


OWN = (
    job("a word", slurm=head() + steps() + traceback(6, ECC) + timeouts((6,))),
    job(
        "the kernel",
        slurm=head() + "gx-02:1209:1300 [2] NCCL INFO cudaDriverVersion 13000\n" + steps() + timeouts((6,)),
        dmesg__gx__02=f"2026-05-04T10:06:00+00:00 gx-02 kernel: {XID}\n",
    ),
    job(
        "silence",
        slurm=head(),
        **{
            f"rank_{r:03d}": "".join(f"[rank {r}] step {n} loss=2.1\n" for n in range(19 + (r != 9)))
            + ("" if r == 9 else timeout(r))
            for r in range(WORLD)
        },
    ),
    job("a gap", slurm=head() + steps() + "srun: error: tasks 0-9,11-15: Terminated\n"),
    job("srun", slurm=head() + steps() + "srun: error: gx-02: task 6: Out Of Memory\nsrun: error: gx-01: tasks 0-3: Terminated\n"),
    job("well", slurm=head() + steps() + "Finished training: 106 steps\n" + traceback(2, ECC)),
    job("no end", slurm=head() + steps()),
    job(
        "by clocks",
        layout=head(),
        gx__01=by_node(0, f"[rank1]:[E504 10:25:16.000001 {NVLINK}\n"),
        gx__02=by_node(1),
        gx__03=by_node(2, f"[rank9]:[E504 10:25:10.000001 {NVLINK}\n"),
        gx__04=by_node(3),
    ),
)  # fmt: skip


def told(way, case, seed=1):
    return WAYS[way](case.logs, case.layout, Random(seed))


def case(name):
    return next(one for one in OWN if one.name == name)


@pytest.mark.parametrize("way", WAYS)
def test_our_own_cases(way):
    number, wrong = retell(OWN, SEEDS, READER, [way])
    assert number == len(OWN) * len(SEEDS)
    assert wrong == []


@pytest.mark.skipif(not CASES.is_dir(), reason="the labelled cases are not in this checkout")
@pytest.mark.parametrize("way", WAYS)
def test_the_labelled_cases_told_another_way(way):
    assert retell(labelled(str(CASES)), [7], READER, [way]) == (45, [])


@pytest.mark.parametrize("way", WAYS)
def test_each_way_is_another_way(way):
    """Else a verdict would stay because nothing had changed."""
    assert any(told(way, one).logs != dict(one.logs) for one in OWN)


@pytest.mark.parametrize(
    ("way", "name", "forgotten"),
    [
        ("littered", "a word", {"lines": {}}),
        ("interleaved", "a word", {"lines": {}, "order": False}),
        ("filed", "a word", {"files": {}, "order": False}),
        ("renamed", "a word", {"nodes": {}}),
        ("renamed", "the kernel", {"files": {}}),
        ("permuted", "a word", {"ranks": {}}),
        ("permuted", "the kernel", {"nodes": {}}),
        ("permuted", "silence", {"files": {}}),
        ("permuted", "a gap", {"ranks": {}}),
        ("turned", "a word", {"ranks": {}}),
        ("turned", "silence", {"files": {}}),
    ],
)
def test_a_verdict_that_should_have_moved_and_did_not_is_seen(way, name, forgotten):
    """What the telling changed, the expectation forgets: with some seed the two must differ."""
    one = case(name)
    before = answer(one.logs, READER)
    seen = []
    for seed in range(6):
        other = told(way, one, seed)
        after = answer(other.logs, READER)
        assert differences(other, before, after) == []
        seen.append(differences(replace(other, **forgotten), before, after))
    assert any(seen)


@pytest.mark.parametrize(
    ("way", "name", "key", "value"),
    [
        ("shifted", "the kernel", "category", "hardware.nvlink"),
        ("skewed", "by clocks", "suspect_nodes", ["gx-01"]),
        ("interleaved", "a word", "restart_ok", True),
        ("littered", "no end", "failed", False),
    ],
)
def test_a_verdict_that_moved_and_should_not_have_is_seen(way, name, key, value):
    one = case(name)
    before, other = answer(one.logs, READER), told(way, one)
    assert before[key] != value
    assert differences(other, before, {**answer(other.logs, READER), key: value})


@pytest.mark.parametrize(
    "changed",
    [
        {"first_error": {"file": "slurm.log", "line": 10**6, "rank": None, "node": None}},
        {"category": "bad luck"},
        {"failed": False},
        {"suspect_nodes": ["gx-09"]},
    ],
)
def test_an_answer_without_its_form_is_seen(changed):
    one = case("a word")
    before, other = answer(one.logs, READER), replace(told("cut", one), logs=dict(one.logs))
    assert differences(other, before, before) == []
    assert differences(other, before, {**before, **changed})


def test_clocks_that_disagree_are_seen_where_nothing_puts_them_right():
    """The kernel's log alone is moved by a day: then the error is of another job."""
    one = case("the kernel")
    wrong = {name: data.replace(b"2026-05-04T10", b"2026-05-03T10") for name, data in one.logs.items()}
    other = replace(told("shifted", one), logs=wrong)
    assert differences(other, answer(one.logs, READER), answer(wrong, READER))


class Broken(type(READER)):
    """A reader that dies of a byte that it does not expect."""

    def read(self, path, name, marks=24):
        if b"\x00" in Path(path).read_bytes():
            raise IndexError("planted")
        return super().read(path, name, marks)


@pytest.mark.parametrize("way", ["damaged", "littered"])
def test_a_crash_is_seen(way):
    _, wrong = retell(OWN, SEEDS, Broken(), [way])
    assert any("IndexError: planted" in line for line in wrong)
