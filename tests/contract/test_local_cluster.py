"""A local cluster: real daemons and real processes on this machine, seen through the cluster port."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from slurm import localfiles, processes, sockets
from slurm.cluster import Cluster, ClusterView, LaunchSpec, NodeCondition, Unreadable
from slurm.local import LocalCluster
from supervisor.bench import nodes

NODES = ("n000", "n001")
WAIT_S = 15.0
SLEEP = ("/bin/sleep", "1000")


class World:
    """A booted cluster, and a way to wait for what it shows instead of sleeping."""

    def __init__(self, run_dir: Path, **settings: float) -> None:
        self.run_dir = str(run_dir)
        self.cluster = LocalCluster(self.run_dir, NODES, **settings)
        self.changed = threading.Event()
        self.cluster.on_change(self.changed.set)

    def view(self) -> ClusterView:
        view = self.cluster.read()
        assert isinstance(view, ClusterView), view
        return view

    def until(self, true_of):
        """The first view of which it is true. Silence and death are not announced, so it also looks every 50 ms."""
        waited = 0.0
        while waited < WAIT_S:
            view = self.view()
            if true_of(view):
                return view
            waited += 0.0 if self.changed.wait(0.05) else 0.05
            self.changed.clear()
        raise AssertionError(f"not seen in {WAIT_S} s: {self.view()}")

    def spec(self, argv=SLEEP, name="demo.a0001.e1", hosts=NODES, epoch=1, **env) -> LaunchSpec:
        return LaunchSpec(name, epoch, hosts, argv, env, self.run_dir, f"{self.run_dir}/{name}.out")

    def run(self, *arguments, **settings):
        """Launch and wait until its tasks are shown, running or not."""
        spec = self.spec(*arguments, **settings)
        self.cluster.launch(spec)
        self.until(lambda _: set(spec.hosts) <= {node for node in NODES if self.tasks(node, spec.name)})
        return spec

    def tasks(self, node, step="demo.a0001.e1"):
        file = localfiles.read_node(self.run_dir, node)
        return file.steps[step].tasks if step in file.steps else {}

    def output(self, step="demo.a0001.e1") -> str:
        path = Path(f"{self.run_dir}/{step}.out")
        return path.read_text() if path.exists() else ""  # a task that is shown may not have come to its first act

    def done(self, step="demo.a0001.e1"):
        return self.until(lambda view: step in view.steps and not view.steps[step].running)

    def close(self) -> None:
        self.cluster.release(1 << 30)
        self.cluster.close()


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.cluster.boot()
    yield world
    world.close()


def condition(view, node):
    return view.nodes[node].condition


def python(text, *arguments):
    return (sys.executable, "-I", "-S", "-c", text, *arguments)


def test_it_is_a_cluster(tmp_path):
    cluster: Cluster = LocalCluster(str(tmp_path), NODES)
    view = cluster.read()
    cluster.release(1)
    assert isinstance(view, ClusterView)
    assert {row.condition for row in view.nodes.values()} == {NodeCondition.UNKNOWN}  # never started is not fine


def test_each_task_runs_once_with_its_place(world):
    text = "import os; print(os.environ['RELIGHT_PROCID'], os.environ['RELIGHT_NODE'], os.getcwd(), os.environ['X'])"
    world.run(python(text), hosts=("n001", "n000", "n001"), X="y")
    world.done()
    here = os.path.realpath(world.run_dir)
    assert sorted(world.output().splitlines()) == [f"0 n001 {here} y", f"1 n000 {here} y", f"2 n001 {here} y"]


def test_the_place_of_an_outer_slurm_job_is_not_passed_on(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "7")
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    world = World(tmp_path)
    world.cluster.boot()
    try:
        world.run(python("import os; print(os.environ.get('SLURM_PROCID'), os.environ['SLURM_JOB_ID'])"))
        world.done()
        assert world.output() == "None 123\n" * 2
    finally:
        world.close()


def test_codes_and_signals_are_shown(world):
    world.run(python("import os,sys; sys.exit(5) if os.environ['RELIGHT_PROCID'] == '0' else os.kill(os.getpid(), 11)"))
    world.done()
    assert (world.tasks("n000")[0].code, world.tasks("n000")[0].signal) == (5, None)
    assert (world.tasks("n001")[1].code, world.tasks("n001")[1].signal) == (None, 11)


def test_a_command_that_does_not_exist_is_an_exit_and_says_why(world):
    world.run(("/no/such/program",))
    world.done()
    assert world.tasks("n000")[0].code == 127
    assert "/no/such/program" in world.output()


def test_the_same_name_starts_once(world):
    world.run()
    pid = world.tasks("n000")[0].pid
    world.cluster.launch(world.spec(("/bin/false",)))
    assert world.cluster.probe("n000", WAIT_S)  # orders are heard in order: the launch was heard before the ping
    assert list(world.tasks("n000")) == [0]
    assert world.tasks("n000")[0].pid == pid
    world.cluster.stop("demo.a0001.e1", 1)
    world.done()
    world.cluster.launch(world.spec())
    assert world.cluster.probe("n000", WAIT_S)
    assert not world.view().steps["demo.a0001.e1"].running


@pytest.mark.parametrize("leaves", ["os.setpgid(0, 0)", "os.setsid()", "os.setsid()\n if os.fork(): os._exit(0)"])
def test_stop_reaches_children_that_left_their_group_or_session(world, leaves):
    text = (
        "import os,sys,time\n"
        f"if os.fork() == 0:\n {leaves}\n print(os.getpid(), flush=True)\n"
        " time.sleep(1000)\ntime.sleep(1000)"
    )
    world.run(python(text), hosts=("n000",))
    world.until(lambda _: world.output().endswith("\n"))
    stray = int(world.output())
    assert processes.look(stray) is not None
    world.cluster.stop("demo.a0001.e1", 1)
    world.done()
    assert processes.look(stray) is None


@pytest.mark.parametrize("leaves", ["", "os.setsid(); "])
def test_a_step_runs_until_its_leftovers_are_gone(world, leaves):
    text = (
        "import os,time\nwait, tell = os.pipe()\nchild = os.fork()\n"
        f"if child == 0: {leaves}os.write(tell, b'!'); time.sleep(1000)\n"
        "os.read(wait, 1)\nprint(child, flush=True)"
    )
    world.run(python(text), hosts=("n000",))
    world.done()
    assert processes.look(int(world.output())) is None
    assert world.tasks("n000")[0].code == 0  # how it ended is not how its leftovers ended


def test_a_release_ends_what_a_task_has_left_in_a_session_of_its_own(world):
    text = "import os,time\nchild = os.fork()\nif child == 0: os.setsid(); print(os.getpid(), flush=True)\ntime.sleep(1000)"
    world.run(python(text), hosts=("n000",))
    world.until(lambda _: world.output().endswith("\n"))
    world.cluster.release(1)
    assert processes.look(int(world.output())) is None


def test_a_lower_epoch_is_ignored(world):
    world.run(epoch=5)
    world.cluster.stop("demo.a0001.e1", 4)
    world.cluster.launch(world.spec(name="demo.a0002.e4", epoch=4))
    world.cluster.release(4)
    assert world.cluster.probe("n000", WAIT_S)
    assert world.view().steps["demo.a0001.e1"].running_on == set(NODES)
    assert "demo.a0002.e4" not in world.view().steps
    world.cluster.stop("demo.a0001.e1", 5)
    world.done()


def test_an_epoch_is_remembered_over_the_death_of_a_daemon(world):
    world.run(epoch=5)
    nodes.kill_node(world.run_dir, "n000")
    nodes.revive_node(world.run_dir, "n000")
    world.cluster.launch(world.spec(name="demo.a0002.e4", epoch=4, hosts=("n000",)))
    world.cluster.launch(world.spec(epoch=5))
    assert world.cluster.probe("n000", WAIT_S)
    assert world.view().steps["demo.a0001.e1"].running_on == {"n001"}
    assert world.tasks("n000")[0].signal == signal.SIGKILL


def test_a_launch_that_one_node_has_not_heard_of_is_told_again(world):
    spec = world.spec()
    localfiles.write_order(world.run_dir, spec)
    world.cluster.launch(replace(spec, hosts=("n000",)))  # the first order stands: for both nodes
    view = world.until(lambda view: "demo.a0001.e1" in view.steps)
    assert view.steps["demo.a0001.e1"].known_on == {"n000"}
    before = world.tasks("n000")[0].pid
    world.cluster.launch(spec)
    world.until(lambda view: view.steps["demo.a0001.e1"].known_on == set(NODES))
    assert world.tasks("n000")[0].pid == before


def test_nodes_outlive_their_starter_and_are_adopted(tmp_path):
    text = (
        "import sys; from slurm.local import LocalCluster; from slurm.cluster import LaunchSpec; d = sys.argv[1]\n"
        "c = LocalCluster(d, ('n000', 'n001')); c.boot()\n"
        "c.launch(LaunchSpec('demo.a0001.e1', 1, ('n000', 'n001'), ('/bin/sleep', '1000'), {}, d, d + '/out'))"
    )
    subprocess.run([sys.executable, "-c", text, str(tmp_path)], check=True)
    world = World(tmp_path)
    try:
        world.until(lambda view: "demo.a0001.e1" in view.steps)
        assert world.cluster.boot() == frozenset()
        pids = {node: world.tasks(node)[number].pid for number, node in enumerate(NODES)}
        assert all(processes.look(pid) for pid in pids.values())
    finally:
        world.close()
    assert not any(processes.look(pid) for pid in pids.values())


def test_a_killed_node_is_down_and_holds_no_task(world):
    world.run()
    pid = world.tasks("n000")[0].pid
    nodes.kill_node(world.run_dir, "n000")
    view = world.view()
    assert condition(view, "n000") is NodeCondition.DOWN
    assert condition(view, "n001") is NodeCondition.UP
    assert view.steps["demo.a0001.e1"].running_on == {"n001"}
    assert processes.look(pid) is None
    assert not world.cluster.probe("n000", 0.2)


def test_a_lost_node_stays_lost_until_it_is_revived(world):
    nodes.kill_node(world.run_dir, "n000")
    assert world.cluster.boot() == frozenset()
    assert condition(world.view(), "n000") is NodeCondition.DOWN
    nodes.revive_node(world.run_dir, "n000")
    assert condition(world.view(), "n000") is NodeCondition.UP
    assert world.cluster.probe("n000", WAIT_S)


def test_tasks_die_with_their_daemon(world):
    world.run()
    daemon = localfiles.read_node(world.run_dir, "n000")
    assert daemon is not None
    os.kill(daemon.pid, signal.SIGKILL)
    assert processes.wait_gone([daemon.pid, world.tasks("n000")[0].pid], WAIT_S)
    world.until(lambda view: view.steps["demo.a0001.e1"].running_on == {"n001"})


def test_what_survives_a_dead_daemon_still_counts_and_can_be_stopped(world):
    # A grandchild is not told of the daemon's death; the step is not over while it lives.
    text = "import os,time\nif os.fork() == 0:\n print(os.getpid(), flush=True)\ntime.sleep(1000)"
    world.run(python(text), hosts=("n000",))
    world.until(lambda _: world.output().endswith("\n"))
    survivor = int(world.output())
    daemon = localfiles.read_node(world.run_dir, "n000")
    assert daemon is not None
    os.kill(daemon.pid, signal.SIGKILL)
    assert processes.wait_gone([daemon.pid, world.tasks("n000")[0].pid], WAIT_S)
    view = world.view()
    assert condition(view, "n000") is NodeCondition.DOWN
    assert view.steps["demo.a0001.e1"].running_on == {"n000"}
    world.cluster.stop("demo.a0001.e1", 1)
    assert processes.wait_gone([survivor], WAIT_S)
    assert not world.view().steps["demo.a0001.e1"].running


def test_a_frozen_node_is_silent_keeps_its_tasks_and_thaws(tmp_path):
    world = World(tmp_path, silent_after_s=1.5)
    world.cluster.boot()
    try:
        world.run()
        nodes.freeze_node(world.run_dir, "n000")
        view = world.until(lambda view: condition(view, "n000") is NodeCondition.SILENT)
        assert view.steps["demo.a0001.e1"].running_on == set(NODES)
        assert condition(view, "n001") is NodeCondition.UP
        assert not world.cluster.probe("n000", 0.2)
        assert world.cluster.probe("n001", WAIT_S)
        world.cluster.stop("demo.a0001.e1", 1)
        world.until(lambda view: view.steps["demo.a0001.e1"].running_on == {"n000"})
        nodes.thaw_node(world.run_dir, "n000")
        view = world.done()  # the order was waiting for it
        world.until(lambda view: condition(view, "n000") is NodeCondition.UP)
    finally:
        world.close()


def test_release_leaves_nothing_behind_not_even_what_is_frozen(world):
    world.run()
    pids = [
        p
        for n in NODES
        for p in (localfiles.read_node(world.run_dir, n).pid, *[t.pid for t in world.tasks(n).values()])
    ]
    nodes.freeze_node(world.run_dir, "n001")
    Path(sockets.agent_lock(sockets.socket_dir(world.run_dir), "n000")).touch()  # as its agent does
    cluster = LocalCluster(world.run_dir, NODES, release_deadline_s=0.5)
    cluster.release(1)
    assert [pid for pid in pids if processes.look(pid)] == []
    view = world.view()
    assert {row.condition for row in view.nodes.values()} == {NodeCondition.DOWN}
    assert view.nodes["n000"].reason == "released"
    world.cluster.close()
    assert not os.path.exists(sockets.socket_dir(world.run_dir))
    assert world.cluster.boot() == {"n000"}  # n001 was killed, so it is lost; n000 was let go


def test_two_boots_at_once_make_one_daemon(tmp_path):
    world = World(tmp_path)
    try:
        threads = [threading.Thread(target=LocalCluster(str(tmp_path), NODES).boot) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        file = localfiles.read_node(str(tmp_path), "n000")
        assert file is not None
        mark = {"RELIGHT_NODE": "n000", "RELIGHT_RUN_DIR": str(tmp_path)}
        carriers = [int(name) for name in os.listdir("/proc") if name.isdigit() and processes.holds(int(name), mark)]
        assert [pid for pid in carriers if processes.look(pid)] == [file.pid]
    finally:
        world.close()


def test_a_daemon_survives_what_is_no_order(world):
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    path = sockets.node_socket(sockets.socket_dir(world.run_dir), "n000")
    with sender:
        for order in (
            b"",
            b"\xff\xfe",
            b"[]",
            b"[" * 60000,
            b"7",
            b'{"op":"run"}',
            b'{"op":"run","epoch":1,"name":"../../x"}',
        ):
            sender.sendto(order, path)
        sender.sendto(b'{"op":"run","epoch":1,"name":"no-such-order"}', path)
    assert world.cluster.probe("n000", WAIT_S)
    assert world.view().steps == {}


def test_a_node_file_that_lies_makes_the_cluster_unreadable(world):
    world.run()
    nodes.kill_node(world.run_dir, "n000")
    path = Path(localfiles.node_path(world.run_dir, "n000"))
    whole = path.read_text()
    for bad in (whole[:40], "[]", whole.replace('"pid":', '"pid":-'), whole.replace('"n000"', '"n009"')):
        path.write_text(bad)
        answer = world.cluster.read()
        assert isinstance(answer, Unreadable), bad
        assert "n000" in answer.why
    path.write_text(whole)
    assert isinstance(world.cluster.read(), ClusterView)


def test_a_pid_that_is_used_again_is_not_the_node(world):
    nodes.kill_node(world.run_dir, "n000")
    path = Path(localfiles.node_path(world.run_dir, "n000"))
    document = json.loads(path.read_text()) | {"pid": os.getpid()}  # alive, but it began at another time
    path.write_text(json.dumps(document))
    assert condition(world.view(), "n000") is NodeCondition.DOWN
    world.cluster.release(1)  # must not touch us, nor anybody in our session


def test_an_unknown_host_and_a_bad_name_are_refused(world):
    with pytest.raises(ValueError, match="n009"):
        world.cluster.launch(world.spec(hosts=("n000", "n009")))
    with pytest.raises(ValueError, match="not a name"):
        world.cluster.launch(world.spec(name="../x"))
    with pytest.raises(ValueError, match="not a name"):
        LocalCluster(world.run_dir, ("../x",))


def test_a_socket_directory_that_is_open_to_others_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path)[:50])
    path = Path(sockets.socket_dir("/some/run"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/" + "x" * 90)
    assert sockets.socket_dir("/some/run").startswith("/tmp/")  # too long for a socket's path
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    path = Path(sockets.make_socket_dir(str(tmp_path)))
    path.chmod(0o755)
    with pytest.raises(PermissionError, match="0700"):
        sockets.make_socket_dir(str(tmp_path))
    path.rmdir()
    path.symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="0700"):
        sockets.make_socket_dir(str(tmp_path))
    path.unlink()
