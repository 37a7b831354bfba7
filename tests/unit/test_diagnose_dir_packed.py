"""Packed logs: what can be unpacked is read, and what can't is named with what to do."""

from __future__ import annotations

import bz2
import gzip
import lzma

import pytest
from logcases import diagnose, head, steps, timeouts, traceback

from supervisor.evidence import files
from supervisor.evidence.files import UnreadableError, blocks

ZSTD = files.zstd()
LOG = (head() + steps() + traceback(6, "RuntimeError: CUDA error: uncorrectable ECC error encountered")).encode()
PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": ZSTD.compress if ZSTD else None}


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_log_is_read(tmp_path, ending):
    if PACKERS[ending] is None:
        pytest.skip("no zstd here")
    name = f"slurm-77.out.{ending}"
    got = diagnose(tmp_path, {name: PACKERS[ending](LOG), "rest.out": timeouts((6,))})
    assert got["first_error"] == {"file": name, "line": 13, "rank": 6, "node": "gx-02"}
    assert got["notes"] == []


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_log_that_breaks_off_is_read_so_far_and_named(tmp_path, ending):
    if PACKERS[ending] is None:
        pytest.skip("no zstd here")
    whole = PACKERS[ending](b"".join(b"%d %s\n" % (n, b"x" * (n % 70)) for n in range(60000)))
    got = diagnose(tmp_path, {f"a.{ending}": whole[: len(whole) // 2]})
    assert [note.split(":")[0] for note in got["notes"]] == [f"a.{ending}"]


def test_without_zstd_the_file_is_named_and_what_to_do(tmp_path):
    path = tmp_path / "a.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd rest")
    with pytest.raises(UnreadableError, match=r"pip install backports\.zstd, or unpack it \(zstd -d\)"):
        list(blocks(str(path), unpacker=lambda: None))


@pytest.mark.skipif(ZSTD is None, reason="no zstd here")
def test_a_frame_that_wants_much_memory_is_refused(tmp_path):
    """One byte of the header may claim a window of 2 GiB."""
    path = tmp_path / "a.zst"
    options = {ZSTD.CompressionParameter.window_log: 27, ZSTD.CompressionParameter.enable_long_distance_matching: 1}
    with ZSTD.open(path, "wb", options=options) as file:
        for n in range(40):
            file.write(bytes([n]) * (1 << 22))
    with pytest.raises(UnreadableError, match="memory"):
        list(blocks(str(path)))
