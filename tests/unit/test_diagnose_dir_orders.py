"""Runs that were told to end, got over an error, or only became slower. Made up here; nothing is taken from elsewhere."""

from __future__ import annotations

import pytest
from logcases import diagnose, head, steps, traceback

TORN = (
    "RuntimeError: unable to write to file </torch_90211_310>: Bad file descriptor\nBrokenPipeError: [Errno 32] Broken pipe\n"
    "ConnectionResetError: [Errno 104] Connection reset by peer\n"
)
KILL = "[2026-05-04T10:05:31.404] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=77 uid 20817\n"
JOB = "slurmstepd: error: *** JOB 77 ON gx-01 CANCELLED AT 2026-05-04T10:05:31 ***\n"
STEP = "slurmstepd: error: *** STEP 77.0 ON gx-01 CANCELLED AT 2026-05-04T10:05:31 ***\n"


# --- told to end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "heard",
    [
        "[rank: 3] Received SIGTERM: 15\n",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 71 got signal: 15\n",
        "W0504 10:05:31.9 88 api.py:900] Sending process 881 closing signal SIGTERM\n",
        "caught signal 15, stopping\n",
    ],
)
@pytest.mark.parametrize("asked", [(TORN + JOB, ""), (TORN, KILL), (TORN + JOB + STEP, KILL)])
def test_what_a_process_says_that_was_told_to_end_is_no_cause(tmp_path, heard, asked):
    log, control = asked
    files = {"slurm-77.out": head() + steps() + heard + log, "slurmctld.log": control}
    got = diagnose(tmp_path, files)
    assert (got["category"], got["suspect_nodes"], got["restart_ok"]) == ("scheduler.cancel", [], True)


@pytest.mark.parametrize("control", ["", KILL.replace("10:05:31", "11:30:00")])
def test_an_error_before_the_signal_stays_the_cause(tmp_path, control):
    # A launcher ends the others when one has failed; that somebody cancels the rest later changes nothing.
    log = (
        head()
        + steps()
        + traceback(6, "KeyError: 'labels'")
        + "W0504 10:06:31.9 88 api.py:900] Sending process 881 closing signal SIGTERM\n"
    )
    got = diagnose(
        tmp_path,
        {"slurm-77.out": log + traceback(2, "RuntimeError: worker went away") + STEP, "slurmctld.log": control},
    )
    assert (got["category"], got["first_error"]["rank"]) == ("software.user", 6)


def test_without_an_order_an_error_after_the_signal_may_be_the_cause(tmp_path):
    log = head() + steps() + "[rank: 3] Received SIGTERM: 15\n" + traceback(6, "KeyError: 'labels'")
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["first_error"]["rank"]) == ("software.user", 6)


def test_a_fault_of_a_device_is_no_part_of_the_teardown(tmp_path):
    kernel = (
        "May  4 10:05:20 gx-02 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
    )
    log = head() + steps() + "[rank: 3] Received SIGTERM: 15\n" + TORN + JOB
    got = diagnose(tmp_path, {"slurm-77.out": log, "kern-gx-02.log": kernel, "slurmctld.log": KILL})
    assert (got["category"], got["suspect_nodes"]) == ("hardware.gpu", ["gx-02"])


def test_somebody_pressed_ctrl_c(tmp_path):
    log = head() + steps() + "srun: interrupt (one more within 1 sec to abort)\nsrun: sending Ctrl-C to StepId=77.0\n"
    got = diagnose(tmp_path, {"job.log": log + traceback(3, "KeyboardInterrupt")})
    assert (got["category"], got["suspect_nodes"]) == ("scheduler.cancel", [])


def test_told_to_end_by_nobody_knows_whom(tmp_path):
    got = diagnose(tmp_path, {"job.log": steps() + "Received SIGTERM, exiting\n"})
    assert (got["category"], got["evidence"], got["confidence"]) == ("scheduler.cancel", "inference", "low")


def test_a_machine_of_which_a_cancelled_job_had_got_over_an_error(tmp_path):
    log = head() + steps() + REFUSED + steps(106, 4, "10:06") + JOB.replace("10:05:31", "10:10:01")
    got = diagnose(tmp_path, {"slurm-77.out": log, "slurmctld.log": KILL.replace("10:05:31", "10:10:01")})
    assert got["category"] == "scheduler.cancel"


# --- got over it ------------------------------------------------------------------------------------------------------

REFUSED = "2026-05-04 10:05:07 WARNING download: botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the GetObject operation (reached max retries: 4): Please reduce your request rate.\n"


@pytest.mark.parametrize(
    "said",
    ["shard.01883 downloaded after 2 attempts", "shard 1883 read on the second attempt", "upload: ok after 3 tries"],
)
@pytest.mark.parametrize(
    "end",
    [
        "Training duration reached (8999ba).\n",
        "Training complete, exiting with code 0\n",
        "stopping training due to num_updates: 500 >= max_update: 500\n",
    ],
)
def test_a_store_that_answered_at_the_next_attempt(tmp_path, said, end):
    log = head() + steps() + REFUSED + f"2026-05-04 10:05:11 INFO download: {said}\n" + end
    assert diagnose(tmp_path, {"slurm-77.out": log})["failed"] is False


def test_a_store_that_never_answered(tmp_path):
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + REFUSED})
    assert (got["category"], got["failed"]) == ("storage.io", True)


def test_steps_that_are_counted_in_batches_go_on(tmp_path):
    log = REFUSED + "".join(
        f"2026-05-04 10:{n:02d}:20 INFO composer.trainer: batch {8900 + n}/8999 loss=2.04\n" for n in range(6, 12)
    )
    log += "2026-05-04 10:30:20 INFO composer.trainer: " + "KeyError: 'labels'\n" + traceback(0, "KeyError: 'labels'")
    got = diagnose(tmp_path, {"app.log": log})
    assert got["category"] == "software.user"


@pytest.mark.parametrize(
    "line",
    [
        "W0601 12:20:10.1 311 preemption_sync_manager.cc:318] Cancelled call to retrieve preemption notice. This is expected upon program shutdown.",
        "Config param stop_on_preemption_signal: True",
        "watching for preemption signals",
    ],
)
def test_who_looks_out_for_a_preemption_is_not_preempted(tmp_path, line):
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + line + "\nTraining complete\n"})
    assert got["failed"] is False


def test_a_preemption_that_came(tmp_path):
    got = diagnose(
        tmp_path, {"slurm-77.out": head() + steps() + "Received preemption signal, saving checkpoint and exiting\n"}
    )
    assert got["category"] == "scheduler.preempt"


# --- the sample, not the device -----------------------------------------------------------------------------------------

XID = "[Mon May  4 10:05:40 2026] NVRM: Xid (PCI:0000:61:00): 13, pid=40119, name=python, Graphics SM Warp Exception\n"
ASSERT = "/pytorch/aten/src/ATen/native/{of}: indexSelectLargeIndex: block: [512,0,0], thread: [0,0,0] {word} {q}srcIndex < srcSelectDimSize{e} failed.\n"


@pytest.mark.parametrize(
    ("of", "word", "q", "e"),
    [("cuda/Indexing.cu:1289", "Assertion", "`", "`"), ("hip/Indexing.hip:1289", "Device-side assertion", "`", "'")],
)
def test_an_index_from_the_data_is_the_reason_of_the_drivers_word(tmp_path, of, word, q, e):
    log = (
        steps()
        + ASSERT.format(of=of, word=word, q=q, e=e)
        + traceback(3, "RuntimeError: CUDA error: device-side assert triggered")
    )
    got = diagnose(tmp_path, {"slurm-77.out": log, "dmesg.txt": XID})
    assert (got["category"], got["first_error"]["file"], got["suspect_nodes"]) == ("data", "slurm-77.out", [])


def test_without_it_the_drivers_word_is_of_the_program(tmp_path):
    got = diagnose(
        tmp_path,
        {
            "slurm-77.out": steps() + traceback(3, "RuntimeError: CUDA error: device-side assert triggered"),
            "dmesg.txt": XID,
        },
    )
    assert got["category"] == "software.user"


IN_FLASH = (
    "/opt/venv/lib/python3.11/site-packages/flash_attn/flash_attn_interface.py",
    198,
    "_flash_attn_varlen_backward",
)
IN_TRITON = ("/opt/venv/lib/python3.12/site-packages/triton/runtime/jit.py", 708, "run")
FAULT = "May  4 10:05:40 {} kernel: NVRM: Xid (PCI:0000:61:00): 31, pid=40119, name=python, MMU Fault\n"


@pytest.mark.parametrize(
    ("frame", "nodes", "category"),
    [
        (IN_FLASH, ("gx-01", "gx-02"), "software.framework"),
        (IN_TRITON, ("gx-01", "gx-02"), "software.user"),
        (IN_FLASH, ("gx-01",), "software.user"),
    ],
)
def test_devices_of_several_machines_that_fault_in_a_library_of_kernels(tmp_path, frame, nodes, category):
    log = (
        head()
        + steps()
        + traceback(
            2,
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            (("/app/train.py", 8, "main"), frame),
        )
    )
    got = diagnose(tmp_path, {"slurm-77.out": log, **{f"kern-{n}.log": FAULT.format(n) for n in nodes}})
    assert (got["category"], got["suspect_nodes"]) == (category, [])


# --- slow, not failed ---------------------------------------------------------------------------------------------------


def paced(first, count, ms, of=9000):
    return "".join(
        f" [2026-05-04 10:{n:02d}:05] iteration {n:8d}/  {of} | elapsed time per iteration (ms): {ms + n % 3}.0 | lm loss: 2.1E+00 |\n"
        for n in range(first, first + count)
    )


NAMED = "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: [(rank 6, node gx-02, score 0.71)]\n"
SCORES = "straggler detection: GPU relative performance (rank: score) 0: 0.99 1: 1.00 2: 0.98\n"


def test_a_run_that_was_slow_for_good_and_is_done_before_its_last_step(tmp_path):
    log = head() + paced(0, 20, 10000) + paced(20, 20, 12800) + SCORES + NAMED + "done\n"
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["first_error"]["rank"], got["suspect_nodes"]) == (
        "performance.straggler",
        6,
        ["gx-02"],
    )


@pytest.mark.parametrize(
    "log",
    [
        paced(0, 20, 10000) + paced(20, 20, 10000) + NAMED + "done\n",
        paced(0, 20, 10000) + paced(20, 20, 12800) + SCORES + "done\n",
        paced(0, 20, 10000) + paced(20, 20, 12800, of=39) + NAMED + "done\n",
        paced(0, 20, 10000) + paced(20, 20, 12800) + NAMED + "Training complete\n",
    ],
)
def test_a_run_that_is_done_has_else_not_failed(tmp_path, log):
    assert diagnose(tmp_path, {"slurm-77.out": head() + log})["failed"] is False


# --- who did not come ---------------------------------------------------------------------------------------------------


def test_horovod_names_the_rank_that_it_waits_for(tmp_path):
    log = "+ mpirun -np 8 -H hv-1:4,hv-2:4 python t.py\n" + "".join(
        f"[1,0]<stdout>:step {n} loss 3.1\n" for n in range(9)
    )
    log += "[1,0]<stderr>:One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting\n"
    log += "[1,0]<stderr>:Missing ranks:\n[1,0]<stderr>:5: [allreduce.grad_1]\n"
    got = diagnose(tmp_path, {"job.log": log})
    assert (got["category"], got["first_error"]["rank"], got["first_error"]["node"]) == ("hang.unknown", 5, "hv-2")


def test_the_coordinator_of_jax_names_the_task_in_a_line_of_its_own(tmp_path):
    start = "I0504 10:00:00.1 7 distributed.py:1] process_id={} num_processes=2 host=tp-{}\n"
    told = "E0504 10:16:00.1 7 agent.cc:755] Polled an error from coordination service\nThe following tasks are unhealthy:\n/job:jax_worker/replica:0/task:1\n"
    files = {"w0.log": start.format(0, 0) + steps() + told, "w1.log": start.format(1, 1) + steps()}
    got = diagnose(tmp_path, files)
    assert (got["first_error"]["rank"], got["first_error"]["node"]) == (1, "tp-1")


@pytest.mark.parametrize(("mask", "suspects"), [("80", ["gx-03"]), ("08", ["gx-03"]), ("04", []), ("00", [])])
def test_a_mask_of_reasons_why_a_clock_is_slow(tmp_path, mask, suspects):
    smi = f"index, clocks_event_reasons.active\n0, 0x0000000000000000\n3, 0x00000000000000{mask}\n"
    got = diagnose(
        tmp_path, {"slurm-77.out": head() + paced(0, 20, 10000) + paced(20, 20, 12800), "nvsmi_gx-03.txt": smi}
    )
    assert (got["category"], got["suspect_nodes"]) == ("performance.straggler", suspects)
