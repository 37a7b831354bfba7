"""What Slurm's commands print, as recorded; and what they must never be taken to have said."""

import pytest

from slurm import hostlist, parsing
from slurm.states import Phase

# Recorded from 22.05.8 and 24.11.5; the two print the same.
JOB = "1|RUNNING|2026-12-01T00:20:06|n[001-004]|n001|None\n"
STEPS = """\
1.0|RUNNING|n[001-003]|demo.a0001.e1|
1.batch|RUNNING|n001|batch|
"""
NODES = """\
n001|allocated|127.0.0.1|none|
n002|allocated+drain|127.0.0.1|relight demo incident 3|
n003|allocated+not_responding|127.0.0.1|none|
n002|allocated+drain|127.0.0.1|relight demo incident 3|
"""
NODE = (
    "NodeName=n001 Arch=x86_64 CoresPerSocket=1  CPUAlloc=64 CPULoad=3.79 NodeAddr=127.0.0.1 NodeHostName=vm Port=17001 "
    "Version=22.05.8 OS=Linux 6.18 #1 SMP State=ALLOCATED Comment=Port=1 "
)
TOPOLOGY = """\
SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[001-002]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[003-004]
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[001-004] Switches=s[0-1]
"""


def test_a_job():
    row = parsing.job(JOB, "1")
    assert row is not None
    assert (row.state, row.phase, row.batch_host, row.reason) == ("RUNNING", Phase.RUNNING, "n001", "")
    assert row.nodes == ("n001", "n002", "n003", "n004")
    assert row.start == "2026-12-01T00:20:06"


def test_a_job_that_waits_has_no_nodes():
    row = parsing.job("7|PENDING|N/A||n/a|launch failed requeued held\n", "7")
    assert row is not None
    assert (row.phase, row.nodes, row.start, row.batch_host) == (Phase.WAITING, (), "", "")
    assert row.reason == "launch failed requeued held"


def test_only_the_job_that_was_asked_for_counts():
    assert parsing.job(JOB, "11") is None
    assert parsing.job("", "1") is None
    two = "21|PENDING|N/A||n/a|Dependency\n" + JOB
    row = parsing.job(two, "1")
    assert row is not None
    assert row.state == "RUNNING"


def test_steps():
    first, batch = parsing.steps(STEPS)
    assert (first.id, first.name, first.nodes) == ("1.0", "demo.a0001.e1", ("n001", "n002", "n003"))
    assert (batch.id, batch.phase) == ("1.batch", Phase.RUNNING)
    assert parsing.steps("") == ()


@pytest.mark.parametrize("one", ["5_1.0", "7+1.3", "1.extern", "1.interactive", "1.TBD"])
def test_every_kind_of_step_id_is_one(one):
    assert parsing.steps(f"{one}|RUNNING|n1|x|\n")[0].id == one


def test_a_name_cannot_move_the_other_fields():
    (row,) = parsing.steps("1.5|RUNNING|n1|x|PENDING|n[9-99]|\n")
    assert (row.nodes, row.name) == (("n1",), "x|PENDING|n[9-99]")
    nodes = parsing.nodes("n1|down|10.1.0.1|bad | idle | fan|\n")
    assert (nodes["n1"].state, nodes["n1"].reason) == ("down", "bad | idle | fan")


def test_nodes():
    rows = parsing.nodes(NODES)
    assert list(rows) == ["n001", "n002", "n003"]
    assert (rows["n002"].state, rows["n002"].reason) == ("allocated+drain", "relight demo incident 3")
    assert rows["n001"].reason == ""
    assert rows["n001"].address == "127.0.0.1"
    assert parsing.nodes("n9|idle|(null)|none|\n")["n9"].address == "n9"


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parsing.steps, "slurm_load_jobs error: Unable to contact slurm controller\n"),
        (parsing.steps, "1.0|RUNNING\n"),
        (parsing.steps, "bogus|RUNNING|n1|x|\n"),
        (parsing.steps, "1.0||n1|x|\n"),
        (parsing.steps, "1.0|RUNNING|n[1|x|\n"),
        (parsing.nodes, "n001|\n"),
        (parsing.nodes, "n001||127.0.0.1|none|\n"),
        (parsing.nodes, "n 1|idle|127.0.0.1|none|\n"),
        (lambda text: parsing.job(text, "1"), "1|RUNNING|n1\n"),
        (lambda text: parsing.job(text, "1"), "1|RUNNING|now|n[1-|n1|None\n"),
    ],
)
def test_what_is_no_row_is_refused(read, text):
    with pytest.raises(ValueError, match=r"not|brackets"):
        read(text)


def test_where_a_slurmd_listens():
    assert parsing.address(NODE) == ("127.0.0.1", 17001)
    assert parsing.address("NodeName=n1 NodeAddr=n1") is None
    assert parsing.address("NodeName=n1 NodeAddr=n1 Port=0 ") is None
    assert parsing.address("") is None


def test_leaf_switches():
    assert parsing.switches(TOPOLOGY) == {"n001": "s0", "n002": "s0", "n003": "s1", "n004": "s1"}
    assert parsing.switches("") == {}


@pytest.mark.parametrize(
    "text",
    [
        # 22.05 ends each field of `-o` with a space
        (
            "SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=n001,n003 \nSwitchName=top Level=1 LinkSpeed=1 Nodes=n[001-004] Switches=leaf[0-1] \n"
            "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n002,n004 \n"
        ),
        # later ones do not
        (
            "SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=n[001,003]\nSwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[002,004]\n"
            "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[001-004] Switches=leaf[0-1]\n"
        ),
        # blocks, from 23.11 on; aggregated ones and larger ones are no neighbourhood of their own
        (
            "BlockName=leaf0 BlockIndex=0 Nodes=n001,n003 BlockSize=2\nBlockName=leaf1 BlockIndex=1 Nodes=n002,n004 BlockSize=2\n"
            "AggregatedBlock=leaf[0-1] BlockIndex=2 Nodes=n[001-004] BlockSize=4\nBlockName=all BlockIndex=3 Nodes=n[001-004] BlockSize=4\n"
        ),
    ],
    ids=["22.05", "24.11", "blocks"],
)
def test_leaves_in_every_form(text):
    assert parsing.switches(text) == {"n001": "leaf0", "n002": "leaf1", "n003": "leaf0", "n004": "leaf1"}


HOSTS = ("n003", "n001", "n001", "n002")


def test_srun_says_which_nodes_have_ended():
    said = "srun: error: n002: task 3: Killed\nsrun: error: n001: tasks 1-2: Killed\n"
    assert parsing.ended_nodes(said, HOSTS) == {"n001", "n002"}
    assert parsing.ended_nodes("srun: error: n[001-002]: tasks 1-3: Exited with exit code 1\n", HOSTS) == {
        "n001",
        "n002",
    }
    assert parsing.ended_nodes("srun: error: n003: task 0: Segmentation fault (core dumped)\n", HOSTS) == {"n003"}
    both = "srun: error: n001: task 2: Killed\nsrun: error: n001: task 1: Aborted\n"
    assert parsing.ended_nodes(both, HOSTS) == {"n001"}


@pytest.mark.parametrize(
    "said",
    [
        "",
        "srun: error: n001: task 1: Killed\n",  # its other task may run
        "srun: error: n001: tasks 1-3: Killed\n",  # task 3 is not there: this is about some other step
        "srun: error: n009: task 3: Killed\n",
        "srun: error: n002: task 3: Starting\n",
        "echo srun: error: n002: task 3: Killed\n",
        "srun: error: n[0-999999999]: task 3: Killed\n",
        "srun: error: n002: tasks 3-: Killed\n",
        "srun: error: Node failure on n002\n",
    ],
)
def test_a_node_that_is_not_named_may_still_run(said):
    assert parsing.ended_nodes(said, HOSTS) == frozenset()


def test_the_ends_that_srun_tells_of():
    first = "srun: error: n001: task 1: Segmentation fault (core dumped)"
    said = (
        f"rank 1 says hello\n{first}\nsrun: error: n[002-003]: tasks 0,3: Exited with exit code 137\n"
        "srun: error: n001: task 1: Killed\nsrun: error: n001: task 2: Exited with exit code 3\n"
        "srun: error: n009: task 2: Killed\nsrun: error: n001: task 99: Killed\n"
    )
    ends = parsing.task_ends(said, HOSTS)
    assert [(one.task, one.node, one.code, one.signal) for one in ends] == [
        (1, "n001", None, 11), (0, "n003", None, 9), (3, "n002", None, 9), (2, "n001", 3, None),
    ]  # fmt: skip
    assert ends[0].line == first
    assert {one.of for one in ends} == {len(HOSTS)}
    assert parsing.task_ends("srun: Force Terminated StepId=1.0\n", HOSTS) == ()


@pytest.mark.parametrize(
    ("words", "signal"),
    [
        ("Out Of Memory", 9),
        ("Terminated", 15),
        ("User defined signal 2", 12),
        ("Unknown signal 40", 40),
        ("Real-time signal 1", 35),
    ],
)
def test_signals_by_their_words(words, signal):
    (end,) = parsing.task_ends(f"srun: error: n002: task 3: {words}\n", HOSTS)
    assert (end.code, end.signal) == (None, signal)


def test_what_else_srun_complains_of():
    failed = "srun: error: Task launch for StepId=1.2 failed on node n003: Communication connection failure"
    oom = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.2."
    said = f"hello\n{failed}\nsrun: error: n002: task 3: Killed\n{oom}\n{oom}\nsrun: Job step aborted\n"
    assert parsing.complaints(said) == (failed, oom)
    assert len(parsing.complaints("".join(f"srun: error: {n}\n" for n in range(100)))) == 16


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("n1", ("n1",)),
        ("n[001-003,007],login1", ("n001", "n002", "n003", "n007", "login1")),
        ("n[9-11]", ("n9", "n10", "n11")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
        ("r[1-2]n[01-02]x", ("r1n01x", "r1n02x", "r2n01x", "r2n02x")),
        ("a[1]b,c", ("a1b", "c")),
        ("gpu-a.cluster_1", ("gpu-a.cluster_1",)),
    ],
)
def test_a_list_of_hosts(text, names):
    assert hostlist.expand(text) == names


@pytest.mark.parametrize(
    "text",
    ["n[", "n]", "n[1", "n[1-]", "n[3-1]", "n[[1]]", "n[1]]", ",n1", "n1,", "n 1", "n[a-b]", "n[0-999999999]", "n[]"],
)
def test_what_is_no_list_of_hosts(text):
    with pytest.raises(ValueError, match=r"."):
        hostlist.expand(text)


def test_two_ranges_cannot_multiply_without_end():
    with pytest.raises(ValueError, match="more than"):
        hostlist.expand("r[1-5000]n[1-5000]")
