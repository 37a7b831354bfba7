"""Logs of a whole cluster beside those of one job, hosts that only names of files tell, ends that Slurm words in many ways."""

from __future__ import annotations

import pytest
from logcases import NODES, diagnose, head, steps, timeout, timeouts

MCE = "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 0: be00000000800400"
CTLD = "slurmctld.log"


def slurm(minute: int, text: str) -> str:
    return f"[2026-05-04T10:{minute:02d}:00.010] {text}\n"


# --- where ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("dmesg.gx-03.txt", f"[2026-05-04T10:06:00,851020+00:00] {MCE}\n"),
        ("console.gx-03.log", f"[Mon May  4 10:06:00 2026] {MCE}\n"),
        ("consoles.log", f"<gx-03> 2026-05-04 10:06:00 [944970.000] {MCE}\n"),
        ("collected.log", f"<2>1 2026-05-04T10:06:00.1Z gx-03 kernel - - - {MCE}\n"),
        ("kern-9.log", f"[gx-03] 2026-05-04 10:06:00 {MCE}\n"),
    ],
)
def test_the_host_of_a_machines_log(tmp_path, name, line):
    got = diagnose(
        tmp_path, {"slurm-77.out": steps() + "".join(f"{n}: step 99 loss 2\n" for n in range(4)), name: line}
    )
    assert (got["category"], got["first_error"]["file"], got["first_error"]["node"]) == ("hardware.host", name, "gx-03")


def test_zeros_before_a_number_are_of_a_host_and_not_of_a_job(tmp_path):
    files = {f"nid00{n}.log": "step 1 loss 2\nstep 2 loss 2\n" for n in (2117, 2118)}
    files["dmesg_nid002118.log"] = f"[Mon May  4 10:06:00 2026] {MCE}\n"
    assert diagnose(tmp_path, files)["suspect_nodes"] == ["nid002118"]


@pytest.mark.parametrize(
    "opening",
    [
        "distributed.py:106] Starting JAX distributed service: process_id={r} num_processes=3 host=tq-{r}",
        "SLURM_PROCID={r} SLURM_LOCALID=0 SLURMD_NODENAME=tq-{r}",
        "Running on host tq-{r}",
    ],
)
def test_a_file_whose_head_says_where_it_is_written(tmp_path, opening):
    files = {f"proc{r}.log": opening.format(r=r) + "\nstep 1 loss 2\nstep 2 loss 2\n" for r in range(3)}
    files["proc2.log"] += (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes\n"
    )
    got = diagnose(tmp_path, files)["first_error"]
    assert (got["rank"], got["node"]) == (2, "tq-2")


def test_the_number_of_a_host_is_no_rank(tmp_path):
    lost = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    files = {f"tr-worker-{n}.log": f"[rank{8 * n}]: step 1\n[rank{8 * n + 2}]: step 2\n" for n in range(2)}
    files["tr-worker-1.log"] += lost
    got = diagnose(tmp_path, files)["first_error"]
    assert (got["rank"], got["node"]) == (None, "tr-worker-1")


# --- whose ---------------------------------------------------------------------------------------------------------


def of_slurm(*more: str) -> str:
    return "slurmstepd: error: *** STEP 77.0 ON gx-01 CANCELLED AT 2026-05-04T10:10:00 ***\n" + "".join(more)


def test_a_node_that_answered_again_and_one_of_another_job(tmp_path):
    log = (
        slurm(2, "error: Nodes gx-02 not responding")
        + slurm(3, "Node gx-02 now responding")
        + slurm(4, "error: Nodes other-7 not responding, setting DOWN")
        + slurm(5, "Killing JobId=70 on failed node gx-01")
        + slurm(9, "error: Nodes gx-03 not responding")
        + slurm(10, "error: Nodes gx-03 not responding, setting DOWN")
        + slurm(10, "Killing JobId=77 on failed node gx-03")
        + slurm(20, "Node gx-03 now responding")
    )
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + of_slurm(), CTLD: log})
    assert (got["category"], got["suspect_nodes"]) == ("scheduler.nodefail", ["gx-03"])


def test_a_node_that_never_answered_again_is_lost(tmp_path):
    got = diagnose(
        tmp_path, {"slurm-77.out": head() + steps() + of_slurm(), CTLD: slurm(9, "error: Nodes gx-03 not responding")}
    )
    assert (got["category"], got["suspect_nodes"]) == ("scheduler.nodefail", ["gx-03"])


def test_several_nodes_of_one_line(tmp_path):
    log = slurm(9, "error: Nodes gx-[02-03],zz-9 not responding, setting DOWN")
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + of_slurm(), CTLD: log})
    assert got["suspect_nodes"] == ["gx-02", "gx-03"]


@pytest.mark.parametrize(("job", "category"), [(77, "scheduler.preempt"), (70, "scheduler.cancel")])
def test_only_what_is_said_of_our_job_counts(tmp_path, job, category):
    log = slurm(10, f"preempted JobId={job} has been requeued to reclaim resources for JobId=90")
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + of_slurm(), CTLD: log})
    assert got["category"] == category


def test_jobs_that_no_log_tells_are_told_by_names_of_files(tmp_path):
    log = slurm(5, "preempted JobId=70 has been requeued to reclaim resources for JobId=90")
    log += slurm(10, "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=77 uid 20114")
    log += slurm(10, "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=78 uid 20114")
    got = diagnose(tmp_path, {"train.10077.out": steps(), CTLD: log.replace("=7", "=1007")})
    assert (got["category"], got["first_error"]["line"]) == ("scheduler.cancel", 2)


# --- how it ended --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "category"),
    [
        ("CANCELLED AT 2026-05-04T10:10:00 DUE TO JOB REQUEUE", "scheduler.preempt"),
        ("CANCELLED AT 2026-05-04T10:10:00 DUE TO PREEMPTION", "scheduler.preempt"),
        ("CANCELLED AT 2026-05-04T10:10:00 DUE TO TIME LIMIT", "scheduler.timelimit"),
        ("CANCELLED AT 2026-05-04T10:10:00", "scheduler.cancel"),
    ],
)
def test_what_is_killed_after_slurm_ended_the_step_is_swept(tmp_path, words, category):
    log = head() + steps() + "srun: Force Terminated JobId=77\n"
    log += f"slurmstepd: error: *** JOB 77 ON gx-01 {words} ***\nsrun: Job step aborted: Waiting up to 32 seconds\n"
    log += "srun: error: gx-02: task 1: Terminated\nsrun: error: gx-03: task 2: Killed\n"
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["suspect_nodes"], got["restart_ok"]) == (category, [], True)


def test_a_process_that_was_killed_before_the_step_was_ended(tmp_path):
    log = head() + steps() + "srun: error: gx-03: task 11: Killed\nsrun: Terminating StepId=77.0\n" + of_slurm()
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["first_error"]["rank"]) == ("oom.host", 11)


def test_an_abort_of_a_rank_that_had_timed_out_is_no_cause(tmp_path):
    log = head() + steps() + timeouts()
    log += "E0504 10:20:00.000000 9 api.py:874] failed (exitcode: -6) local_rank: 2 (pid: 1002) of binary: /usr/bin/python3\n"
    log += f"  time      : 2026-05-04_10:20:00\n  host      : {NODES[0]}\n  rank      : 2 (local_rank: 2)\n"
    log += "  exitcode  : -6 (pid: 1002)\n"
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["suspect_nodes"]) == ("hang.unknown", [])


@pytest.mark.parametrize(("again", "suspects"), [("gx-02", ["gx-03"]), ("", ["gx-02", "gx-03"])])
def test_a_link_that_came_up_again(tmp_path, again, suspects):
    down = "[Mon May  4 10:0{m}:00 2026] cxi_ss1 0000:c6:00.0: cxi2[hsn2] CXI_EVENT_LINK_DOWN\n"
    up = "[Mon May  4 10:06:09 2026] cxi_ss1 0000:c6:00.0: cxi2[hsn2] CXI_EVENT_LINK_UP\n"
    files = {f"dmesg_{n}.log": down.format(m=6) + (up if n == again else "") for n in ("gx-02", "gx-03")}
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps(), **files})
    assert (got["category"], got["suspect_nodes"], got["restart_ok"]) == ("hardware.network", suspects, False)


def test_the_last_words_of_a_rank_in_a_log_of_all_are_those_before_its_own_cascade(tmp_path):
    log = head() + steps() + "".join(timeout(rank) for rank in range(9)) + "[rank9]: evaluating on 3 batches\n"
    log += timeout(9, seq=899) + "".join(timeout(rank) for rank in range(10, 16))
    line = 1 + log[: log.index("[rank9]: evaluating")].count("\n")
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["first_error"]["line"], got["first_error"]["rank"], got["category"]) == (line, 9, "software.user")
