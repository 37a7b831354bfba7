"""Lines of logs and what they mean. The lines are of kinds seen in public bug reports; hosts and ids are made up."""

from __future__ import annotations

import os

import pytest

from supervisor.evidence.iterations import read_iteration
from supervisor.evidence.scan import scan
from supervisor.evidence.table import table
from supervisor.evidence.tail import LONGEST, OLD, Tail


@pytest.mark.parametrize(
    ("line", "role", "category"),
    [
        ("[10242.1] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.", "root", "hardware.gpu"),
        ("NVRM: Xid (PCI:0000:3b:00): 94, pid=77, Contained: memory error", "root", "hardware.gpu_memory"),
        ("NVRM: Xid (PCI:0000:3b:00): 145, RLW_RXPIPE Nonfatal", "root", "hardware.nvlink"),
        ("NVRM: Xid (PCI:0000:3b:00): 45, pid=7, Ch 00000003", "cascade", "hardware.gpu"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "root", "hardware.gpu_memory"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB", "root", "oom.gpu"),
        ("Out of memory: Killed process 4411 (python) total-vm:99kB", "root", "oom.host"),
        ("OSError: [Errno 28] No space left on device: '/ckpt/x'", "root", "storage.full"),
        ("OSError: [Errno 116] Stale file handle", "root", "storage.io"),
        ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", "root", "storage.ckpt_corrupt"),
        ("AssertionError: found NaN in local grad norm in backward pass", "root", "numeric"),
        ("step 12 loss: nan", "root", "numeric"),
        ("RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.1]:4411", "cascade", "hang.unknown"),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited or there was a network error", "cascade", "hang.unknown"),
        ("[rank3]:[E1130 10:40:19] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)", "cascade", "hang.unknown"),
        ("RuntimeError: Timed out waiting for 8000ms for recv operation to complete", "cascade", "hang.unknown"),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", "cascade", "hang.unknown"),
        ("slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-11-30T10:00:00 DUE TO TIME LIMIT ***", "root", "scheduler.timelimit"),
        ("Fatal Python error: Segmentation fault", "root", "software.framework"),
        ("run.sh: line 7: 4411 Killed   python train.py", "context", "oom.host"),
        ("ValueError: token id 50304 out of range", "root", "data"),
        ("[rank5]: KeyError: 'tokens'", "root", "software.user"),
        (" 52: mypkg.errors.BadSample: x", None, None),
        ("ModuleNotFoundError: No module named 'apex'", "root", "software.env"),
        ("number of nan iterations:   0 |", "benign", "none"),
        ("info: nan_in_loss_and_grad ............ True", None, None),
        ("no errors; error_rate: 0.0; TORCH_NCCL_ASYNC_ERROR_HANDLING=1", None, None),
        ("wandb: finance report written", None, None),
        ("", None, None),
    ],
)  # fmt: skip
def test_a_line_means_what_it_says(line, role, category):
    match = scan(line)
    assert (match and match.role, match and match.category) == (role, category)


def test_every_signature_can_be_reached():
    kinds = [s.kind for s in table()]
    assert len(kinds) == len(set(kinds))
    assert all(s.category for s in table())


def test_a_line_without_end_is_cut():
    assert scan("x" * 1_000_000 + "CUDA out of memory") is None
    assert len(scan("CUDA out of memory" + "x" * 1_000_000).text) == 512


MEGATRON = " [2026-11-30 10:40:05] iteration       40/     100 | consumed samples:          320 | elapsed time per iteration (ms): 150.5 | learning rate: 1.42E-04 | global batch size:     8 | lm loss: 2.198845E+00 | loss scale: 1.0 | grad norm: 0.242 | number of skipped iterations:   1 | number of nan iterations:   0 |"


def test_megatrons_own_line():
    row = read_iteration(MEGATRON)
    assert (row.step, row.samples, row.skipped, row.loss, row.lr, row.grad_norm) == (
        40,
        320,
        1,
        2.198845,
        1.42e-4,
        0.242,
    )
    assert row.seconds == pytest.approx(0.1505)
    assert not row.non_finite


def test_other_orders_spaces_and_stamps():
    row = read_iteration(
        "[default7]:iteration 7/ 9 |lm loss:NaN| learning rate:1e-4 |elapsed time per iteration (s): 106.46|"
    )
    assert (row.step, row.loss, row.non_finite, row.samples, row.seconds) == (7, None, True, 0, 106.46)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "iteration",
        "saved iteration 40/100",
        "an iteration 4 of 100 | lm loss: 2",
        "subiteration 4/100 | lm loss: 2",
    ],
)
def test_other_lines_are_no_iterations(line):
    assert read_iteration(line) is None


def test_loss_scale_is_no_loss():
    assert read_iteration("iteration 1/2 | loss scale: 65536.0 | mtp_1 loss: 3.5 |").loss == 3.5
    assert read_iteration("iteration 1/2 | loss scale: 65536.0 |").loss is None


def append(path, data):
    with open(path, "ab") as file:
        file.write(data)


def test_a_tail_gives_each_whole_line_once(tmp_path):
    path = str(tmp_path / "log")
    tail = Tail(path)
    assert tail.look() == []
    append(path, b"one\r\ntw")
    assert [(x.text, x.number) for x in tail.look()] == [("one", 1)]
    append(path, b"o\nthree \xff\n")
    assert [(x.text, x.number) for x in tail.look()] == [("two", 2), ("three \N{REPLACEMENT CHARACTER}", 3)]
    assert tail.look() == []


def test_a_file_that_was_cut_short_starts_anew(tmp_path):
    path = str(tmp_path / "log")
    append(path, b"one\ntwo\n")
    tail = Tail(path)
    tail.look()
    os.truncate(path, 0)
    append(path, b"new\n")
    assert [(x.text, x.number) for x in tail.look()] == [("new", 1)]


def test_an_old_large_file_is_read_from_its_end(tmp_path):
    path = str(tmp_path / "log")
    append(path, b"x" * (OLD + 1) + b"\nlast\n")
    lines = Tail(path).look()
    assert (lines[-1].text, lines[-1].number) == ("last", None)


def test_a_line_that_never_ends_is_cut(tmp_path):
    path = str(tmp_path / "log")
    append(path, b"x" * (LONGEST + 9))
    tail = Tail(path)
    assert [len(x.text) for x in tail.look()] == [LONGEST]
    append(path, b"y\n")
    assert [x.text for x in tail.look()] == ["y"]
