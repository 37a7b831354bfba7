"""Folders of logs and what came first in them. Two wordings of each kind, made up here; nothing is taken from elsewhere."""

from __future__ import annotations

import gzip

import pytest
from logcases import EACH, NODES, WORLD, diagnose, head, node_of, steps, timeout, timeouts, traceback


def check(got, category, *, rank=None, node=None, suspects=(), restart=None):
    assert got["failed"] is True, got
    assert got["category"] == category, got
    assert (got["first_error"]["rank"], got["first_error"]["node"]) == (rank, node), got
    assert got["suspect_nodes"] == list(suspects), got
    if restart is not None:
        assert got["restart_ok"] is restart, got


LOUD = timeouts(guilty=(6,))


@pytest.mark.parametrize(
    ("last", "category", "suspect", "restart"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has 79 GiB", "oom.gpu", False, False),
        ("torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB", "oom.gpu", False, False),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "hardware.gpu_memory", True, False),
        ("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", "hardware.gpu_memory", True, False),
        ("torch.AcceleratorError: CUDA error: unspecified launch failure", "hardware.gpu", True, True),
        ("RuntimeError: CUDA error: unknown error", "hardware.gpu", True, True),
        ("RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error", "hardware.nvlink", True, True),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "software.user", False, False),
        ("torch.AcceleratorError: CUDA error: misaligned address", "software.user", False, False),
        ("OSError: [Errno 28] No space left on device: '/ckpt/iter_10/__6_0.distcp'", "storage.full", False, False),
        ("OSError: [Errno 122] Disk quota exceeded", "storage.full", False, False),
        ("OSError: [Errno 116] Stale file handle: '/data/x.bin'", "storage.io", False, True),
        ("OSError: [Errno 5] Input/output error", "storage.io", False, True),
        ("OSError: [Errno 108] Cannot send after transport endpoint shutdown", "storage.io", False, True),
        ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", "storage.ckpt_corrupt", False, False),
        ("safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer", "storage.ckpt_corrupt", False, False),
        ("RuntimeError: Error(s) in loading state_dict for GPTModel: size mismatch for embedding.weight", "config", False, False),
        ("AssertionError: found Inf in local grad norm for bucket #3 in backward pass", "numeric", False, True),
        ("ValueError: token id 51200 is out of range for a vocabulary of 50304", "data", False, False),
        ("json.decoder.JSONDecodeError: Expecting ',' delimiter: line 1 column 80 (char 79)", "data", False, False),
        ("MemoryError", "oom.host", False, False),
        ("RuntimeError: DataLoader worker (pid 118) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.", "oom.host", False, False),
        ("KeyError: 'input_ids'", "software.user", False, False),
        ("mylib.errors.ShapeError: (4, 8) is not (8, 4)", "software.user", False, False),
    ],
)  # fmt: skip
def test_one_rank_says_what_it_died_of(tmp_path, last, category, suspect, restart):
    log = head() + steps() + traceback(6, last) + LOUD
    got = diagnose(tmp_path, {"slurm-77.out": log})
    check(got, category, rank=6, node="gx-02", suspects=["gx-02"] if suspect else [], restart=restart)
    assert log.splitlines()[got["first_error"]["line"] - 1].endswith(last)
    assert got["evidence"] == "explicit"
    assert "15 ranks" in got["cascade"]


def test_the_root_that_is_printed_last_still_wins(tmp_path):
    log = head() + steps() + LOUD + traceback(6, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
    check(diagnose(tmp_path, {"slurm-77.out": log}), "hardware.gpu_memory", rank=6, node="gx-02", suspects=["gx-02"])


KERNEL = "2026-05-04T10:06:00+00:00 {node} kernel: {text}\n"


@pytest.mark.parametrize(
    ("text", "category", "restart"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1209, name=python3, GPU has fallen off the bus.", "hardware.gpu", False),
        ("NVRM: Xid (PCI:0000:3b:00): 119, pid=1209, name=python3, Timeout after 6s of waiting for RPC response from GPU0 GSP!", "hardware.gpu", False),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=1209, name=python3, DBE (double bit error) ECC Error", "hardware.gpu_memory", False),
        ("NVRM: Xid (PCI:0000:3b:00): 94, pid=1209, name=python3, Contained: SM (0x1). RST: No, D-RST: No", "hardware.gpu_memory", True),
        ("NVRM: Xid (PCI:0000:3b:00): 64, pid='<unknown>', name=<unknown>, Row Remapper: Failed to remap", "hardware.gpu_memory", False),
        ("NVRM: Xid (PCI:0000:3b:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6", "hardware.nvlink", False),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 22013, Fatal, Link 25 Minion Link NA interrupt", "hardware.nvlink", False),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: bea0000000000108", "hardware.host", False),
        ("mlx5_core 0000:ca:00.0: mlx5_health_try_recover:338: device's health compromised - reached miss count", "hardware.network", False),
        ("Out of memory: Killed process 1209 (python3) total-vm:900GB, anon-rss:800GB", "oom.host", False),
        ("Memory cgroup out of memory: Killed process 1209 (pt_main_thread) total-vm:1kB", "oom.host", False),
        ("Kernel panic - not syncing: Fatal exception in interrupt", "hardware.host", False),
    ],
)  # fmt: skip
def test_the_kernel_of_one_node_names_it(tmp_path, text, category, restart):
    log = head() + "gx-02:1209:1300 [2] NCCL INFO cudaDriverVersion 13000\n" + steps() + LOUD
    files = {"slurm-77.out": log, "gx-02-dmesg.txt": KERNEL.format(node="gx-02", text=text)}
    got = diagnose(tmp_path, files)
    suspects = [] if category == "oom.host" else ["gx-02"]
    rank = 6 if "1209" in text else None
    check(got, category, rank=rank, node="gx-02", suspects=suspects, restart=restart)
    assert got["first_error"]["file"] == "gx-02-dmesg.txt"


@pytest.mark.parametrize(
    "text", ["NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "Out of memory: Killed process 9 (python)"]
)
def test_an_xid_of_an_earlier_job_is_not_ours(tmp_path, text):
    kernel = KERNEL.format(node="gx-04", text=text).replace("T10:06", "T08:12")
    log = head() + steps() + traceback(6, "ValueError: bad batch") + LOUD
    got = diagnose(tmp_path, {"slurm-77.out": log, "journal-gx-04.log": kernel})
    check(got, "software.user", rank=6, node="gx-02")


@pytest.mark.parametrize(
    "code", ["31, pid=1, name=python3, Ch 0012, MMU Fault", "13, pid=1, name=python3, Graphics SM Warp Exception"]
)
def test_the_same_xid_on_three_nodes_at_one_step_is_the_code(tmp_path, code):
    files = {"slurm-77.out": head() + steps() + LOUD}
    for node in NODES[:3]:
        files[f"journal-{node}.log"] = KERNEL.format(node=node, text=f"NVRM: Xid (PCI:0000:3b:00): {code}")
    got = diagnose(tmp_path, files)
    assert (got["category"], got["suspect_nodes"], got["restart_ok"]) == ("software.user", [], False)


@pytest.mark.parametrize(
    "last",
    ["ValueError: token id 51200 out of range", "torch.AcceleratorError: CUDA error: device-side assert triggered"],
)
def test_the_same_end_on_every_node_blames_none(tmp_path, last):
    log = head() + steps() + "".join(traceback(rank, last) for rank in (1, 5, 9, 13)) + timeouts((1, 5, 9, 13))
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert got["suspect_nodes"] == []
    assert got["category"] in ("data", "software.user")
    assert got["restart_ok"] is False


# --- silence ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guilty", [6, 13])
def test_the_silent_rank_is_the_guilty_one(tmp_path, guilty):
    files = {}
    for rank in range(WORLD):
        own = "".join(f"[rank {rank}] step {n} loss=2.1\n" for n in range(20 if rank != guilty else 19))
        files[f"rank_{rank:03d}.log"] = own + ("" if rank == guilty else timeout(rank))
    files["slurm-77.out"] = head()
    got = diagnose(tmp_path, files)
    check(got, "hang.unknown", rank=guilty, node=node_of(guilty), restart=True)
    assert (got["first_error"]["file"], got["first_error"]["line"]) == (f"rank_{guilty:03d}.log", 19)
    assert got["evidence"] == "inference"


@pytest.mark.parametrize("slot", [1, 3])
def test_a_node_whose_ranks_are_all_silent_is_suspected(tmp_path, slot):
    silent = range(slot * EACH, slot * EACH + EACH)
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + timeouts(silent)})
    assert (got["category"], got["suspect_nodes"]) == ("hang.unknown", [NODES[slot]])


@pytest.mark.parametrize(
    ("odd", "words"), [(5, "iterator is exhausted, leaving epoch loop"), (9, "data loader ran out of batches")]
)
def test_a_rank_that_is_ahead_left_the_loop(tmp_path, odd, words):
    files = {
        f"rank_{rank:03d}.log": f"[rank {rank}] step 18 loss=2\n"
        + (f"[rank {rank}] {words}\n" if rank == odd else "")
        + timeout(rank, 20 if rank == odd else 19)
        for rank in range(WORLD)
    }
    files["slurm-77.out"] = head()
    got = diagnose(tmp_path, files)
    check(got, "data", rank=odd, node=node_of(odd), restart=False)
    assert got["first_error"]["line"] == 2


@pytest.mark.parametrize(
    "busy", ["saving checkpoint at iteration     120 to /ckpt", "INFO: Saving model checkpoint to /ckpt/120"]
)
def test_a_save_that_outlasts_the_limit_is_the_configuration(tmp_path, busy):
    log = head() + steps() + f"{busy}\n" + timeouts((0,))
    got = diagnose(tmp_path, {"slurm-77.out": log})
    check(got, "config", rank=0, node="gx-01", restart=False)
    assert log.splitlines()[got["first_error"]["line"] - 1] == busy


@pytest.mark.parametrize("gap", [58, 3])
def test_a_gap_in_the_tasks_is_a_rank(tmp_path, gap):
    nodes = [f"k{n}" for n in range(1, 9)]
    log = head(nodes, 8) + steps() + f"srun: error: tasks 0-{gap - 1},{gap + 1}-63: Terminated\n"
    got = diagnose(tmp_path, {"slurm-77.out": log})
    check(got, "hang.unknown", rank=gap, node=nodes[gap // 8])


def stack(pid, local, *frames):
    return (
        f'Process {pid}: python train.py --local_rank {local}\nPython v3.11.9\n\nThread {pid} (active): "MainThread"\n'
        + "".join(f"    {f}\n" for f in frames)
    )


@pytest.mark.parametrize(
    ("frames", "category"),
    [
        (
            ("wait (threading.py:320)", "get (queue.py:171)", "_get_data (torch/utils/data/dataloader.py:1243)"),
            "software.framework",
        ),
        (
            ("write (torch/serialization.py:501)", "save_checkpoint (megatron/training/checkpointing.py:400)"),
            "storage.io",
        ),
        (("compute_metrics (train.py:77)", "main (train.py:12)"), "software.user"),
    ],
)
def test_the_one_stack_that_differs(tmp_path, frames, category):
    files = {"slurm-77.out": head() + steps()}
    for slot, node in enumerate(NODES):
        files[f"pyspy-{node}.txt"] = "".join(
            stack(
                100 + local,
                local,
                *(
                    frames
                    if (slot, local) == (2, 1)
                    else ("all_reduce (torch/distributed/distributed_c10d.py:2050)", "step (train.py:9)")
                ),
            )
            for local in range(EACH)
        )
    check(diagnose(tmp_path, files), category, rank=9, node="gx-03")


# --- the network -------------------------------------------------------------------------------------------------


def completion(reporter, peer):
    node = node_of(reporter)
    return f"{node}:{3000 + reporter}:{4000 + reporter} [{reporter % EACH}] net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer {peer}<51234> with error 12, opcode 1, len 1, vendor err 129 (Recv)\n"


@pytest.mark.parametrize("event", ["mlx5_2:1 Got async event : port error", "Got async fatal event: device fatal"])
def test_the_port_and_not_who_reports_its_peer(tmp_path, event):
    log = (
        head()
        + steps()
        + completion(1, "gx-03")
        + f"gx-03:3009:4009 [1] net_ib.cc:93 NCCL WARN NET/IB : {event}\n"
        + completion(13, "gx-03")
        + LOUD
    )
    check(diagnose(tmp_path, {"slurm-77.out": log}), "hardware.network", rank=9, node="gx-03", suspects=["gx-03"])


@pytest.mark.parametrize("peer", ["gx-03", "10.1.0.3"])
def test_all_reporters_name_one_peer(tmp_path, peer):
    names = "".join(
        f"{n}:900:900 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.1.0.{i}<0>\n"
        for i, n in enumerate(NODES, 1)
    )
    log = head() + names + steps() + completion(1, peer) + completion(5, peer) + completion(13, peer) + timeouts()
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["suspect_nodes"], got["first_error"]["node"]) == (
        "hardware.network",
        ["gx-03"],
        "gx-03",
    )


@pytest.mark.parametrize("again", ["Got async event : port active", "Got async event : client reregistration"])
def test_a_port_that_came_back_did_not_fail(tmp_path, again):
    flap = f"gx-02:3000:4000 [0] NCCL WARN NET/IB : Got async event : port error\ngx-02:3000:4000 [0] NCCL WARN NET/IB : {again}\n"
    got = diagnose(
        tmp_path,
        {"slurm-77.out": head() + steps() + flap + steps(106, 6, "10:06") + "Training finished after 112 steps\n"},
    )
    assert (got["failed"], got["category"], got["first_error"]) == (False, "none", None)


# --- Slurm -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "category"),
    [
        (
            "slurmstepd: error: *** STEP 77.0 ON gx-01 CANCELLED AT 2026-05-04T10:06:09 DUE TO TIME LIMIT ***",
            "scheduler.timelimit",
        ),
        (
            "slurmstepd: error: *** JOB 77 ON gx-01 CANCELLED AT 2026-05-04T10:06:09 DUE TO PREEMPTION ***",
            "scheduler.preempt",
        ),
        ("slurmstepd: error: *** JOB 77 ON gx-01 CANCELLED AT 2026-05-04T10:06:09 ***", "scheduler.cancel"),
    ],
)
def test_slurm_ended_it(tmp_path, line, category):
    log = (
        head()
        + steps()
        + line
        + "\n"
        + "".join(f"[rank{r}]: KeyboardInterrupt\n" for r in range(4))
        + "srun: error: gx-02: tasks 4-7: Terminated\n"
    )
    check(diagnose(tmp_path, {"slurm-77.out": log}), category, restart=True)


def test_a_hang_that_ran_into_the_time_limit_is_a_hang(tmp_path):
    log = (
        head()
        + steps()
        + LOUD
        + "slurmstepd: error: *** STEP 77.0 ON gx-01 CANCELLED AT 2026-05-04T12:00:00 DUE TO TIME LIMIT ***\n"
    )
    check(diagnose(tmp_path, {"slurm-77.out": log}), "hang.unknown", rank=6, node="gx-02")


@pytest.mark.parametrize(
    "line", ["srun: error: Node failure on gx-03", "slurmctld: error: Nodes gx-03 not responding, setting DOWN"]
)
def test_a_node_that_slurm_lost(tmp_path, line):
    got = diagnose(
        tmp_path, {"slurm-77.out": head() + steps() + line + "\nsrun: error: gx-01: tasks 0-3: Terminated\n"}
    )
    check(got, "scheduler.nodefail", node="gx-03", suspects=["gx-03"], restart=True)


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: pyxis: container start failed with error code: 1",
        "slurmstepd: error: execve(): /opt/run.sh: No such file or directory",
    ],
)
def test_what_fails_on_every_node_is_the_configuration(tmp_path, line):
    log = head() + "".join(
        f"{line}\nsrun: error: {node}: task {n}: Exited with exit code 1\n" for n, node in enumerate(NODES)
    )
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["suspect_nodes"], got["restart_ok"]) == ("config", [], False)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA driver version is insufficient for CUDA runtime version",
        "Failed to initialize NVML: Driver/library version mismatch",
    ],
)
def test_what_fails_on_one_node_is_that_nodes(tmp_path, text):
    log = (
        head()
        + f"gx-02:77:77 [0] misc/cudawrap.cc:182 NCCL WARN Cuda failure '{text}'\n"
        + "gx-01:9:9 [0] NCCL WARN socketProgress: Connection closed by remote peer gx-02<41>\n"
    )
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["suspect_nodes"]) == ("software.env", ["gx-02"])


# --- healthy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "noise",
    [
        "error_injection_rate .......... 0\nkill_switch_file ...... /KILL\ncheck_for_nan_in_loss_and_grad .... True\ndistributed_timeout_minutes ... 10\n",
        "[rank3]:[W504 10:00:09.1 TCPStore.cpp:125] [c10d] recvValue failed: Broken pipe\nresource_tracker: There appear to be 8 leaked semaphore objects\n",
        "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n",
        "WARNING retry 1: Connection reset by peer while reading s3://bucket/x, trying again\n",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0\n",
    ],
)  # fmt: skip
def test_scary_words_in_a_healthy_run(tmp_path, noise):
    log = (
        head()
        + noise
        + steps()
        + noise
        + steps(106, 6, "10:06")
        + "[exiting program at iteration 112] datetime: 2026-05-04 10:12\n"
        + noise
    )
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["failed"], got["first_error"], got["restart_ok"]) == (False, None, True)


def test_a_bad_exit_after_the_end_of_training_is_no_failure(tmp_path):
    log = (
        head()
        + steps()
        + "Finished training: 106 steps\n"
        + traceback(2, "RuntimeError: CUDA error: unknown error")
        + "srun: error: gx-01: task 2: Exited with exit code 1\n"
    )
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert got["failed"] is False
    assert got["against"]


@pytest.mark.parametrize(
    "files",
    [{}, {"a.log": b""}, {"notes.txt": "step 3: buy milk\n"}, {"gx-02-dmesg.txt": "[    1.500000] rtc_cmos: hello\n"}],
)
def test_a_folder_without_a_job_cannot_be_judged(tmp_path, files):
    got = diagnose(tmp_path, files)
    assert (got["failed"], got["cannot_tell"], got["restart_ok"], got["confidence"]) == (False, True, None, "low")
    assert "training job" in got["why"]


@pytest.mark.parametrize(("log", "where"), [(head() + steps(), "step 105"), (head(), "before the first step")])
def test_a_log_that_ends_in_the_middle_is_no_finished_run(tmp_path, log, where):
    got = diagnose(tmp_path, {"slurm-77.out": log + "  next: lo"})
    check(got, "hang.unknown", restart=True)
    assert (got["cannot_tell"], got["confidence"], got["evidence"]) == (True, "low", "inference")
    assert got["first_error"]["line"] == log.count("\n") + 1
    assert where in got["why"]


@pytest.mark.parametrize(
    ("end", "cannot_tell", "failed"),
    [
        ("Finished training: 106 steps\n", False, False),
        (steps(8995, 6, "10:06"), False, False),  # the last of 9000 steps
        (steps(8994, 6, "10:06"), True, True),
        ("srun: error: gx-02: task 6: Killed\n", False, True),
    ],
)
def test_an_end_of_whatever_kind_is_believed(tmp_path, end, cannot_tell, failed):
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + end})
    assert (got["cannot_tell"], got["failed"]) == (cannot_tell, failed)


def test_the_accounting_tells_how_a_silent_log_ended(tmp_path):
    for state, failed in (("COMPLETED|0:0", False), ("FAILED|0:9", True)):
        files = {"slurm-77.out": head() + steps(), "sacct.txt": f"JobID|JobName|State|ExitCode\n77|train|{state}\n"}
        got = diagnose(tmp_path / state[:6], files)
        assert (got["failed"], got["cannot_tell"]) == (failed, False)


def test_what_a_cascade_repeats_is_no_new_error(tmp_path):
    """Of a cascade 40 lines are kept; the 41st is not for the rows below to claim: it reads like an exception of the script."""
    stops = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" * 60
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + stops + traceback(6, "MemoryError")})
    check(got, "oom.host", rank=6, node="gx-02")
    assert not got["against"]


# --- clocks -------------------------------------------------------------------------------------------------------


def node_log(slot, minute, last=""):
    node = NODES[slot]
    lines = [f"{node}:{500 + slot}:{500 + slot} [0] NCCL INFO cudaDriverVersion 13000"]
    lines += [f"2026-05-04 10:{minute + n:02d}:00,000 INFO trainer: step {n} done" for n in range(6)]
    return "\n".join(lines) + "\n" + last


@pytest.mark.parametrize("ahead", [7, -4])
def test_a_clock_that_is_off_is_put_right_by_shared_steps(tmp_path, ahead):
    """Both nodes print an NVLink error; by the wrong clock the later one looks earlier."""
    error = "[rank{rank}]:[E504 10:{at} ProcessGroupNCCL.cpp:1895] CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error\n"
    files = {f"{NODES[slot]}.log": node_log(slot, 20 + (ahead if slot == 2 else 0)) for slot in range(4)}
    files["gx-03.log"] += error.format(rank=9, at=f"{25 + ahead:02d}:10.000001")
    files["gx-01.log"] += error.format(rank=1, at="25:16.000001")
    files["layout.txt"] = head()
    got = diagnose(tmp_path, files)
    check(got, "hardware.nvlink", rank=9, node="gx-03", suspects=["gx-03"])
    assert any("clock" in note for note in got["notes"])


@pytest.mark.parametrize("hours", [8, -5])
def test_a_kernel_log_in_local_time(tmp_path, hours):
    stamp = f"May  4 {10 + hours:02d}:06:00"
    kernel = f"{stamp} gx-02 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + LOUD, "gx-02-messages": kernel})
    check(got, "hardware.gpu", node="gx-02", suspects=["gx-02"])


# --- forms of files -----------------------------------------------------------------------------------------------


def test_compressed_logs_and_hostile_bytes(tmp_path):
    log = (
        head() + steps() + traceback(6, "RuntimeError: CUDA error: uncorrectable ECC error encountered") + LOUD
    ).encode()
    dirty = log.replace(b"\n[rank6]: RuntimeError", b"\n\x1b[31m\x00\xff\xfe[rank6]:\x1b[0m RuntimeError")
    assert dirty != log
    for name, data in (("a.out", dirty), ("a.out.gz", gzip.compress(dirty))):
        folder = tmp_path / name
        folder.mkdir()
        check(diagnose(folder, {name: data}), "hardware.gpu_memory", rank=6, node="gx-02", suspects=["gx-02"])


def test_a_damaged_archive_is_said_to_be_so(tmp_path):
    got = diagnose(tmp_path, {"a.out.gz": gzip.compress(head().encode() * 4000)[:-40]})
    assert any("a.out.gz" in note for note in got["notes"])


@pytest.mark.parametrize("label", ["[rank6]: ", "6: ", "[1,6]<stderr>:", "[Rank 6] ", "gx-02:1:2 [2] NCCL WARN "])
def test_labels_in_use(tmp_path, label):
    log = head() + steps() + f"{label}CUDA error: uncorrectable ECC error encountered\n" + LOUD
    check(diagnose(tmp_path, {"slurm-77.out": log}), "hardware.gpu_memory", rank=6, node="gx-02", suspects=["gx-02"])


def test_what_can_not_be_told_is_null(tmp_path):
    got = diagnose(tmp_path, {"x.out": "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"})
    check(got, "hardware.gpu_memory")


def test_a_layout_that_is_given(tmp_path):
    layout = {"nodes": "gx-[01-04]", "ranks_per_node": 4}
    got = diagnose(
        tmp_path, {"x.out": "[rank6]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"}, layout
    )
    check(got, "hardware.gpu_memory", rank=6, node="gx-02", suspects=["gx-02"])


# --- ends without words -------------------------------------------------------------------------------------------

LAUNCHER = """[ERROR] failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: /usr/bin/python3
Root Cause (first observed failure):
[0]:
  time      : 2026-05-04_10:0{minute}:16
  host      : {node}
  rank      : {rank} (local_rank: {local})
  exitcode  : {code} (pid: {pid})
"""


def report(rank, code, minute):
    return LAUNCHER.format(code=code, local=rank % EACH, pid=700 + rank, node=node_of(rank), rank=rank, minute=minute)


@pytest.mark.parametrize(("code", "category"), [(-9, "oom.host"), (-11, "software.framework")])
def test_the_process_that_a_signal_ended_and_not_those_that_lost_it(tmp_path, code, category):
    lost = "".join(
        traceback(
            r,
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited or there was a network error",
        )
        for r in (1, 14)
    )
    log = head() + steps() + lost + report(1, 1, 7) + report(14, -6, 7) + report(6, code, 6)
    check(diagnose(tmp_path, {"slurm-77.out": log}), category, rank=6, node="gx-02")


@pytest.mark.parametrize("line", ["srun: error: gx-02: task 6: Killed", "srun: error: gx-02: task 6: Out Of Memory"])
def test_srun_names_the_killed_task(tmp_path, line):
    log = (
        head()
        + steps()
        + f"{line}\nsrun: error: gx-01: tasks 0-3: Terminated\nsrun: error: gx-02: tasks 4-5,7: Terminated\n"
    )
    check(diagnose(tmp_path, {"slurm-77.out": log}), "oom.host", rank=6, node="gx-02", restart=False)


@pytest.mark.parametrize(
    "after",
    ["slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM Killed."],
)
def test_slurmstepd_and_srun_tell_of_one_oom(tmp_path, after):
    log = (
        head()
        + steps()
        + f"{after}\nsrun: error: gx-02: task 6: Out Of Memory\nsrun: error: gx-01: tasks 0-3: Terminated\n"
    )
    check(diagnose(tmp_path, {"slurm-77.out": log}), "oom.host", rank=6, node="gx-02", restart=False)


@pytest.mark.parametrize(
    "line",
    [
        "[c10d] The client socket has timed out after 60000ms while trying to connect to (gx-01, 29500).",
        "torch.distributed.DistNetworkError: failed to connect to [gx-01]:29500 (errno: 111 - Connection refused)",
    ],
)
def test_processes_that_never_met(tmp_path, line):
    log = head() + "".join(f"[rank{r}]: {line}\n" for r in range(4, 16))
    assert diagnose(tmp_path, {"slurm-77.out": log})["category"] == "config"


@pytest.mark.parametrize(
    "line",
    ["iteration      107/  9000 | lm loss: NaN | grad norm: nan |", "{'loss': nan, 'grad_norm': 0.0, 'epoch': 3}"],
)
def test_a_loss_that_is_no_number_and_stays_so(tmp_path, line):
    log = (
        head()
        + steps()
        + f"{line}\n" * 30
        + "slurmstepd: error: *** JOB 77 ON gx-01 CANCELLED AT 2026-05-04T12:00:00 ***\n"
    )
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["first_error"]["line"], got["restart_ok"]) == ("numeric", 11, False)


@pytest.mark.parametrize(
    "end", ["Training finished after 112 steps\n", "[exiting program at iteration 112] datetime: 2026-05-04\n"]
)
def test_another_jobs_xid_during_a_run_that_finished(tmp_path, end):
    kernel = KERNEL.format(node="gx-04", text="NVRM: Xid (PCI:0000:3b:00): 13, pid=9, name=other, Graphics Exception")
    got = diagnose(
        tmp_path, {"slurm-77.out": head() + steps() + steps(106, 6, "10:06") + end, "journal-gx-04.log": kernel}
    )
    assert got["failed"] is False


def test_an_epoch_that_ended_is_not_the_end(tmp_path):
    log = head() + "Epoch 3 training finished\n" + steps() + traceback(6, "ValueError: token id 9 out of range") + LOUD
    check(diagnose(tmp_path, {"slurm-77.out": log}), "data", rank=6, node="gx-02")


def test_a_last_save_that_failed_is_a_failure(tmp_path):
    log = (
        head()
        + steps()
        + "Finished training: 106 steps\n"
        + traceback(0, "OSError: [Errno 28] No space left on device")
    )
    check(diagnose(tmp_path, {"slurm-77.out": log}), "storage.full", rank=0, node="gx-01")


def test_the_accounting_alone_is_believed_unless_ranks_timed_out(tmp_path):
    sacct = "JobID|JobName|State|ExitCode\n77|train|COMPLETED|0:0\n"
    error = traceback(6, "KeyError: 'x'")
    assert diagnose(tmp_path / "a", {"sacct.txt": sacct, "slurm-77.out": head() + error + steps()})["failed"] is False
    assert (
        diagnose(tmp_path / "b", {"sacct.txt": sacct, "slurm-77.out": head() + steps() + error + LOUD})["failed"]
        is True
    )


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Rank 6 failed to pass monitoredBarrier in 1800000 ms",
        "RuntimeError: Ranks 6, 7 failed to pass monitoredBarrier in 60000 ms",
    ],
)
def test_the_barrier_names_who_did_not_come(tmp_path, line):
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps() + traceback(0, line)})
    check(got, "hang.unknown", rank=6, node="gx-02", restart=True)


@pytest.mark.parametrize("pid", [31999, 7])
def test_an_xid_of_a_process_that_is_not_ours(tmp_path, pid):
    pids = "".join(f"gx-02:{500 + n}:{500 + n} [{n}] NCCL INFO cudaDriverVersion 13000\n" for n in range(EACH))
    kernel = f"[  812.4] NVRM: Xid (PCI:0000:3b:00): 79, pid={pid}, name=other, GPU has fallen off the bus.\n"
    log = head() + pids + steps() + traceback(14, "KeyError: 'x'") + LOUD
    check(diagnose(tmp_path, {"slurm-77.out": log, "gx-02-dmesg.txt": kernel}), "software.user", rank=14, node="gx-04")
    ours = {"slurm-77.out": log, "gx-02-dmesg.txt": kernel.replace(f"pid={pid},", "pid=502,")}
    check(diagnose(tmp_path, ours), "hardware.gpu", rank=6, node="gx-02", suspects=["gx-02"])


@pytest.mark.parametrize("job", ["JOB 77", "STEP 77.0"])
def test_a_hang_that_a_person_ended(tmp_path, job):
    log = head() + steps() + f"slurmstepd: error: *** {job} ON gx-01 CANCELLED AT 2026-05-04T14:00:00 ***\n"
    check(diagnose(tmp_path, {"slurm-77.out": log}), "hang.unknown", restart=True)


@pytest.mark.parametrize(
    "words",
    ["socketProgress: Connection closed by remote peer gx-03<41234>", "Connection reset by peer gx-03-ib0.cluster<9>"],
)
def test_a_node_that_only_others_speak_of(tmp_path, words):
    log = (
        head()
        + steps()
        + "".join(f"{n}:900:901 [0] misc/socket.cc:50 NCCL WARN {words}\n" for n in ("gx-01", "gx-02", "gx-04"))
    )
    got = diagnose(tmp_path, {"slurm-77.out": log})
    assert (got["category"], got["first_error"]["node"], got["suspect_nodes"]) == ("hang.unknown", "gx-03", [])


@pytest.mark.parametrize("odd", [2, 11])
def test_the_rank_that_stopped_a_step_before_the_others(tmp_path, odd):
    files = {
        f"rank_{r:03d}.log": "".join(f"step {n} loss=2\n" for n in range(8 if r == odd else 9)) for r in range(WORLD)
    }
    files["slurm-77.out"] = head() + "slurmstepd: error: *** STEP 77.0 ON gx-01 CANCELLED AT 2026-05-04T14:00:00 ***\n"
    got = diagnose(tmp_path, files)
    check(got, "hang.unknown", rank=odd, node=node_of(odd))
    assert got["first_error"]["line"] == 8


@pytest.mark.parametrize(("uptime", "ours"), [(14765.2, True), (9000.0, False)])
def test_seconds_since_boot_are_tied_to_time_by_the_kernels_own_line(tmp_path, uptime, ours):
    kernel = (
        "[    1.500000] rtc_cmos 00:01: setting system clock to 2026-05-04T06:00:00 UTC (1777874400)\n"
        f"[{uptime:12.6f}] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    )
    got = diagnose(
        tmp_path, {"slurm-77.out": head() + steps() + traceback(14, "KeyError: 'x'") + LOUD, "gx-02-dmesg.txt": kernel}
    )
    assert (got["category"], got["first_error"]["node"]) == (
        ("hardware.gpu", "gx-02") if ours else ("software.user", "gx-04")
    )


@pytest.mark.parametrize("off", [3600, -300])
def test_a_clock_without_steps_is_put_right_by_the_launchers_first_lines(tmp_path, off):
    """By the wrong clock the error that came 40 s later looks earlier."""
    files = {}
    first = 2 if off > 0 else 0
    for slot, node in enumerate(NODES):
        late = off if slot == 2 else 0
        start, end = 36000 + late, 36900 + late + (0 if slot == first else 40)
        clock = lambda t: f"{t // 3600:02d}:{t // 60 % 60:02d}:{t % 60:02d}"  # noqa: E731
        files[f"{node}.log"] = (
            f"W0504 {clock(start)}.032000 {900 + slot} site-packages/torch/distributed/run.py:793] Setting OMP_NUM_THREADS\n"
        )
        if slot in (0, 2):
            files[f"{node}.log"] += (
                f"[rank{slot * EACH}]:[E504 {clock(end)}.032132013 ProcessGroupNCCL.cpp:1896] CUDA error: uncorrectable NVLink error detected\n"
            )
    files["layout.txt"] = head()
    check(diagnose(tmp_path, files), "hardware.nvlink", rank=first * EACH, node=NODES[first], suspects=[NODES[first]])
