"""The table of line kinds: each row's example is its test, on both engines."""

from __future__ import annotations

import pytest

from supervisor.evidence.engine import ROWS_AT_MOST, Hyperscan, Regular
from supervisor.evidence.scan import Scanner, clean, scan
from supervisor.evidence.table import read_table, table, with_site

ROWS = table()


@pytest.fixture(scope="module")
def hyperscan():
    pytest.importorskip("hyperscan")
    return Hyperscan(ROWS)


def found(scanner, data: bytes) -> set[int]:
    return {hit % ROWS_AT_MOST for hit in scanner.scan(data)}


@pytest.mark.parametrize("row", ROWS, ids=[row.kind for row in ROWS])
def test_a_rows_example_is_of_its_kind(row):
    match = scan(row.example)
    assert match is not None
    assert match.kind == row.kind
    assert row.source


@pytest.mark.parametrize("row", ROWS, ids=[row.kind for row in ROWS])
def test_both_engines_find_what_the_pattern_fits(row, hyperscan):
    line = row.example.encode() + b"\n"
    number = ROWS.index(row)
    assert number in found(Regular(ROWS), line)
    assert number in found(hyperscan, line)


def test_both_engines_find_the_same(hyperscan):
    text = "\n".join(
        f"{row.example}\nnoise {number}\n{row.example.upper()}" for number, row in enumerate(ROWS)
    ).encode()
    assert found(hyperscan, text) == found(Regular(ROWS), text)
    for row in ROWS:
        for line in (
            row.example,
            row.example.lower(),
            "17: [rank17]: " + row.example,
            row.example[: len(row.example) // 2],
        ):
            assert found(hyperscan, line.encode()) == found(Regular(ROWS), line.encode())


def test_a_planted_blind_engine_is_seen(hyperscan):
    blind = Hyperscan([row for row in ROWS if row.kind != "cuda-gpu-oom"])
    example = next(row.example for row in ROWS if row.kind == "cuda-gpu-oom").encode()
    assert len(found(blind, example)) < len(found(hyperscan, example))


ROW = '[[signature]]\nkind="a"\npattern="x"\nrole="root"\ncategory="data"\n'


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ('role="root"', 'role="guilty"'),
        ('pattern="x"', 'pattern="("'),
        ('pattern="x"', ""),
        ('kind="a"', ""),
        ('category="data"', 'category="bad luck"'),
        ('category="data"', 'category="data"\nblames="me"'),
        ('category="data"', 'category="data"\ngrade=9'),
        ('category="data"', 'category="data"\nhints=["x"]'),
    ],
)
def test_a_broken_row_is_refused_with_its_number(change, to):
    with pytest.raises(ValueError, match="signature 1"):
        read_table(ROW.replace(change, to))


def test_a_site_adds_its_own_rows_and_they_come_first():
    rows = with_site(
        '[[signature]]\nkind="our-filer"\npattern="No space left on device.*filer9"\nrole="root"\ncategory="storage.io"\n'
    )
    assert rows[0].kind == "our-filer"
    assert rows[0].restart
    with pytest.raises(ValueError, match="twice"):
        with_site(ROW.replace('"a"', '"exception"'))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mRuntimeError\x1b[0m: x", "RuntimeError: x"),
        ("\x1b]0;title\x07text", "text"),
        ("a\rb\x00c", "a b c"),
        ("\x1b[", "["),
    ],
)
def test_colours_and_controls_go(raw, shown):
    assert clean(raw).strip() == shown


@pytest.mark.parametrize(
    ("line", "category", "role"),
    [
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=9.0. Some of your processes may have been killed", "oom.host", "root"),
        ("slurmstepd: error: Exceeded job memory limit at some point.", "oom.host", "root"),
        ("NCCL WARN NET/OFI Request 0x7f completed with error. RC: 12. Error: unknown error", "hardware.network", "cascade"),
        ("[E socket.cpp:922] [c10d] The client socket has timed out after 60s while trying to connect to (n1, 29500).", "hang.unknown", "cascade"),
        ("torch.distributed.elastic.rendezvous.api.RendezvousClosedError", "hang.unknown", "cascade"),
        ("NCCL WARN Cuda failure 2 'out of memory'", "oom.gpu", "root"),
        ("IndexError: index out of range in self", "data", "root"),
        ("RuntimeError: stack expects each tensor to be equal size, but got [4] at entry 0 and [5] at entry 1", "data", "root"),
        ("FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.", "numeric", "root"),
        ("Loss is nan, stopping training", "numeric", "root"),
        ("RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.", "numeric", "root"),
        ("AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu", "config", "root"),
        ("ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "config", "root"),
        ("RuntimeError: received 0 items of ancdata", "config", "root"),
        ("mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, Bus stuck", "hardware.network", "root"),
        ("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0", "hardware.host", "root"),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x40:2393)", "hardware.gpu", "root"),
        ("multiprocessing.managers.RemoteError: EOFError", "hang.unknown", "cascade"),
        ("ValueError: num_attention_heads (12) must be divisible by tensor parallel size (8)", "config", "root"),
        ("botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL", "storage.io", "root"),
        ("fatal: epoch_errors=0 timeout=600 nan_policy=skip", None, None),
        ("INFO retries: 3, errors: 0, killed: 0", None, None),
    ],
)  # fmt: skip
def test_wordings_in_use(line, category, role):
    match = scan(line)
    assert (match and match.category, match and match.role) == (category, role)


def test_lines_one_by_one_mean_the_same_before_and_after_the_engine_starts():
    pytest.importorskip("hyperscan")
    slow, quick = Scanner(), Scanner(worth=0)
    for row in ROWS:
        for line in (
            row.example,
            f"\x1b[31m{row.example}\x1b[0m",
            f"3: {row.example}",
            row.example[: len(row.example) // 2],
        ):
            assert quick.scan(line) == slow.scan(line) == scan(line)
    blind = Scanner(rows=[row for row in ROWS if row.kind != "cuda-ecc"], worth=0)
    assert blind.scan("CUDA error: uncorrectable ECC error encountered") != quick.scan(
        "CUDA error: uncorrectable ECC error encountered"
    )


@pytest.mark.parametrize(
    "text", ["x" * 4096, "NVRM: " * 700, "error: " * 600, "[[[[" * 1000, "0:" * 2000, "a.b-" * 1000]
)
def test_no_pattern_takes_its_time_over_a_hostile_line(text):
    """Counted in steps of the engine's own making: a pattern that backtracks over 4 kB would need minutes here."""
    for row in ROWS:
        for _ in range(3):
            row.pattern.search(text)
