"""How runs end: tables of Slurm's accounting, what a run got over, what its scheduler ended, slow ranks and lost links."""

from __future__ import annotations

import re

import pytest
from logcases import diagnose, head, steps

from supervisor.evidence.labels import read_label

LOG = "slurm-77.out"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.12 GiB. GPU 0 has 3 GiB free\n"

# --- the accounting ------------------------------------------------------------------------------------------------

TABLES = {
    "three columns": "JobID|State|ExitCode\n77|{}|0:0\n77.batch|FAILED|1:0\n77.extern|COMPLETED|0:0\n",
    "another order": "State|ExitCode|JobIDRaw\nFAILED|1:0|77.0\n{}|0:0|77\n",
    "a bar at each end": "JobName|JobID|Elapsed|State|\ntrain x|77|01:00:00|{}|\nbash|77.batch|01:00:00|FAILED|\n",
    "padded": "JobID           JobName      State ExitCode\n------- ---------- ---------- --------\n"
    "77           train {:>10}      0:0\n77.batch    batch     FAILED      1:0\n77.ext+ extern COMPLETED 0:0\n",
    "other jobs too": "JobID|State\n76|FAILED\n77|{}\n78|TIMEOUT\n79|CANCELLED by 12\n",
    "requeued": "JobID|State\n77|NODE_FAIL\n77|{}\n",
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize(
    ("state", "category"),
    [
        ("COMPLETED", "none"),
        ("TIMEOUT", "scheduler.timelimit"),
        ("PREEMPTED", "scheduler.preempt"),
        ("NODE_FAIL", "scheduler.nodefail"),
        ("OUT_OF_MEMORY", "oom.host"),
        ("CANCELLED by 20133", "scheduler.cancel"),
        ("CANCELLED+", "scheduler.cancel"),
        ("FAILED", "hang.unknown"),
    ],
)
def test_a_table_is_read_by_its_header(tmp_path, table, state, category):
    sacct = re.sub(r"\b7(?=\d)", "407", table).format(state)
    got = diagnose(tmp_path, {"slurm-4077.out": head(job=4077) + steps(), "sacct.txt": sacct})
    assert (got["category"], got["failed"]) == (category, state != "COMPLETED")


@pytest.mark.parametrize("state", ["RUNNING", "REQUEUED"])
def test_a_state_that_is_no_end_says_nothing(tmp_path, state):
    got = diagnose(tmp_path, {LOG: head() + steps(), "sacct.txt": f"JobID|State\n77|{state}\n"})
    assert got["cannot_tell"] is True


def test_a_state_without_a_header_is_only_a_word(tmp_path):
    got = diagnose(tmp_path, {LOG: head() + steps(), "notes.txt": "77|COMPLETED\n"})
    assert got["cannot_tell"] is True


def test_a_completed_job_whose_log_tells_of_a_failure_after_it(tmp_path):
    files = {"sacct.txt": "JobID|State\n77|COMPLETED\n", LOG: head() + steps() + "Training done\nsaved\n" + OOM}
    assert diagnose(tmp_path, files)["failed"] is False  # it had reached its end before
    late = head() + steps() + "[rank3]: " + OOM
    assert diagnose(tmp_path / "b", {"sacct.txt": "JobID|State\n77|FAILED\n", LOG: late})["category"] == "oom.gpu"


# --- what a run got over -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "Batch size 128 failed, trying batch size 64\n",
        "tuner: retrying with a batch size of 64\n",
        "WARNING: reduced micro batch size from 8 to 4\n",
    ],
)
def test_memory_that_ran_out_while_a_batch_was_sized(tmp_path, words):
    end = "Epoch 0:  10% loss=0.9\nEpoch 0:  90% loss=0.8\n`Trainer.fit` stopped: `max_epochs=1` reached.\n"
    assert diagnose(tmp_path, {LOG: head() + OOM + words + end})["failed"] is False
    got = diagnose(tmp_path / "again", {LOG: head() + OOM + words + end.partition("`")[0] + "[rank2]: " + OOM})
    assert (got["category"], got["first_error"]["rank"]) == ("oom.gpu", 2)


def test_both_say_that_it_reached_its_end(tmp_path):
    log = head() + OOM + "".join(f"block {n} of the table\n" for n in range(40)) + "Finished training\n"
    assert diagnose(tmp_path, {LOG: log})["category"] == "oom.gpu"
    assert diagnose(tmp_path, {LOG: log, "sacct.txt": "JobID|State\n77|COMPLETED\n"})["failed"] is False


@pytest.mark.parametrize(
    ("kind", "failed"), [("1 CE memory read error on DIMM#0", False), ("1 UE memory read error on DIMM#0", True)]
)
def test_a_machine_check_of_a_corrected_error(tmp_path, kind, failed):
    kernel = "2026-05-04T10:07:20+00:00 gx-02 kernel: mce: [Hardware Error]: Machine check events logged\n"
    kernel += f"2026-05-04T10:07:20+00:00 gx-02 kernel: EDAC MC3: {kind}\n"
    got = diagnose(tmp_path, {LOG: head() + steps(count=8), "gx-02.kernel.log": kernel})
    assert (got["category"] == "hardware.host") is failed


# --- what the scheduler ended --------------------------------------------------------------------------------------

ABORT = "3: terminate called after throwing an instance of 'c10::DistBackendError'\n3: Fatal Python error: Aborted\n"
ENDS = {
    "DUE TO TIME LIMIT ": "scheduler.timelimit",
    "DUE TO PREEMPTION ": "scheduler.preempt",
    "": "scheduler.cancel",
}


@pytest.mark.parametrize(("why", "category"), ENDS.items())
def test_aborts_of_those_that_slurm_ends(tmp_path, why, category):
    end = f"slurmstepd: error: *** STEP 77.0 ON gx-01 CANCELLED AT 2026-05-04T10:07:00 {why}***\n"
    ctld = "[2026-05-04T10:07:00.208] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=77 uid 20133\n"
    files = {"slurmctld.log": "" if why else ctld}
    got = diagnose(tmp_path, {LOG: head() + steps() + end + ABORT, **files})
    assert (got["category"], got["suspect_nodes"], got["restart_ok"]) == (category, [], True)
    got = diagnose(tmp_path / "first", {LOG: head() + steps() + ABORT + end, **files})
    assert got["category"] == "software.framework"  # it had crashed before


@pytest.mark.parametrize(
    ("crash", "category"), [("Segmentation fault", "software.framework"), ("Aborted", "scheduler.timelimit")]
)
def test_a_crash_of_an_unknown_time(tmp_path, crash, category):
    """A fault of memory may well be why the others waited for their time limit; an abort is what SIGTERM brings about."""
    end = "slurmstepd: error: *** STEP 77.0 ON gx-01 CANCELLED AT 2026-05-04T10:07:00 DUE TO TIME LIMIT ***\n"
    files = {LOG: head() + steps() + end, "rank-3.log": f"loading\nFatal Python error: {crash}\n"}
    assert diagnose(tmp_path, files)["category"] == category


@pytest.mark.parametrize("back", [True, False])
def test_a_node_that_only_slurm_speaks_of(tmp_path, back):
    ctld = "[2026-05-04T10:04:00.001] error: Nodes zz-7 not responding\n"
    ctld += "[2026-05-04T10:04:13.551] Node zz-7 now responding\n" if back else ""
    ctld += "[2026-05-04T10:07:00.208] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=77 uid 20133\n"
    sacct = "JobID|User|NodeList|State\n77|vika|gx-[01-02]|CANCELLED by 20133\n77.0||gx-[01-02]|CANCELLED by 20133\n"
    log = steps() + "slurmstepd: error: *** STEP 77.0 ON gx-01 CANCELLED AT 2026-05-04T10:07:00 ***\n"
    log += "BrokenPipeError: [Errno 32] Broken pipe\n"
    got = diagnose(tmp_path, {"train.out": log, "sacct.txt": sacct, "slurmctld.log": ctld})
    assert (got["category"], got["suspect_nodes"], got["first_error"]["file"]) == ("scheduler.cancel", [], "train.out")


# --- slow ranks, lost links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("score", "suspects"), [("0.62", ["gx-03"]), ("0.91", [])])
def test_scores_of_the_straggler_detection(tmp_path, score, suspects):
    report = "NVRxStragglerDetection: GPU relative performance:\n"
    report += "".join(f"  Rank={r} Node=gx-0{1 + r // 4} Score={score if r == 11 else '0.98'}\n" for r in range(12))
    got = diagnose(tmp_path, {LOG: steps() + report + steps(106)})
    assert got["suspect_nodes"] == suspects
    if suspects:
        first = got["first_error"]
        assert (got["category"], first["line"], first["rank"], first["node"]) == (
            "performance.straggler",
            19,
            11,
            "gx-03",
        )


def test_ranks_that_the_straggler_detection_names(tmp_path):
    named = "STRAGGLER DETECTION WARNING: Some GPUs have worse performance. Affected ranks: ['Rank=11 Node=gx-03']\n"
    got = diagnose(tmp_path, {LOG: steps() + named})
    assert (got["category"], got["suspect_nodes"], got["restart_ok"]) == ("performance.straggler", ["gx-03"], False)
    assert (got["first_error"]["rank"], got["first_error"]["node"]) == (11, "gx-03")


@pytest.mark.parametrize(
    "down",
    [
        "cxi_core 0000:c3:00.0: cxi2[hsn2] CXI_EVENT_LINK_DOWN",
        "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged",
        "mlx5_core 0000:5e:00.0 ib2: Link down",
    ],
)
@pytest.mark.parametrize("off", [0, 240])
def test_a_console_has_the_clock_of_its_nodes_ranks(tmp_path, down, off):
    """Several logs of a node show that its clock is off; the console is moved by that once."""

    def at(second, node, text):
        second += off if node == "gx-02" else 0
        return f"2026-05-04 10:{second // 60:02d}:{second % 60:02d}.100 [{node}] {text}\n"

    files = {}
    for rank in range(12):
        node = f"gx-0{1 + rank // 4}"
        log = "".join(at(60 + 8 * n, node, f"INFO step={n} loss=2.1 dt=8.00s") for n in range(30))
        log += at(312, node, "RuntimeError: NCCL error: remote process exited or there was a network error")
        files[f"rank_{rank:02d}.log"] = log
    when = 302 + off
    files["console-gx-02.log"] = f"[Mon May  4 10:{when // 60:02d}:{when % 60:02d} 2026] {down}\n"
    got = diagnose(tmp_path, files)
    assert (got["category"], got["suspect_nodes"], got["restart_ok"]) == ("hardware.network", ["gx-02"], False)
    assert got["first_error"]["node"] == "gx-02"


@pytest.mark.parametrize(
    ("name", "node"), [("gx-02", "gx-02"), ("Thread-02", None), ("rank02", None), ("ForkPoolWorker-12", None)]
)
def test_a_name_behind_the_time(name, node):
    assert read_label(f"2026-05-04 10:00:00,123 [{name}] INFO something was lost").node == node
