"""Folders of logs whose place or cause is told in one of the many ways in use. Made up here; nothing is taken from elsewhere."""

from __future__ import annotations

import pytest
from logcases import NODES, WORLD, diagnose, head, node_of, steps, timeout, timeouts, traceback

XID = "NVRM: Xid (PCI:0000:84:00): 48, pid=71, name=python, An uncorrectable double bit error (DBE) has been detected"
AT = "2026-05-04T10:06:00+00:00"


def first(got):
    return got["category"], got["first_error"]["file"], got["first_error"]["line"], got["first_error"]["node"]


def by_node(slot, last="", label=""):
    name = NODES[slot]
    log = f"{label}{name}:{500 + slot}:{500 + slot} [0] NCCL INFO cudaDriverVersion 13000\n"
    return log + (steps() if slot == 0 else "") + last


# --- where ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["fabricmanager-gx-03.log", "sel-gx-03.txt", "logs/gx-03/kern.log", "gx-03.cluster.local.dmesg"]
)
def test_a_known_node_in_a_files_name_is_its_node(tmp_path, name):
    files = {f"gx-{slot + 1:02d}.out": by_node(slot, timeouts() if slot == 0 else "") for slot in range(4)}
    got = diagnose(tmp_path, {**files, name: f"2026-05-04T10:06:00 {XID}\n"})
    assert first(got) == ("hardware.gpu_memory", name, 1, "gx-03")
    assert got["suspect_nodes"] == ["gx-03"]


@pytest.mark.parametrize(("prefix", "node"), [("ds-a: [rank3]: ", "ds-a"), ("[pod/train-1/main] [rank3]: ", "train-1")])
def test_what_stands_before_a_rank_is_its_node(tmp_path, prefix, node):
    other = prefix.replace(node, "ds-b").replace("3", "0")
    log = "".join(f"{other}step {n} loss 2.1\n" for n in range(5)) + f"{prefix}KeyError: 'tokens'\n"
    got = diagnose(tmp_path, {"job.log": log})
    assert first(got) == ("software.user", "job.log", 6, node)


def test_a_line_that_names_a_node_speaks_of_it_and_of_no_other(tmp_path):
    log = head() + steps() + "srun: error: Node failure on gx-04\nsrun: error: gx-02: tasks 4-7: Killed\n"
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["first_error"]["node"], got["suspect_nodes"]) == ("gx-04", ["gx-04"])


@pytest.mark.parametrize(("rank", "local", "guilty"), [(12, 4, 8), (20, 4, 17)])
def test_a_launchers_report_tells_where_its_other_ranks_are(tmp_path, rank, local, guilty):
    log = steps() + traceback(guilty, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
    log += f"  time      : 2026-05-04_10:07:00\n  host      : q-07\n  rank      : {rank} (local_rank: {local})\n  exitcode  : -6 (pid: 81)\n"
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["first_error"]["rank"], got["first_error"]["node"]) == (guilty, "q-07")


@pytest.mark.parametrize("names", [lambda rank: f"{rank:02d}.log", lambda rank: f"run/attempt_0/{rank}/stderr.log"])
def test_files_that_are_called_after_ranks(tmp_path, names):
    files = {
        names(r): "".join(f"step {n} loss 2\n" for n in range(9 + (r != 5))) + ("" if r == 5 else timeout(r))
        for r in range(8)
    }
    got = diagnose(tmp_path, files)
    assert (got["first_error"]["file"], got["first_error"]["line"], got["first_error"]["rank"]) == (names(5), 9, 5)


def test_ranks_that_tell_their_host(tmp_path):
    files = {
        f"{r}.log": f"[launcher] rank={r} local_rank={r % 4} host=z-{r // 4} pid={70 + r}\nstep 8 loss 2\n"
        + ("" if r == 6 else timeout(r))
        for r in range(8)
    }
    got = diagnose(tmp_path, files)
    assert (got["first_error"]["rank"], got["first_error"]["node"]) == (6, "z-1")


def test_the_device_that_nccl_gave_a_rank(tmp_path):
    told = "".join(
        f"{node_of(r)}:{900 + r}:{900 + r} [{r % 4}] NCCL INFO ncclCommInitRank comm 0x55 rank {r} nranks {WORLD} cudaDev {r % 4}"
        f" nvmlDev {r % 4} busId {16 + r % 4:x}000 commId 0x1 - Init COMPLETE\n"
        for r in range(WORLD)
    )
    kernel = f"{AT} gx-02 kernel: NVRM: Xid (PCI:0000:12:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    got = diagnose(tmp_path, {"slurm-77.out": head() + told + steps() + timeouts(), "gx-02-dmesg.txt": kernel})
    assert (got["first_error"]["rank"], got["first_error"]["node"]) == (6, "gx-02")


def test_a_peer_under_another_name(tmp_path):
    files = {}
    for slot in (0, 1, 3):
        log = f"[prolog] {NODES[slot]} instance-id=i-0a11f09d5bbd000{slot}c az=x\n{by_node(slot)}"
        log += f"{NODES[slot]}:500:600 [1] NCCL WARN NET/OFI Request 0x7f completed with error. RC: 103. (Unresponsive receiver"
        files[f"{NODES[slot]}.out"] = log + " My host id: i-0a Peer host id: i-0a11f09d5bbd0002c)\n"
    files["gx-03.out"] = "[prolog] gx-03 instance-id=i-0a11f09d5bbd0002c az=x\n" + by_node(2)
    got = diagnose(tmp_path, files)
    assert (got["category"], got["suspect_nodes"]) == ("hardware.network", ["gx-03"])


# --- when ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("began", "category"), [("10:00:31", "hardware.gpu_memory"), ("10:12:00", "hang.unknown")])
def test_a_job_whose_steps_have_no_dates_began_when_slurm_says(tmp_path, began, category):
    log = head() + "".join(f"{{'loss': 2.{n}, 'epoch': 0.3}}\n" for n in range(9)) + timeouts((6,))
    kernel = f"May  4 {began} gx-02 systemd[1]: Started Slurm job 77 prolog.\nMay  4 10:06:00 gx-02 kernel: {XID}\n"
    kernel = "\n".join(sorted(kernel.splitlines())) + "\n"
    got = diagnose(tmp_path, {"slurm-77.out": log, "kern-gx-02.log": kernel})
    assert got["category"] == category


@pytest.mark.parametrize(("minute", "category"), [(5, "hardware.gpu_memory"), (-60, "hang.unknown")])
def test_without_that_it_began_before_its_collectives_time_limit(tmp_path, minute, category):
    log = head() + "".join(f"{{'loss': 2.{n}, 'epoch': 0.3}}\n" for n in range(9)) + timeouts((6,))
    at = 10 * 60 + minute
    got = diagnose(
        tmp_path,
        {
            "slurm-77.out": log,
            "kern-gx-02.log": f"2026-05-04T{at // 60:02d}:{at % 60:02d}:58+00:00 gx-02 kernel: {XID}\n",
        },
    )
    assert got["category"] == category


# --- what ----------------------------------------------------------------------------------------------------------


def test_the_driver_only_tells_that_a_program_stopped(tmp_path):
    log = (
        head() + steps() + "../aten/Indexing.cu:1289: block: [42,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
    )
    log += traceback(6, "torch.AcceleratorError: CUDA error: device-side assert triggered") + timeouts((6,))
    kernel = f"{AT} gx-02 kernel: NVRM: Xid (PCI:0000:3b:00): 43, pid=9, name=python, Ch 00000008\n"
    got = diagnose(tmp_path, {"slurm-77.out": log, "gx-02-dmesg.txt": kernel})
    assert (got["category"], got["first_error"]["rank"]) == ("data", 6)
    alone = diagnose(tmp_path / "alone", {"slurm-77.out": head() + steps() + timeouts((6,)), "gx-02-dmesg.txt": kernel})
    assert alone["category"] == "software.user"


@pytest.mark.parametrize(("journal", "category"), [(True, "software.env"), (False, "hardware.nvlink")])
def test_why_the_switches_were_not_ready(tmp_path, journal, category):
    log = head() + traceback(6, "RuntimeError: CUDA error: system not yet initialized")
    files = {"slurm-77.out": log}
    if journal:
        text = "nvidia-fabricmanager.service: Failed with result 'exit-code'."
        files["journal-gx-02.log"] = f"2026-05-04T08:00:00+00:00 gx-02 systemd[1]: {text}\n"
    got = diagnose(tmp_path, files)
    assert (got["category"], got["first_error"]["node"]) == (category, "gx-02")
    assert got["suspect_nodes"] == ["gx-02"]


@pytest.mark.parametrize(("path", "suspects"), [("/tmp/torchinductor/x", ["gx-02"]), ("/lustre/ckpt/x", [])])
def test_a_full_disk_of_one_machine_and_a_full_file_system(tmp_path, path, suspects):
    log = head() + steps() + traceback(6, f"OSError: [Errno 28] No space left on device: '{path}'") + timeouts((6,))
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["suspect_nodes"]) == ("storage.full", suspects)


def test_a_kernel_that_says_its_disk_is_gone_explains_what_programs_saw(tmp_path):
    log = head() + steps() + traceback(6, "OSError: [Errno 30] Read-only file system: '/scratch/x'") + timeouts((6,))
    kernel = f"{AT} gx-02 kernel: EXT4-fs (nvme1n1p1): Remounting filesystem read-only\n"
    got = diagnose(tmp_path, {"slurm-77.out": log, "gx-02-dmesg.txt": kernel})
    assert first(got) == ("storage.io", "gx-02-dmesg.txt", 1, "gx-02")
    assert got["suspect_nodes"] == ["gx-02"]


WAITS = "[90211.22] nfs: server filer3 not responding, still trying\n[90334.77] INFO: task python:9 blocked for more than 122 seconds.\n"


@pytest.mark.parametrize(
    ("kernel", "category"),
    [(WAITS, "storage.io"), (WAITS + "[90399.1] nfs: server filer3 OK\n", "hang.unknown"), ("", "hang.unknown")],
)
def test_a_silent_rank_whose_machine_waits_for_its_files(tmp_path, kernel, category):
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + timeouts((6,)), "dmesg.gx-02": kernel})
    assert (got["category"], got["first_error"]["rank"], got["suspect_nodes"]) == (category, 6, [])


UNKILLABLE = "slurmstepd: error: *** STEP 77.0 STEPD TERMINATED ON gx-02 AT 2026-05-04T17:01:00 DUE TO JOB NOT ENDING WITH SIGNALS ***\n"
CANCELLED = "slurmstepd: error: *** STEP 77.0 ON gx-01 CANCELLED AT 2026-05-04T{} ***\n"


@pytest.mark.parametrize(
    ("at", "category", "suspects"), [("17:00:00", "hang.unknown", ["gx-02"]), ("10:05:30", "scheduler.cancel", [])]
)
def test_a_process_that_cannot_be_ended(tmp_path, at, category, suspects):
    ends = "srun: error: gx-02: tasks 4-5,7: Terminated\nsrun: error: gx-01: tasks 0-3: Terminated\n"
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + CANCELLED.format(at) + ends + UNKILLABLE})
    assert (got["category"], got["suspect_nodes"]) == (category, suspects)
    if suspects:
        assert (got["first_error"]["rank"], got["first_error"]["node"]) == (6, "gx-02")


def test_one_rank_in_another_collective_of_the_same_number(tmp_path):
    log = head() + steps() + "[rank 0] generating 4 samples\n"
    log += "".join(timeout(r, op="ALLREDUCE" if r else "_ALLGATHER_BASE") for r in range(WORLD))
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["first_error"]["rank"], got["restart_ok"]) == ("software.user", 0, False)
    assert log.splitlines()[got["first_error"]["line"] - 1] == "[rank 0] generating 4 samples"


@pytest.mark.parametrize(("state", "suspects"), [("Active", ["gx-03"]), ("Not Active", [])])
def test_a_device_that_is_slowed_down(tmp_path, state, suspects):
    log = "".join(
        f" [2026-05-04 10:{n:02d}:05] iteration {n:8d}/  9000 | elapsed time per iteration (ms): {9000 if n < 9 else 15000 + n}.0 |\n"
        for n in range(18)
    )
    files = {"slurm-77.out": head() + log}
    for node in NODES:
        files[f"nvsmi-{node}.txt"] = f"    HW Slowdown            : {state if node == 'gx-03' else 'Not Active'}\n"
    got = diagnose(tmp_path, files)
    assert (got["category"], got["suspect_nodes"]) == ("performance.straggler", suspects)


@pytest.mark.parametrize(
    "words",
    [
        "2026-05-04 10:07:50 | WARNING | Handling webdataset error (UnidentifiedImageError('cannot identify image')). Ignoring.",
        "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the GetObject operation\nretry 1 succeeded after 5 s",
    ],
)
def test_what_was_handled_ended_nothing(tmp_path, words):
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + f"{words}\n2026-05-04 10:09:00 | INFO | Done.\n"})
    assert got["failed"] is False
    got = diagnose(tmp_path / "open", {"slurm-77.out": head() + steps() + f"{words}\n"})
    assert got["category"] not in ("data", "storage.io")


def test_the_first_line_of_a_nan_is_where_the_numbers_broke(tmp_path):
    log = head() + "".join(
        f"{{'loss': {v}, 'grad_norm': {g}}}\n" for v, g in [("2.1", "1.0")] * 4 + [("0.0", "nan")] * 3
    )
    log += traceback(0, "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0")
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["first_error"]["line"]) == ("numeric", len(head().splitlines()) + 5)


@pytest.mark.parametrize(
    ("file", "category"),
    [("/v/site-packages/deepspeed/runtime/zero/stage3.py", "software.framework"), ("/app/t.py", "software.user")],
)
def test_whose_code_raised_it(tmp_path, file, category):
    log = (
        head()
        + steps()
        + traceback(6, "AssertionError: {'id': 291}", (("/app/train.py", 3, "main"), (file, 9, "fetch")))
    )
    assert diagnose(tmp_path, {"slurm-77.out": log + timeouts((6,))})["category"] == category


def report(host, rank, local, code, name):
    return (
        f"  time      : 2026-05-04_10:07:00\n  host      : {host}\n  rank      : {rank} (local_rank: {local})\n"
        f"  exitcode  : -{code} (pid: 81)\n  error_file: <N/A>\n  traceback : Signal {code} (SIG{name}) received by PID 81\n"
    )


@pytest.mark.parametrize(
    ("last", "category", "rank", "node"),
    [
        (report("gx-02", 6, 2, 9, "KILL"), "oom.host", 6, "gx-02"),
        (report("gx-03", 9, 1, 11, "SEGV"), "software.framework", 9, "gx-03"),
        ("srun: error: gx-02: task 6: Exited with exit code 137\n", "oom.host", 6, "gx-02"),
        (
            "mpirun noticed that process rank 6 with PID 81 on node gx-02 exited on signal 9 (Killed).\n",
            "oom.host",
            6,
            "gx-02",
        ),
        (
            "gx-02: ['python', '-u', 'train.py', '--local_rank=2'] exits with return code = -11\n",
            "software.framework",
            6,
            "gx-02",
        ),
    ],
)
def test_the_bare_end_of_a_process_is_better_than_nothing(tmp_path, last, category, rank, node):
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + last})
    assert (got["category"], got["first_error"]["rank"], got["first_error"]["node"]) == (category, rank, node)
    assert got["confidence"] == "low"


@pytest.mark.parametrize(("goes_on", "failed"), [(True, False), (False, True)])
def test_a_job_that_was_started_anew_and_reached_its_end(tmp_path, goes_on, failed):
    log = (
        head()
        + steps()
        + "slurmstepd: error: *** JOB 77 ON gx-01 CANCELLED AT 2026-05-04T10:06:00 DUE TO PREEMPTION ***\n"
    )
    log += (steps(106, 4, "11:00") + "[after training is done]\n") if goes_on else ""
    assert diagnose(tmp_path, {"slurm-77.out": log})["failed"] is failed


def test_versions_that_differ_between_nodes_blame_none_of_them(tmp_path):
    words = "bootstrap.cc:78 NCCL WARN Message truncated : received 1024 bytes instead of 256\n"
    got = diagnose(tmp_path, {f"{node}.log": f"{node}:1:2 [0] {words}" for node in NODES[:2]})
    assert (got["category"], got["suspect_nodes"]) == ("software.env", [])


def test_a_file_called_after_a_host_is_its_file_beside_those_of_hosts_that_speak(tmp_path):
    files = {f"q{n}.log": report(f"q{n}", 4 * n, 0, 6, "ABRT") for n in (0, 1, 3)}
    files["q2.log"] = "[rank8]: RuntimeError: No CUDA GPUs are available\n"
    got = diagnose(tmp_path, files)
    assert (got["category"], got["suspect_nodes"]) == ("software.env", ["q2"])
