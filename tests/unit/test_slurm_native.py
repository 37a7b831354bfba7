"""Reading with pyslurm, without pyslurm: workers that do all that one can do wrong, and commands that only print."""

import json
import os
import sys
from pathlib import Path

import pytest

from slurm import processes
from slurm.asking import Commands
from slurm.cluster import ClusterView, Unreadable
from slurm.commands import SlurmCommands
from slurm.native import LONGEST_REST_S, REST_S, Native
from slurm.native_process import DeclinedError, LostError, UnfitError, Worker
from slurm.parsing import JobRow

HELLO = '{"schema":1,"pyslurm":"25.11.2","built":[25,11,7],"library":44}'
JOB = "17|RUNNING|2026-12-01T00:20:06|n[001-003]|n001|None\n"
STEPS = "17.batch|RUNNING|n001|batch\n17.4|RUNNING|n[001-003]|demo.a0001.e1\n"
NODES = "n001|allocated|10.0.0.9|\nn002|allocated+drain|10.0.0.9|fan 3 | bad\nn003|allocated|10.0.0.9|\n"
RIGHT = {"job": JOB, "steps": STEPS, "nodes": NODES}

FAKE = """
import json, os, sys, time
told, hello, does = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
with open(sys.argv[4], "a") as file: print(os.getpid(), file=file)
exec(does.partition("//")[0])
print(hello, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    n, ask = request["n"], request["ask"]
    answer = {"n": n, "text": told[ask]}
    exec(does.partition("//")[2])
    print(answer if isinstance(answer, str) else json.dumps(answer), flush=True)
"""


class Fake:
    """A worker that says what it is told, and `does` something of its own: before its first line `//` before each answer."""

    def __init__(self, folder: Path, told=RIGHT, hello=HELLO, does="", deadline_s=10.0) -> None:
        self.pids = folder / "pids"
        argv = (sys.executable, "-I", "-S", "-c", FAKE, json.dumps(told), hello, does, str(self.pids))
        self.worker = Worker(argv, {"PATH": "/usr/bin:/bin"}, deadline_s)

    def started(self) -> list[int]:
        return [int(pid) for pid in self.pids.read_text().split()] if self.pids.exists() else []


@pytest.fixture
def fake(tmp_path):
    made = []

    def make(**how):
        made.append(Fake(tmp_path, **how))
        return made[-1]

    yield make
    for one in made:
        one.worker.close()
        assert not any(processes.look(pid) for pid in one.started())


def test_one_process_answers_again_and_again(fake):
    one = fake()
    assert [one.worker.ask(what, names=["n001"]) for what in ("job", "nodes", "job")] == [JOB, NODES, JOB]
    assert len(one.started()) == 1


HANGS = "//time.sleep(1000)"
DIES = "//os.kill(os.getpid(), 11)"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"does": HANGS, "deadline_s": 0.5}, "in time"),
        ({"does": "time.sleep(1000)//", "deadline_s": 0.3}, "in time"),
        ({"does": DIES}, "ended with -11"),
        ({"does": "sys.exit('fatal: no slurm.conf')//"}, "ended with 1: fatal: no slurm.conf"),
        ({"does": "//answer = 'half a li'"}, "nonsense"),
        ({"does": "//answer = '[1, 2]'"}, "nonsense"),
        ({"does": "//answer = '[' * 100000"}, "nonsense"),
        ({"does": "//answer['n'] += 1"}, "answered"),
        ({"does": "//print(json.dumps(answer) * 2, flush=True)"}, "nonsense"),
        ({"does": "//sys.stdout.write('x'); sys.stdout.flush(); os.kill(os.getpid(), 9)"}, "ended with -9"),
        ({"does": "//answer = {'n': n, 'text': 'x' * (1 << 26)}"}, "does not stop"),
    ],
)
def test_one_that_is_late_dies_or_speaks_nonsense_is_gone_and_another_is_started(fake, how, why):
    one = fake(**how)
    for turn in (1, 2):
        with pytest.raises(LostError, match=why):
            one.worker.ask("job", job=17)
        assert len(one.started()) == turn
        assert not any(processes.look(pid) for pid in one.started())


def test_one_that_hangs_while_it_is_asked_for_many_nodes_is_late_too(fake):
    one = fake(deadline_s=2.0)
    assert one.worker.ask("job") == JOB
    os.kill(one.started()[0], 19)
    with pytest.raises(LostError, match="in time"):
        one.worker.ask("nodes", names=[f"n{i:06d}" for i in range(50_000)])  # more than a pipe holds


@pytest.mark.parametrize(
    "hello",
    [
        HELLO.replace("44", "43"),  # the library of another Slurm
        HELLO.replace("[25,11,7]", "[25,5,1]"),  # built for another
        HELLO.replace("44", "45").replace("[25,11,7]", "[26,5,1]"),  # both of one that nobody has tried
        HELLO.replace("44", '"44"'),
        HELLO.replace("[25,11,7]", "25"),
        HELLO.replace('"schema":1', '"schema":2'),
        "{}",
        '{"schema":1,"unfit":"No module named pyslurm"}',
    ],
)
def test_a_version_that_was_not_tried_is_never_asked(fake, hello):
    one = fake(hello=hello, does="//raise SystemExit('it was asked')")
    with pytest.raises(UnfitError):
        one.worker.ask("job", job=17)


def test_a_python_that_is_not_there_is_unfit():
    with pytest.raises(UnfitError, match="No such file"):
        Worker(("/nowhere/python",), {}).ask("job")


def test_what_it_declines_is_told_and_it_lives(fake):
    one = fake(does="//answer = {'n': n, 'error': 'RPCError: gone'} if ask == 'job' else answer")
    with pytest.raises(DeclinedError, match="RPCError: gone"):
        one.worker.ask("job", job=17)
    assert one.worker.ask("steps") == STEPS
    assert len(one.started()) == 1


class Place:
    """Commands that only print, and note that they were asked; beside them a worker, a log and a clock."""

    def __init__(self, folder: Path, worker: Worker) -> None:
        self.folder = folder
        for name, text in {"squeue": JOB.replace("None", "Commands"), "scontrol": "", "sinfo": NODES}.items():
            (folder / f"{name}.out").write_text(text)
            script = folder / name
            script.write_text(f'#!/bin/sh\necho "{name} $*" >>{folder}/asked\ncat {folder}/{name}.out\n')
            script.chmod(0o755)
        self.now = 1000.0
        self.said: list[str] = []
        env = {"PATH": f"{folder}:/usr/bin:/bin"}
        self.native = Native(Commands("17", env, 5.0), worker, self.said.append, lambda: self.now)

    def asked(self) -> list[str]:
        path = self.folder / "asked"
        lines = [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
        path.write_text("")
        return lines

    def reason(self) -> str:
        """Of the job: who told of it."""
        job = self.native.job()
        assert isinstance(job, JobRow), job
        return job.reason


def test_where_the_worker_tells_no_command_is_asked(fake, tmp_path):
    place = Place(tmp_path, fake().worker)
    assert place.reason() == ""
    steps, nodes = place.native.steps(), place.native.nodes(("n001", "n002"))
    assert not isinstance(steps, Unreadable)
    assert not isinstance(nodes, Unreadable)
    assert [(step.id, step.name, len(step.nodes)) for step in steps] == [
        ("17.batch", "batch", 1),
        ("17.4", "demo.a0001.e1", 3),
    ]
    assert (nodes["n002"].state, nodes["n002"].reason) == ("allocated+drain", "fan 3 | bad")
    assert place.native.nodes(()) == {}
    assert (place.asked(), place.said) == ([], [])


@pytest.mark.parametrize("does", [HANGS, DIES])
def test_a_read_in_doubt_is_made_by_commands_until_the_worker_has_rested(fake, tmp_path, does):
    one = fake(does=does, deadline_s=0.5)
    place = Place(tmp_path, one.worker)
    assert place.reason() == "Commands"
    assert place.asked() == ["scontrol", "squeue"]  # a ping first: perhaps it is slurmctld that hangs
    place.now += REST_S - 1
    assert place.reason() == "Commands"
    assert len(one.started()) == 1
    place.now += 1
    assert place.reason() == "Commands"
    assert len(one.started()) == 2
    place.now += 2 * REST_S - 1  # each time twice as long
    assert place.reason() == "Commands"
    assert len(one.started()) == 2
    place.now += 1
    assert place.reason() == "Commands"
    assert len(one.started()) == 3
    assert len(place.said) == 1
    assert "read by its commands" in place.said[0]
    place.now += 4 * REST_S + LONGEST_REST_S + 1  # long ago: a new story
    place.reason()
    place.now += REST_S
    place.reason()
    assert len(one.started()) == 5


def test_it_says_once_that_the_worker_tells_again(fake, tmp_path):
    ill = tmp_path / "ill"
    ill.touch()
    one = fake(does=f"//if os.path.exists({str(ill)!r}): sys.exit(3)")
    place = Place(tmp_path, one.worker)
    assert place.reason() == "Commands"
    ill.unlink()
    place.now += REST_S
    assert [place.reason(), place.reason()] == ["", ""]
    assert len(place.said) == 2
    assert place.said[1] == "pyslurm tells again"


def test_what_does_not_fit_is_said_once_and_never_tried_again(fake, tmp_path):
    one = fake(hello=HELLO.replace("44", "45"))
    place = Place(tmp_path, one.worker)
    for _ in range(3):
        assert place.reason() == "Commands"
        place.now += LONGEST_REST_S
    assert len(one.started()) == 1
    assert len(place.said) == 1
    assert "pyslurm is not used" in place.said[0]


@pytest.mark.parametrize(
    ("told", "asks"),
    [
        ({"job": "17|RUNNING\n"}, "job"),
        ({"job": "16|RUNNING|x|n001|n001|None\n"}, "job"),
        ({"job": ""}, "job"),
        ({"job": JOB.replace("RUNNING", "QUANTUM")}, "job"),
        ({"steps": "4|RUNNING|n001|x\n"}, "steps"),
        ({"nodes": "n001|\n"}, "nodes"),
        ({"nodes": "n001/../x|idle|10.0.0.9|\n"}, "nodes"),
    ],
)
def test_rows_that_are_none_are_asked_of_the_commands(fake, tmp_path, told, asks):
    place = Place(tmp_path, fake(told=RIGHT | told).worker)
    {"job": place.native.job, "steps": place.native.steps, "nodes": lambda: place.native.nodes(("n001",))}[asks]()
    assert [name for name in place.asked() if name != "scontrol"] == [{"nodes": "sinfo"}.get(asks, "squeue")]


def test_where_neither_can_tell_it_is_unreadable(fake, tmp_path):
    place = Place(tmp_path, fake(does="//answer = {'n': n, 'error': 'RPCError: connect failure'}").worker)
    for name in ("squeue", "scontrol"):
        (tmp_path / name).write_text("#!/bin/sh\necho away >&2; exit 1\n")
    assert place.native.job() == Unreadable("scontrol ping ended with 1: away")
    assert place.said == []  # that Slurm is away, the view says


def test_the_cluster_port_sees_through_a_worker(fake, tmp_path):
    env = {"PATH": "/nowhere"}
    worker = fake().worker
    natives = []

    def reads(commands):
        natives.append(Native(commands, worker, pytest.fail))
        return natives[0]

    view = SlurmCommands(str(tmp_path), "17", env=env, reads=reads).read()
    assert isinstance(view, ClusterView)
    assert set(view.nodes) == {"n001", "n002", "n003"}
    natives[0].close()
