"""What the worker makes of pyslurm's rows (as 25.11.2 gives them), and that it says so where there is no pyslurm."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from slurm import native_process, native_worker, parsing
from slurm.states import Phase

JOB = SimpleNamespace(
    id=17,
    state="RUNNING",
    start_time=1764548406,
    allocated_nodes="n[001-003]",
    batch_host="n001",
    state_reason="None",
)


def node(name, state="ALLOCATED", reason=None):
    return SimpleNamespace(name=name, state=state, address="10.0.0.9", reason=reason)


def step(name, nodes, state="RUNNING"):
    return SimpleNamespace(name=name, state=state, allocated_nodes=nodes)


def pyslurm(job=JOB, steps=None, nodes=()):
    """A stand-in with the few calls that are used."""

    def load(_):
        if isinstance(job, Exception):
            raise job
        return job

    return SimpleNamespace(
        slurmctld=SimpleNamespace(ping_primary=lambda: None),
        Job=SimpleNamespace(load=load),
        JobSteps=SimpleNamespace(load_all=lambda: steps or {}),
        Nodes=SimpleNamespace(load=lambda: {one.name: one for one in nodes}),
    )


def ask(slurm, what, **more):
    return native_worker.answer(slurm, json.dumps({"n": 5, "ask": what} | more))


def test_a_job_reads_as_squeue_prints_it():
    told = ask(pyslurm(), "job", job=17)
    assert told == {"n": 5, "text": "17|RUNNING|2025-12-01T00:20:06|n[001-003]|n001|None\n"}
    waiting = SimpleNamespace(**vars(JOB) | {"state": "PENDING", "start_time": None, "allocated_nodes": None})
    row = parsing.job(ask(pyslurm(waiting), "job", job=17)["text"], "17")
    assert row is not None
    assert (row.phase, row.start, row.nodes, row.reason) == (Phase.WAITING, "", (), "")


def test_steps_read_as_squeue_prints_them():
    found = {"batch": step("batch", ["n001"]), 4: step("a|b", ["n[001-002]", "n004"]), "pending": step("late", None)}
    rows = parsing.steps(ask(pyslurm(steps={17: found, 18: {0: step("other", ["n009"])}}), "steps", job=17)["text"])
    assert [(row.id, row.name, row.nodes) for row in rows] == [
        ("17.batch", "batch", ("n001",)),
        ("17.4", "a|b", ("n001", "n002", "n004")),
        ("17.TBD", "late", ()),
    ]
    assert ask(pyslurm(steps={}), "steps", job=17) == {"n": 5, "text": ""}


def test_nodes_read_as_sinfo_prints_them():
    slurm = pyslurm(nodes=[node("n001", "IDLE+DRAIN", "fan|3\nn003|idle|x|"), node("n002"), node("n009")])
    rows = parsing.nodes(ask(slurm, "nodes", names=["n001", "n002", "n003"])["text"])
    assert {name: (row.state, row.reason) for name, row in rows.items()} == {
        "n001": ("idle+drain", "fan|3 n003|idle|x"),
        "n002": ("allocated", ""),
    }


def test_mixed_may_hide_a_node_that_is_down_and_is_no_answer():
    slurm = pyslurm(nodes=[node("n001"), node("n002", "MIXED+NOT_RESPONDING"), node("n003", "MIXED")])
    assert "n002 is MIXED" in str(ask(slurm, "nodes", names=["n001", "n002"])["error"])
    assert "text" in ask(slurm, "nodes", names=["n001"])


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (SimpleNamespace(**vars(JOB) | {"id": 18}), "told of 18"),  # of an array the first record may be any task
        (KeyError(17), "KeyError: 17"),
        (RuntimeError("Invalid job id specified"), "Invalid job id"),
    ],
)
def test_what_pyslurm_cannot_tell_is_an_error_and_no_row(job, why):
    told = ask(pyslurm(job), "job", job=17)
    assert why in str(told["error"])
    assert "text" not in told
    assert "error" in ask(pyslurm(), "reboot")


def test_without_pyslurm_it_says_that_it_is_unfit(tmp_path):
    (tmp_path / "pyslurm.py").write_text("raise ImportError('libslurmfull.so: cannot open shared object file')")
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(native_process.command(), env=env, input=b"", capture_output=True, timeout=60, check=False)
    assert json.loads(done.stdout) == {"schema": 1, "unfit": "libslurmfull.so: cannot open shared object file"}
    (tmp_path / "pyslurm.py").write_text(
        "print('hello'); __version__ = '25.11.2'\ndef slurm_api_version(): return 25, 11, 7"
    )
    done = subprocess.run(native_process.command(), env=env, input=b"", capture_output=True, timeout=60, check=False)
    assert json.loads(done.stdout) == {"schema": 1, "unfit": "pyslurm has loaded no library of Slurm"}
    assert b"hello" in done.stderr  # what others print does not get between the answers
