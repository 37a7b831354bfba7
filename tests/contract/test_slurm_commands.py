"""The cluster port over Slurm's commands, on a real slurmctld with real slurmds. Needs root; else skipped, saying why."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_world import STEP, WAIT_S, World, shell

from slurm import hostlist, launching, localfiles, parsing, processes
from slurm.cluster import Cluster, ClusterView, NodeCondition, Unreadable
from slurm.commands import SlurmCommands
from slurm.parsing import JobRow
from slurm.states import Phase

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm")]

KEY = "relight demo incident 3"


@pytest.fixture
def world(bed, tmp_path, python) -> Iterator[World]:
    world = World(bed, tmp_path, pyslurm=python)
    yield world
    world.close()


def condition(view, node):
    return view.nodes[node].condition


def test_it_is_a_cluster_that_shows_its_nodes(world):
    cluster: Cluster = world.cluster
    view = cluster.read()
    assert isinstance(view, ClusterView)
    assert set(view.nodes) == set(world.nodes)
    assert {row.condition for row in view.nodes.values()} == {NodeCondition.UP}
    assert {row.switch for row in view.nodes.values()} <= {"leaf0", "leaf1"}
    assert view.steps == {}  # the batch script is none of ours
    job = world.cluster.job()
    assert isinstance(job, JobRow)
    assert (job.phase, list(job.nodes), job.batch_host) == (Phase.RUNNING, world.nodes, world.nodes[0])


def test_each_task_runs_once_with_its_place_in_slot_order(world):
    first, second, third = world.nodes
    text = 'echo "$SLURM_PROCID $SLURMD_NODENAME $PWD $X $CUDA_VISIBLE_DEVICES $RELIGHT_STEP"'
    world.cluster.launch(world.spec(shell(text), hosts=(third, first, first, second), X="y z"))
    view = world.done()
    here = os.path.realpath(world.run_dir)
    places = enumerate((third, first, first, second))
    assert sorted(world.output().splitlines()) == [f"{i} {node} {here} y z 0,1 {STEP}" for i, node in places]
    assert view.steps[STEP].known_on == set(world.nodes)
    assert launching.exit_code(world.run_dir, STEP) == 0


def test_an_agent_and_a_probe_run_beside_the_ranks_and_hold_no_gpu(world):
    world.run()
    node = world.nodes[1]
    agent = f"demo.agent.{node}.e1.1"
    world.cluster.launch(
        world.spec(shell('echo "gpus:$CUDA_VISIBLE_DEVICES."; exec sleep 1000'), name=agent, hosts=(node,))
    )
    world.until(lambda _: world.output(agent) == "gpus:.\n")
    assert world.cluster.probe(node, WAIT_S)
    view = world.view()
    assert view.steps[agent].running_on == {node}
    assert view.steps[STEP].running_on == set(world.nodes)
    assert set(view.steps) == {agent, STEP}


def test_the_same_name_starts_once_whoever_asks(world):
    others = [world.again() for _ in range(3)]
    threads = [threading.Thread(target=cluster.launch, args=(world.spec(),)) for cluster in (world.cluster, *others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.until(lambda _: all(world.tasks(node) for node in world.nodes))
    world.again().launch(world.spec(("/bin/false",)))
    named = [row for row in world.bed.run("squeue", "-s", "-h", "-j", world.job, "-o", "%j").split() if row == STEP]
    assert named == [STEP]
    assert all(len(world.tasks(node)) == 1 for node in world.nodes)
    world.cluster.stop(STEP, 1)
    world.done()
    world.cluster.launch(world.spec())
    assert not world.view().steps[STEP].running
    assert not any(world.tasks(node) for node in world.nodes)


def test_a_kill_that_overtakes_the_launch_holds(world):
    world.cluster.stop(STEP, 1)
    world.cluster.launch(world.spec())
    row = world.view().steps[STEP]
    assert (row.running, row.known_on) == (False, set(world.nodes))
    assert world.bed.run("squeue", "-s", "-h", "-j", world.job, "-o", "%j").split() == ["batch"]


def test_a_controller_that_dies_between_order_and_claim_is_followed_by_one_that_starts_it(world):
    localfiles.write_order(world.run_dir, world.spec())
    assert world.view().steps == {}
    world.again().launch(world.spec(("/bin/false",)))  # the first order stands
    world.until(lambda _: all(world.tasks(node) for node in world.nodes))
    assert world.view().steps[STEP].running_on == set(world.nodes)


def test_a_stop_that_meets_srun_before_it_has_made_its_step(world):
    """srun is frozen right after its start, as on a slow machine: nothing is listed, and nothing may be called over."""
    stuck = ("/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh")
    spec = world.spec()
    localfiles.write_order(world.run_dir, spec)
    argv = (*stuck, *launching.command(world.job, spec, ()))
    assert launching.start(world.run_dir, world.job, spec, argv, world.bed.env, WAIT_S)
    assert world.view().steps[STEP].running_on == set(world.nodes)
    world.cluster.stop(STEP, 1)
    assert not world.view().steps[STEP].running
    world.again().launch(spec)
    assert not world.view().steps[STEP].running


def test_a_lower_epoch_is_ignored(world):
    world.run(epoch=5)
    old = world.again()
    old.stop(STEP, 4)
    old.launch(world.spec(name="demo.a0002.e4", epoch=4))
    old.release(4)
    assert world.view().steps[STEP].running_on == set(world.nodes)
    assert "demo.a0002.e4" not in world.view().steps
    assert all(world.tasks(node) for node in world.nodes)
    world.cluster.stop(STEP, 5)
    world.done()


@pytest.mark.parametrize("leaves", ["", "setsid "])
def test_stop_reaches_what_the_tasks_have_started(world, leaves):
    # linuxproc kills children first, so a shell that would start another sleep now could leave it behind (docs/slurm.md).
    world.run(shell(f"trap '' TERM INT; {leaves}sleep 1000 & {leaves}sleep 1000 & wait"), hosts=world.nodes[:2])
    world.until(lambda _: all(len(world.tasks(node)) >= 2 for node in world.nodes[:2]))
    world.cluster.stop(STEP, 1)
    world.done()
    world.until(lambda _: not any(world.tasks(node) for node in world.nodes[:2]))


def sruns(claim) -> tuple[int, int]:
    """Pids of a step's srun and of its child, which kills the step when srun ends without a word."""
    named = [one for one in processes.members(claim.session) if Path(f"/proc/{one.pid}/comm").read_text() == "srun\n"]
    (child,) = [one for one in named if one.parent in {other.pid for other in named}]
    return child.parent, child.pid


def test_a_step_outlives_its_srun_and_is_adopted(world):
    world.run(shell('while sleep 0.1; do echo "alive $SLURM_PROCID"; done'))
    claim = launching.read_claim(world.run_dir, STEP)
    assert claim is not None
    assert claim.session != os.getsid(0)
    _, child = sruns(claim)
    processes.send([child], signal.SIGKILL)  # first, as what ends both at once may also do
    assert processes.wait_gone([child], WAIT_S)
    processes.send([one.pid for one in processes.members(claim.session)], signal.SIGKILL)
    assert processes.wait_gone([claim.pid], WAIT_S)
    lines = world.output().count("alive")
    world.until(lambda _: world.output().count("alive") > lines + 9)  # its words do not go through srun
    world.cluster = world.again()
    assert world.view().steps[STEP].running_on == set(world.nodes)
    world.cluster.launch(world.spec())
    world.cluster.stop(STEP, 1)
    world.done()


def test_a_step_whose_srun_alone_is_killed_is_ended_by_the_child_of_srun(world):
    world.run()
    claim = launching.read_claim(world.run_dir, STEP)
    assert claim is not None
    srun, _ = sruns(claim)
    processes.send([srun], signal.SIGKILL)
    world.done()
    world.until(lambda _: not any(world.tasks(node) for node in world.nodes))
    assert launching.exit_code(world.run_dir, STEP) == 128 + signal.SIGKILL


def test_what_cannot_be_started_is_over_and_says_why(world):
    world.cluster.launch(world.spec(("/no/such/program",)))
    world.done()
    assert "/no/such/program" in world.output()
    assert launching.exit_code(world.run_dir, STEP) == 127
    ends = parsing.task_ends(world.output(), world.spec().hosts)
    assert {one.code for one in ends} == {127}
    assert world.view().steps[STEP].ends == ends


def test_a_host_outside_the_job_and_a_bad_name_are_refused_and_spend_no_name(world):
    outside = next(name for name in world.bed.names if name not in world.nodes)
    with pytest.raises(ValueError, match=outside):
        world.cluster.launch(world.spec(hosts=(world.nodes[0], outside)))
    with pytest.raises(ValueError, match="not a name"):
        world.cluster.launch(world.spec(name="../x"))
    with pytest.raises(ValueError, match="not a job"):
        SlurmCommands(world.run_dir, "1;reboot", env=world.bed.env)
    assert launching.read_claim(world.run_dir, STEP) is None


def test_release_leaves_nothing_of_ours(world):
    world.run()
    agent = f"demo.agent.{world.nodes[1]}.e1.1"
    world.run(name=agent, hosts=world.nodes[1:2])
    claims = [launching.read_claim(world.run_dir, name) for name in (STEP, agent)]
    world.cluster.release(1)
    assert world.bed.run("squeue", "-s", "-h", "-j", world.job, "-o", "%j").split() == ["batch"]
    world.until(lambda _: not any(world.tasks(node) for node in world.nodes))
    assert not any(launching.lives(claim) for claim in claims if claim is not None)
    assert world.bed.job_state(world.job) == "RUNNING"
    world.again(end_job=True).release(1)
    world.bed.until(lambda: world.bed.job_state(world.job) == "CANCELLED", "the job cancelled")


def test_a_job_that_is_cancelled_has_no_nodes(world):
    world.run()
    world.bed.cancel(world.job)
    view = world.done()
    assert set(view.nodes) == set(world.nodes)
    assert {row.condition for row in view.nodes.values()} == {NodeCondition.DOWN}
    assert {row.reason for row in view.nodes.values()} == {f"job {world.job} is CANCELLED"}
    with pytest.raises(OSError, match="CANCELLED"):
        world.cluster.launch(world.spec(name="demo.a0002.e1"))
    assert launching.read_claim(world.run_dir, "demo.a0002.e1") is None
    answer = world.again().read()
    assert isinstance(answer, ClusterView)
    never = SlurmCommands(world.run_dir, "99999", env=world.bed.env).read()
    assert isinstance(never, Unreadable)  # a job that Slurm does not know is no job without nodes


def test_a_job_that_is_requeued_begins_anew(world):
    world.run()
    bed = world.bed
    bed.run("scontrol", "requeue", world.job)
    bed.until(lambda: bed.job_state(world.job) == "PENDING", "pending")
    waiting = world.view()
    assert not waiting.steps[STEP].running
    bed.run("scontrol", "update", f"JobId={world.job}", f"ExcNodeList={world.nodes[0]}", "StartTime=now+3")
    bed.until(lambda: bed.job_state(world.job) == "RUNNING", "running again")
    after = bed.job_nodes(world.job)
    assert world.nodes[0] not in after
    view = world.until(lambda view: set(view.nodes) == set(after))
    assert {row.condition for row in view.nodes.values()} == {NodeCondition.UP}
    assert not view.steps[STEP].running
    world.cluster.launch(world.spec(name="demo.a0002.e2", hosts=after, epoch=2))
    world.until(lambda view: "demo.a0002.e2" in view.steps and view.steps["demo.a0002.e2"].running)


def drain_of(bed, node):
    """(drained?, reason) as Slurm has it."""
    state, reason = bed.run("sinfo", "-h", "-N", "-n", node, "-O", "StateComplete:|,Reason:|").strip().split("|")[:2]
    return "drain" in state, reason


def test_a_bar_drains_with_our_key_and_only_that_key_lifts_it(world):
    node = world.nodes[1]
    world.run()
    world.cluster.bar(node, KEY)
    world.cluster.bar(node, "relight demo incident 4")
    assert drain_of(world.bed, node) == (True, KEY)
    assert condition(world.view(), node) is NodeCondition.UP  # our own bar is looked through
    assert world.view().steps[STEP].running_on == set(world.nodes)
    world.cluster.unbar(node, "relight demo incident 4")
    assert drain_of(world.bed, node) == (True, KEY)
    world.again().unbar(node, KEY)
    assert not drain_of(world.bed, node)[0]
    assert not Path(world.run_dir, f"nodes/{node}/bar.json").exists()
    world.cluster.unbar(node, KEY)  # nothing to lift is no error


def test_a_drain_by_somebody_else_stays_theirs(world):
    node = world.nodes[1]
    world.bed.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=fan 3 | bad")
    world.cluster.bar(node, KEY)
    assert drain_of(world.bed, node) == (True, "fan 3 ")  # the rest stands behind the bar
    row = world.view().nodes[node]
    assert (row.condition, row.reason) == (NodeCondition.DRAINED, "fan 3 | bad")
    world.cluster.unbar(node, KEY)
    assert drain_of(world.bed, node)[0]


def test_somebody_who_drains_over_our_bar_keeps_it(world):
    node = world.nodes[1]
    world.cluster.bar(node, KEY)
    world.bed.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=fan 3")
    assert condition(world.view(), node) is NodeCondition.DRAINED
    world.cluster.unbar(node, KEY)
    assert drain_of(world.bed, node) == (True, "fan 3")


def test_without_the_right_to_drain_our_own_note_stands_and_it_is_said(world):
    cluster = world.again(env=world.bed.as_user(65534))
    assert cluster.drain_refused is None
    cluster.bar(world.nodes[1], KEY)
    assert cluster.drain_refused is not None
    assert "scontrol update" in cluster.drain_refused
    assert drain_of(world.bed, world.nodes[1])[0] is False
    assert Path(world.run_dir, f"nodes/{world.nodes[1]}/bar.json").exists()
    assert condition(world.view(), world.nodes[1]) is NodeCondition.UP
    cluster.unbar(world.nodes[1], KEY)
    assert not Path(world.run_dir, f"nodes/{world.nodes[1]}/bar.json").exists()


def test_an_absent_slurmctld_is_unreadable_and_harms_nothing(world):
    world.run()
    world.bed.stop_controller()
    try:
        first = world.cluster.read()
        again = world.cluster.read()
        assert isinstance(first, Unreadable)
        assert isinstance(again, Unreadable)
        assert "scontrol ping" in again.why  # what follows a failure is not waited for
        with pytest.raises(OSError, match="ping"):
            world.cluster.launch(world.spec(name="demo.a0002.e1"))
        with pytest.raises(OSError, match="ping"):
            world.cluster.stop(STEP, 1)
        assert launching.read_claim(world.run_dir, "demo.a0002.e1") is None
        assert all(world.tasks(node) for node in world.nodes)
    finally:
        world.bed.start_controller()
    view = world.until(lambda view: {condition(view, node) for node in world.nodes} == {NodeCondition.UP})
    assert view.steps[STEP].running_on == set(world.nodes)
    world.cluster.stop(STEP, 1)
    world.done()
    world.cluster.launch(world.spec(name="demo.a0002.e1"))
    world.until(lambda view: "demo.a0002.e1" in view.steps and view.steps["demo.a0002.e1"].running)


def test_one_node_crashes_and_one_hangs(bed, tmp_path, python):
    world = World(bed, tmp_path, nodes=5, pyslurm=python)
    try:
        batch, spare, well, crashed, hung = world.nodes
        world.run(hosts=(hung, well, crashed))
        bed.crash_node(crashed, reset=True)  # srun as it comes would kill all the others now
        bed.hang_node(hung)
        assert not world.cluster.probe(crashed, 5.0)
        assert not world.cluster.probe(hung, 1.0)
        assert world.cluster.probe(well, WAIT_S)
        world.until(lambda view: condition(view, hung) is NodeCondition.SILENT)
        assert world.view().steps[STEP].running_on == {well, crashed, hung}  # Slurm waits until we have looked
        assert world.tasks(well)
        assert "abort" not in world.output()
        world.cluster.stop(STEP, 1)
        # Slurm names all three until the step is over; that the well node is empty, srun has said.
        view = world.until(lambda view: well not in view.steps[STEP].running_on)
        assert hung in view.steps[STEP].running_on
        assert condition(view, hung) is NodeCondition.SILENT
        assert not world.tasks(well)
        assert world.tasks(hung)
        view = world.until(lambda view: {condition(view, n) for n in (crashed, hung)} == {NodeCondition.DOWN})
        assert not view.steps[STEP].running
        view = world.until(lambda view: all("left job" in view.nodes[n].reason for n in (crashed, hung)))
        with pytest.raises(OSError, match=crashed):
            world.cluster.launch(world.spec(name="demo.a0002.e1", hosts=(spare, crashed)))
        world.run(name="demo.a0003.e1", hosts=(spare, well))
        bed.revive_node(hung)
        world.until(lambda _: not world.tasks(hung))  # slurmd is told that the step is over
        assert condition(world.view(), hung) is NodeCondition.DOWN  # for this job it is gone for good
        assert world.view().steps["demo.a0003.e1"].running_on == {spare, well}
        late = world.again().read()  # a controller that comes now knows who was here once
        assert isinstance(late, ClusterView)
        assert set(late.nodes) == {batch, spare, well, crashed, hung}
    finally:
        world.close()


def test_the_plant_a_srun_as_it_comes_ends_the_step(world):
    """Why SLURM_PTY_PORT is set for srun: by default a connection that is reset makes it kill every rank that is left."""
    _, well, crashed = world.nodes
    argv = ("srun", f"--jobid={world.job}", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "-n2")
    with open(f"{world.run_dir}/said", "wb") as said:
        bare = subprocess.Popen(
            [*argv, f"--nodelist={well},{crashed}", "sleep", "1000"], env=world.bed.env, stdout=said, stderr=said
        )
    world.until(lambda _: world.tasks(well) and world.tasks(crashed))
    world.bed.crash_node(crashed, reset=True)
    bare.wait(WAIT_S)
    assert b"aborting, io error" in Path(f"{world.run_dir}/said").read_bytes()
    world.until(lambda _: not world.tasks(well))


@pytest.mark.parametrize("short", ["n[001-003,007],login1", "n[9-11]", "r[1-2]n[01-02]", "n[098-101]", "a-b[1],c.d"])
def test_hosts_are_read_as_slurm_reads_them(bed, short):
    assert list(hostlist.expand(short)) == bed.run("scontrol", "show", "hostnames", short).split()


def test_a_bed_dies_with_its_maker(bed):
    text = (
        "import os, sys; from supervisor.bench.slurmbed.bed import SlurmBed; from supervisor.bench.slurmbed.config import Shape\n"
        f"bed = SlurmBed(Shape(nodes=2), {os.environ.get('RELIGHT_SLURM_ROOT', '')!r}); bed.__enter__(); bed.submit(2)\n"
        "print(bed.base, flush=True); sys.stdin.read()"
    )
    maker = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    assert maker.stdin is not None
    base = maker.stdout.readline().strip()
    mark = {"SLURM_CONF": f"{base}/etc/slurm.conf"}
    here = [int(name) for name in os.listdir("/proc") if name.isdigit() and processes.holds(int(name), mark)]
    assert len(here) >= 4  # munged, slurmctld, two nodes
    maker.kill()
    maker.wait()
    maker.stdout.close()
    maker.stdin.close()
    assert processes.wait_gone(here, WAIT_S)
    assert [int(n) for n in os.listdir("/proc") if n.isdigit() and processes.holds(int(n), mark)] == []
    subprocess.run(["/bin/rm", "-rf", base], check=True)
