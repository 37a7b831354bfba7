"""The port over commands that only print: what it makes of answers that a real Slurm gives seldom."""

import contextlib
import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from slurm import launching, localfiles
from slurm.cluster import ClusterView, LaunchSpec, NodeCondition, Unreadable
from slurm.commands import ELSEWHERE_S, SlurmCommands
from supervisor.clusters import open_cluster
from supervisor.errors import REFUSED_EXIT, UserError
from supervisor.rundir import RunDir
from supervisor.settings import ClusterSettings, Settings

STEP = "demo.a0001.e1"
JOB = "17|{state}|2026-12-01T00:20:06|{nodes}|n001|None\n"
ALL = "n[001-003]"
NODES = "n001|allocated|10.0.0.9|none|\nn002|allocated|10.0.0.9|none|\nn003|allocated|10.0.0.9|none|\n"
STEPS = "17.batch|RUNNING|n001|batch|\n17.4|RUNNING|n[001-003]|demo.a0001.e1|\n"
KEY = "relight demo incident 3"


class Printed:
    """A folder of commands that print what they are told to, or fail, and note how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("squeue", "sinfo", "scontrol", "scancel", "srun"):
            script = folder / name
            script.write_text(
                f'#!/bin/sh\necho "{name} $*" >>{folder}/asked\n'
                f'case "$*" in *--steps*) which=steps;; *) which={name};; esac\n'
                f"[ -e {folder}/$which.do ] && . {folder}/$which.do\n"
                f"[ ! -e {folder}/$which.out ] || cat {folder}/$which.out\n"
            )
            script.chmod(0o755)
        self.job()
        self.put("sinfo", NODES)
        self.put("steps", "")
        self.cluster = SlurmCommands(str(folder), "17", env={"PATH": f"{folder}:/usr/bin:/bin"}, call_s=5.0)

    def put(self, name: str, text: str) -> None:
        (self.folder / f"{name}.out").write_text(text)

    def do(self, name: str, text: str) -> None:
        (self.folder / f"{name}.do").write_text(text + "\n")

    def undo(self, name: str) -> None:
        (self.folder / f"{name}.do").unlink()

    def job(self, state: str = "RUNNING", nodes: str = ALL) -> None:
        self.put("squeue", JOB.format(state=state, nodes=nodes))

    def asked(self) -> list[str]:
        path = self.folder / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        path.write_text("")
        return lines

    def view(self) -> ClusterView:
        view = self.cluster.read()
        assert isinstance(view, ClusterView), view
        return view

    def order(self, hosts=("n001", "n002", "n003")) -> LaunchSpec:
        spec = LaunchSpec(STEP, 1, hosts, ("/bin/true",), {}, str(self.folder), f"{self.folder}/out")
        localfiles.write_order(str(self.folder), spec)
        return spec

    def claim(self, **changes) -> None:
        """A claim as a srun leaves it that was started on some machine."""
        head = {"schema": 1, "job": "17", "host": "elsewhere", "boot": "x", "wall": 0.0} | changes
        stat = "4000000 (sh) S 1 4000000 4000000 " + "0 " * 15 + "77 0"
        Path(launching.path(str(self.folder), STEP, "claim")).write_text(f"{json.dumps(head)}\n{stat}\n")


@pytest.fixture
def printed(tmp_path):
    return Printed(tmp_path)


def test_all_is_well(printed):
    printed.order()
    printed.put("steps", STEPS)
    printed.claim()
    view = printed.view()
    assert {row.condition for row in view.nodes.values()} == {NodeCondition.UP}
    assert list(view.steps) == [STEP]
    assert view.steps[STEP].running_on == {"n001", "n002", "n003"}


@pytest.mark.parametrize("which", ["squeue", "steps", "sinfo"])
@pytest.mark.parametrize(
    "does",
    [
        "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1",
        "echo '17|half a li'; exit 0",
        "kill -9 $$",
    ],
)
def test_a_read_that_fails_is_unreadable_and_never_empty(printed, which, does):
    printed.do(which, does)
    answer = printed.cluster.read()
    assert isinstance(answer, Unreadable)
    printed.undo(which)
    assert isinstance(printed.cluster.read(), ClusterView)


def test_a_command_that_hangs_is_unreadable_at_its_deadline(printed, tmp_path):
    printed.do("steps", "sleep 1000")
    cluster = SlurmCommands(str(tmp_path), "17", env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, call_s=0.5)
    answer = cluster.read()
    assert isinstance(answer, Unreadable)
    assert "in time" in answer.why


def test_commands_that_are_not_there_are_unreadable(tmp_path):
    answer = SlurmCommands(str(tmp_path), "17", env={"PATH": "/nowhere"}).read()
    assert isinstance(answer, Unreadable)


def test_after_a_failure_a_ping_comes_first(printed):
    printed.do("squeue", "exit 1")
    printed.cluster.read()
    printed.do("scontrol", "exit 1")
    printed.asked()
    assert isinstance(printed.cluster.read(), Unreadable)
    assert printed.asked() == ["scontrol ping"]
    printed.undo("scontrol")
    printed.undo("squeue")
    assert isinstance(printed.cluster.read(), ClusterView)
    printed.asked()
    printed.cluster.read()
    assert not any("ping" in line for line in printed.asked())


def test_a_job_that_slurm_does_not_know_is_no_empty_job(printed):
    printed.put("squeue", "")
    assert isinstance(printed.cluster.read(), Unreadable)
    printed.job("QUANTUM")
    answer = printed.cluster.read()
    assert isinstance(answer, Unreadable)
    assert "QUANTUM" in answer.why


def test_a_node_that_is_not_listed_is_unknown_and_one_that_has_left_is_down(printed):
    printed.view()
    printed.put("sinfo", "n002|allocated|10.0.0.9|none|\nn003|idle|10.0.0.9|none|\n")
    printed.job(nodes="n[001-002]")
    view = printed.view()
    assert view.nodes["n001"].condition is NodeCondition.UNKNOWN
    assert view.nodes["n002"].condition is NodeCondition.UP
    assert view.nodes["n003"].condition is NodeCondition.DOWN
    assert "left job 17" in view.nodes["n003"].reason


def test_a_controller_that_comes_later_knows_who_was_there(printed, tmp_path):
    printed.view()
    printed.job(nodes="n001")
    later = SlurmCommands(str(tmp_path), "17", env={"PATH": f"{tmp_path}:/usr/bin:/bin"}).read()
    assert isinstance(later, ClusterView)
    assert set(later.nodes) == {"n001", "n002", "n003"}
    for path in tmp_path.glob("nodes/job-17-*.json"):
        path.write_text('{"schema":2,"nodes":["n001"]}')
    lying = SlurmCommands(str(tmp_path), "17", env={"PATH": f"{tmp_path}:/usr/bin:/bin"}).read()
    assert isinstance(lying, Unreadable)


def test_many_that_look_for_the_first_time_at_once_write_one_list(printed, tmp_path):
    answers = []

    def look():
        answers.append(SlurmCommands(str(tmp_path), "17", env={"PATH": f"{tmp_path}:/usr/bin:/bin"}).read())

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(answer, ClusterView) for answer in answers), answers
    assert len(list(tmp_path.glob("nodes/job-17-*"))) == 1


def test_the_nodes_of_a_job_that_is_ending_are_not_to_be_used(printed):
    printed.job("COMPLETING")
    assert {row.condition for row in printed.view().nodes.values()} == {NodeCondition.DRAINED}
    printed.job("TIMEOUT")
    view = printed.view()
    assert {row.condition for row in view.nodes.values()} == {NodeCondition.DOWN}
    assert view.nodes["n001"].reason == "job 17 is TIMEOUT"


def test_a_job_on_its_way_to_be_pending_shows_a_start_each_second_and_none_is_written_down(printed, tmp_path):
    printed.view()
    for second in range(3):
        text = JOB.format(state="COMPLETING", nodes=ALL)
        moved = re.sub(r"T(\d\d:\d\d):\d\d", rf"T\g<1>:{second + 50}", text)
        assert moved != text
        printed.put("squeue", moved)
        assert set(printed.view().nodes) == {"n001", "n002", "n003"}
    assert len(list(tmp_path.glob("nodes/job-17-*"))) == 1


def test_a_job_that_still_runs_a_run_without_a_controller_is_not_forgotten(printed, tmp_path, monkeypatch):
    """Its batch host is lost and nobody watches: its ranks train on, and another job must not train beside them."""
    run = RunDir(str(tmp_path / "run"))
    run.create()
    Path(run.path("job.json")).write_text('{"schema":1,"job":"17"}')
    monkeypatch.setenv("PATH", f"{printed.folder}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    settings = Settings(cluster=ClusterSettings(kind="slurm"))
    with pytest.raises(UserError, match=r"job 17 still runs .*relight watch .*scancel 17") as refused:
        open_cluster(run, settings)
    assert refused.value.exit_code == REFUSED_EXIT
    assert Path(run.path("job.json")).read_text() == '{"schema":1,"job":"17"}'
    printed.job("CANCELLED")
    with contextlib.suppress(UserError):  # job 18 is not in what the commands print
        open_cluster(run, settings)
    assert json.loads(Path(run.path("job.json")).read_text())["job"] == "18"


@pytest.mark.parametrize(
    ("row", "condition"),
    [
        (f"allocated+drain|{KEY}", NodeCondition.UP),  # our own
        ("allocated+drain|fan 3", NodeCondition.DRAINED),
        (f"allocated+drain|{KEY}0", NodeCondition.DRAINED),
        (f"allocated|{KEY}", NodeCondition.UP),  # 24.11 keeps the reason on a node that is well again
        (f"allocated+drain+not_responding|{KEY}", NodeCondition.SILENT),
        (f"down+drain|{KEY}", NodeCondition.DOWN),
        ("allocated+quantum|none", NodeCondition.UNKNOWN),
    ],
)
def test_our_own_drain_is_known_by_flag_and_key(printed, row, condition):
    printed.cluster.bar("n002", KEY)
    printed.put("sinfo", NODES.replace("n002|allocated|10.0.0.9|none", f"n002|{row.replace('|', '|10.0.0.9|', 1)}"))
    assert printed.view().nodes["n002"].condition is condition


def test_a_drain_with_our_words_but_without_our_note_is_somebody_elses(printed):
    printed.put("sinfo", NODES.replace("n002|allocated|10.0.0.9|none", f"n002|allocated+drain|10.0.0.9|{KEY}"))
    assert printed.view().nodes["n002"].condition is NodeCondition.DRAINED


def test_a_bar_rereads_and_touches_no_other_drain(printed):
    printed.put("sinfo", NODES.replace("n002|allocated|10.0.0.9|none", "n002|allocated+fail|10.0.0.9|psu"))
    printed.cluster.bar("n002", KEY)
    assert not any("update" in line for line in printed.asked())
    with pytest.raises(ValueError, match="not a key"):
        printed.cluster.bar("n002", "two\nlines")
    printed.put("sinfo", NODES)
    printed.cluster.bar("n001", KEY)
    assert f"scontrol update NodeName=n001 State=DRAIN Reason={KEY}" in printed.asked()
    printed.do("sinfo", "exit 1")
    with pytest.raises(OSError, match="sinfo"):
        printed.cluster.bar("n003", KEY)


SITE = """#!/bin/sh
echo "$# $*" >>{folder}/site
[ -z "$HANGS" ] || exec sleep 600
[ ! -e {folder}/fails ] || {{ echo "first word"; echo "no ticket was made" >&2; exit 3; }}
"""


class Site:
    """A command of the site, and a cluster that uses it."""

    def __init__(self, printed: Printed, **env: str) -> None:
        self.printed = printed
        command = printed.folder / "node-state"
        command.write_text(SITE.format(folder=printed.folder))
        command.chmod(0o755)
        self.cluster = SlurmCommands(
            str(printed.folder),
            "17",
            env={"PATH": f"{printed.folder}:/usr/bin:/bin", **env},
            drain_command=("node-state", "--queue", "train"),
            call_s=1.0 if env else 5.0,
        )

    def calls(self) -> list[str]:
        path = self.printed.folder / "site"
        lines = path.read_text().splitlines() if path.exists() else []
        path.write_text("")
        return lines

    def shown(self, row: str) -> None:
        self.printed.put("sinfo", NODES.replace("n002|allocated|10.0.0.9|none", f"n002|{row}"))


def test_a_command_of_the_site_drains_and_resumes_in_place_of_scontrol(printed):
    site = Site(printed)
    site.cluster.bar("n002", KEY, "node-lost")
    assert site.calls() == [f"6 --queue train drain n002 {KEY} node-lost"]
    assert not any("update" in line for line in printed.asked())
    site.shown(f"allocated+drain|10.0.0.9|{KEY}")
    site.cluster.unbar("n002", KEY)
    assert site.calls() == [f"6 --queue train resume n002 {KEY} "]
    site.cluster.unbar("n002", KEY)  # nothing of ours is left
    assert site.calls() == []
    assert not any("update" in line for line in printed.asked())


def test_a_command_of_the_site_is_not_handed_what_somebody_else_has_drained(printed):
    site = Site(printed)
    site.shown("allocated+drain|10.0.0.9|fan 3")
    site.cluster.bar("n002", KEY, "node-lost")
    site.cluster.unbar("n002", KEY)
    assert site.calls() == []


def test_a_command_of_the_site_that_fails_hangs_or_is_not_there_is_told_like_a_refusal(printed):
    site = Site(printed)
    (printed.folder / "fails").touch()
    site.cluster.bar("n002", KEY, "node-lost")
    assert site.cluster.drain_refused == "node-state drain n002 ended with 3: no ticket was made"
    view = site.cluster.read()
    assert isinstance(view, ClusterView)
    assert view.drain_refused == site.cluster.drain_refused
    (printed.folder / "fails").unlink()
    site.cluster.bar("n003", KEY, "node-lost")  # it is tried again for the next node
    assert site.cluster.drain_refused is None
    hangs = Site(printed, HANGS="1")
    hangs.cluster.bar("n001", KEY, "node-lost")
    assert hangs.cluster.drain_refused == "node-state drain n001 did not answer in time"
    (printed.folder / "node-state").unlink()
    site.cluster.bar("n001", KEY, "node-lost")
    assert "node-state" in (site.cluster.drain_refused or "")
    for node in ("n001", "n002", "n003"):
        assert json.loads((printed.folder / "nodes" / node / "bar.json").read_text())["key"] == KEY


def test_why_a_node_is_not_drained_is_known_until_one_is(printed):
    printed.do("scontrol", 'case "$*" in *update*) echo "slurm_update error: Invalid user id" >&2; exit 1;; esac')
    printed.cluster.bar("n002", KEY)
    assert printed.view().drain_refused == "scontrol update ended with 1: slurm_update error: Invalid user id"
    printed.undo("scontrol")
    printed.cluster.bar("n003", KEY)
    assert printed.view().drain_refused == ""
    printed.do("sinfo", "exit 1")
    with pytest.raises(OSError, match="sinfo"):
        printed.cluster.bar("n001", KEY)
    printed.undo("sinfo")
    assert "sinfo" in printed.view().drain_refused


def test_a_step_that_is_not_listed_and_whose_srun_is_elsewhere_is_given_time(printed):
    printed.order()
    printed.claim(wall=time.time())
    assert printed.view().steps[STEP].running_on == {"n001", "n002", "n003"}
    printed.claim(wall=time.time() - ELSEWHERE_S - 1)
    assert not printed.view().steps[STEP].running
    printed.put("steps", STEPS)  # over, it was thought; what is listed counts
    assert printed.view().steps[STEP].running


def test_a_step_of_a_former_job_is_over(printed):
    printed.order()
    printed.claim(wall=time.time(), job="16")
    row = printed.view().steps[STEP]
    assert (row.running, row.known_on) == (False, {"n001", "n002", "n003"})


def test_a_pending_step_is_on_all_its_nodes(printed):
    printed.order()
    printed.claim()
    printed.put("steps", f"17.TBD|PENDING||{STEP}|\n")
    assert printed.view().steps[STEP].running_on == {"n001", "n002", "n003"}


def test_files_that_lie_make_the_cluster_unreadable(printed):
    printed.order()
    Path(launching.path(str(printed.folder), STEP, "claim")).write_text("{}")
    assert isinstance(printed.cluster.read(), Unreadable)


def test_an_older_controller_is_not_obeyed(printed):
    printed.cluster.stop(STEP, 5)
    printed.asked()
    printed.cluster.launch(printed.order())
    printed.cluster.release(4)
    printed.cluster.stop(STEP, 4)
    assert printed.asked() == []
    assert sorted(path.name for path in printed.folder.glob("nodes/epochs/*")) == ["00000005"]


def test_a_stop_that_slurm_refuses_is_told_unless_the_step_is_gone(printed):
    printed.order()
    printed.claim()
    printed.put("steps", STEPS)
    printed.do("scancel", "echo 'Kill job error' >&2; exit 1")
    with pytest.raises(OSError, match="scancel"):
        printed.cluster.stop(STEP, 1)
    printed.do("scancel", f": >{printed.folder}/steps.out; exit 225")
    printed.cluster.stop(STEP, 1)


def test_a_step_that_is_listed_and_unknown_holds_nothing(printed):
    """Seen on 22.05 when a step has lost two nodes: squeue lists it for ever, and slurmctld does not know it."""
    printed.order()
    printed.claim()
    printed.put("steps", STEPS)
    line = "scancel: error: Kill job error on job step id 17.4: Invalid job id specified"
    printed.do("scancel", f"echo '{line}' >&2; exit 225")
    printed.cluster.release(1)
    printed.do(
        "scancel", f"echo '{line}' >&2; echo 'scancel: error: Kill job error on 17.5: Socket timed out' >&2; exit 225"
    )
    with pytest.raises(OSError, match="scancel"):
        printed.cluster.release(1)


def test_a_job_that_slurm_has_forgotten_is_let_go(printed):
    """A person has cancelled it five minutes ago; whoever is to end it would else try for ever."""
    env = {"PATH": f"{printed.folder}:/usr/bin:/bin"}
    outside = SlurmCommands(str(printed.folder), "17", env=env, call_s=5.0, end_job=True)
    printed.put("steps", "")
    unknown = "echo 'error: Invalid job id specified' >&2; exit 1"
    printed.do("scancel", unknown)
    printed.do("squeue", f'case "$*" in *--steps*) ;; *) {unknown};; esac')
    outside.release(1)
    printed.do("squeue", 'case "$*" in *--steps*) ;; *) echo away >&2; exit 1;; esac')
    with pytest.raises(OSError, match="scancel"):
        outside.release(1)


def test_a_probe_needs_an_open_port(printed):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        printed.put("scontrol", f"NodeName=n001 NodeAddr=127.0.0.1 Port={port} \n")
        assert not printed.cluster.probe("n001", 5.0)
        assert not any(line.startswith("srun") for line in printed.asked())
        one.listen()
        assert printed.cluster.probe("n001", 5.0)
        printed.do("srun", "exit 1")
        assert not printed.cluster.probe("n001", 5.0)
    printed.put("scontrol", "")
    assert not printed.cluster.probe("n002", 5.0)
