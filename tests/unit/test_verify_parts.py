"""The parts of a check one by one: formats, folders, identity, samples of numbers, the limit of speed, the command."""

import json
import os
import random
import struct
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.bench import fake_saves
from supervisor.bench.fake_saves import Chunk, Object, value, whole
from supervisor.checkpoints.reading.findings import (
    BROKEN,
    MEANING,
    NOT_YET,
    NOTES,
    Collected,
    Finding,
    Verdict,
    verdict,
)
from supervisor.checkpoints.reading.folder import NoCheckpointError, lag_of, locate
from supervisor.checkpoints.reading.listed import Listed
from supervisor.checkpoints.reading.throttle import CancelledError, Throttle
from supervisor.checkpoints.reading.verifying import Options, Watcher, verify
from supervisor.commands.verify import command
from supervisor.errors import UserError

STATE = Object("common_state/shard_0_1", "__0_0.distcp", fake_saves.common_state(40, 320, 38, 0.25))


def tensor(name="w", count=512, file="__0_0.distcp", dtype="float32", data=None):
    return Chunk(name, dtype, (count,), (0,), (count,), file, data)


def floats(numbers):
    return b"".join(struct.pack("<f", n) for n in numbers)


def ones(count=512):
    return floats([1.0] * count)


@pytest.fixture
def save(tmp_path):
    folder = tmp_path / "iter_0000040"
    fake_saves.write(str(folder), [tensor(data=ones()), STATE], iteration=40, megatron=True)
    return folder


def codes(path, **options):
    report = verify(str(path), Options(lag_s=options.pop("lag_s", 0.0), **options))
    return report.verdict.value, sorted(f.code for f in report.findings if f.code != "UNPROVED")


def test_a_good_save_and_its_counters(save):
    report = verify(str(save), Options(lag_s=0.0))
    assert report.verdict is Verdict.COMPLETE
    counters = dict(report.counters)
    assert counters.pop("schedule") == {"max_lr": 0.001, "num_steps": 304}
    assert counters == {"iteration": 40, "samples": 320, "dropped": 0, "updates": 38, "skipped": 2, "lr": 0.25}
    assert report.structure.save_id == "5a1e"
    assert report.structure.tensors["w"].shape == (512,)
    assert set(report.sums) == {"__0_0.distcp", ".metadata", "metadata.json"}


def test_every_code_has_one_weight():
    assert len(MEANING) == len(BROKEN) + len(NOT_YET) + len(NOTES)
    assert verdict([]) is Verdict.COMPLETE
    assert verdict([Finding("UNPROVED", "", "")]) is Verdict.COMPLETE
    assert verdict([Finding("UNREADABLE", "", ""), Finding("UNPROVED", "", "")]) is Verdict.NOT_YET
    assert verdict([Finding("UNREADABLE", "", ""), Finding("CRC", "", "")]) is Verdict.BROKEN


def test_every_code_is_told_in_the_documentation():
    page = (Path(__file__).resolve().parents[2] / "docs" / "checkpoints.md").read_text()
    rows = {
        row.split("|")[1].split(":")[0].strip(): []
        for row in page.splitlines()
        if row.startswith(("| broken:", "| not_yet |", "| note |"))
    }
    for row in page.splitlines():
        if row.startswith(("| broken:", "| not_yet |", "| note |")):
            rows[row.split("|")[1].split(":")[0].strip()] += row.split("|")[2].split()
    assert {weight: sorted(codes_) for weight, codes_ in rows.items()} == {
        "broken": sorted(BROKEN),
        "not_yet": sorted(NOT_YET),
        "note": sorted(NOTES),
    }


def test_many_findings_of_a_kind_are_counted():
    found = Collected()
    for number in range(50):
        found.add("CRC", f"f{number}", "x")
    assert len(found.all()) == 21
    assert found.all()[-1].detail == "and 30 more of this kind"


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("w", floats([1.0] * 511 + [float("nan")]), ("broken", ["NON_FINITE"])),
        ("w", floats([float("-inf")] + [1.0] * 511), ("broken", ["NON_FINITE"])),
        ("attention.mask", floats([float("-inf")] + [1.0] * 511), ("complete", [])),
        ("w", floats([1e-42] * 512), ("broken", ["DENORMAL"])),
        ("w", bytes(2048), ("complete", ["ALL_ZERO"])),
        ("optimizer.state.exp_avg.w", bytes(2048), ("complete", [])),
        ("optimizer.state.exp_avg_sq.w", floats([1e-42] * 512), ("complete", [])),
        ("optimizer.state.exp_avg_sq.w", floats([1.0] * 511 + [-1e-30]), ("broken", ["NEGATIVE_MOMENT"])),
        ("b.bucket_idx_0.exp_avg_sq", floats([-0.0] * 512), ("complete", [])),
        ("optimizer.state.exp_avg.w", floats([-1.0] * 512), ("complete", [])),
    ],
)
def test_numbers_that_no_model_holds(save, name, data, expected):
    fake_saves.write(str(save), [tensor(name, data=data), STATE], iteration=40, megatron=True)
    assert codes(save) == expected


def test_uninitialised_padding_is_no_fault(save):
    """Megatron stores what lies between two parameters: fewer than 64 elements of anything."""
    pad = floats([float("nan")] * 60)
    name = "optimizer.distributed.dp_group_idx_0.bucket_idx_0.exp_avg_sq"
    items = [
        Chunk(name, "float32", (572,), (0,), (512,), "__0_0.distcp", ones()),
        Chunk(name, "float32", (572,), (512,), (60,), "__0_0.distcp", pad),
        STATE,
    ]
    fake_saves.write(str(save), items, iteration=40, megatron=True)
    assert codes(save) == ("complete", [])


def test_an_empty_chunk_of_a_rank_with_padding_only_is_legal(save):
    items = [tensor(data=ones()), Chunk("w", "float32", (512,), (512,), (0,), "__1_0.distcp", b""), STATE]
    fake_saves.write(str(save), items, iteration=40, megatron=True)
    assert codes(save) == ("complete", [])


def test_a_record_that_is_smaller_than_its_chunk(save):
    fake_saves.write(str(save), [tensor(data=ones(500)), STATE], iteration=40, megatron=True)
    assert codes(save)[0] == "broken"
    assert "EXTENT_SHORT" in codes(save)[1]


def test_without_common_state_megatron_cannot_load(save):
    fake_saves.write(str(save), [tensor(data=ones())], iteration=40, megatron=True)
    assert codes(save) == ("broken", ["NO_COMMON_STATE"])


def test_a_common_pt_of_old_is_part_of_its_save(save):
    fake_saves.write(str(save), [tensor(data=ones())], iteration=40, megatron=True)
    blob = bytearray(fake_saves.archive(STATE.pickled, b"elements"))
    written = os.stat(save / "metadata.json").st_mtime_ns  # a busy machine takes its time between the two
    (save / "common.pt").write_bytes(blob)
    os.utime(save / "common.pt", ns=(written, written))
    assert codes(save) == ("complete", [])
    assert verify(str(save), Options(lag_s=0.0)).counters["updates"] == 38
    blob[blob.index(b"elements")] ^= 1
    (save / "common.pt").write_bytes(blob)
    os.utime(save / "common.pt", ns=(written, written))
    assert codes(save) == ("broken", ["CRC"])


def test_metadata_json_that_is_gone_is_broken_but_repairable(save):
    os.unlink(save / "metadata.json")
    report = verify(str(save), Options(lag_s=0.0))
    assert [f.code for f in report.findings if f.weight == "broken"] == ["BAD_METADATA_JSON"]
    assert report.repairable


def test_metadata_json_is_not_worth_mending_when_the_data_is_rotten(save):
    os.unlink(save / "metadata.json")
    data = bytearray((save / "__0_0.distcp").read_bytes())
    data[300] ^= 1
    (save / "__0_0.distcp").write_bytes(data)
    report = verify(str(save), Options(lag_s=0.0))
    assert not report.repairable


@pytest.mark.parametrize("content", [b"", b"\x80\x04}("])
def test_metadata_that_is_cut_short_may_still_be_on_its_way(save, content):
    (save / ".metadata").write_bytes(content)
    assert codes(save) == ("not_yet", ["METADATA_YOUNG"])
    os.utime(save / ".metadata", (time.time() - 3600,) * 2)
    assert codes(save) == ("broken", ["BAD_METADATA"])


def test_metadata_that_is_written_again(save):
    (save / ".metadata.tmp").write_bytes(b"x")
    assert codes(save) == ("not_yet", ["BEING_WRITTEN"])
    os.utime(save / ".metadata.tmp", (1, 1))
    assert codes(save) == ("broken", ["STRAY_FILE"])


def test_on_a_network_file_system_a_missing_file_may_still_come(save):
    data = (save / "__0_0.distcp").read_bytes()
    os.unlink(save / "__0_0.distcp")
    assert codes(save, lag_s=60.0) == ("not_yet", ["NOT_SEEN_YET"])
    assert codes(save, lag_s=0.0) == ("broken", ["MISSING_FILE"])
    (save / "__0_0.distcp").write_bytes(data[:-5])
    assert codes(save, lag_s=60.0) == ("not_yet", ["NOT_SEEN_YET"])
    os.utime(save / ".metadata", (time.time() - 3600,) * 2)
    os.utime(save / "metadata.json", (time.time() - 3600,) * 2)
    assert codes(save, lag_s=60.0) == ("broken", ["TRUNCATED"])


def test_the_kind_of_file_system_decides_about_lag(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/a / ext4 rw 0 0\nnas:/x /data nfs4 rw 0 0\nl /data/fast\\040one lustre rw 0 0\nt /data/tmp tmpfs rw 0 0\n"
    )
    at = {
        path: lag_of(path, str(mounts)) > 0
        for path in ("/home/x", "/data/x", "/data/fast one/x", "/data/tmp/x", "/database")
    }
    assert at == {"/home/x": False, "/data/x": True, "/data/fast one/x": True, "/data/tmp/x": False, "/database": False}
    assert lag_of("/data", str(tmp_path / "none")) > 0


def test_other_files_are_noted_and_only_shards_are_strays(save):
    (save / "run_config.yaml").write_text("a: 1")
    (save / "tokenizer").mkdir()
    assert codes(save) == ("complete", ["OTHER_FILE", "OTHER_FILE"])
    (save / "__7_0.distcp").write_bytes(b"x")
    assert codes(save)[0] == "broken"


def test_sidecars_belong_to_a_save(save):
    (save / "relight").mkdir()
    (save / "relight" / "rank_00000.json").write_text("{}")
    assert codes(save) == ("complete", [])
    (save / "relight" / "rank_00001.json.tmp77").write_text("")
    assert codes(save) == ("complete", ["LEFTOVER"])
    os.symlink("/etc/passwd", save / "relight" / "rank_00002.json")
    assert codes(save)[0] == "broken"


@pytest.mark.parametrize(
    ("tracker", "folders", "chosen", "codes_"),
    [
        ("30", (30, 40), 30, ["NEWER_SAVE"]),
        ("40", (30, 40), 40, []),
        ("50", (30, 40), 40, ["TRACKER"]),
        ("", (30, 40), 40, ["TRACKER"]),
        ("4x", (30,), 30, ["TRACKER"]),
        (None, (30, 40), 40, []),
    ],
)
def test_which_save_is_meant_by_the_folder_above(tmp_path, tracker, folders, chosen, codes_):
    for number in folders:
        (tmp_path / f"iter_{number:07d}").mkdir()
    if tracker is not None:
        (tmp_path / "latest_checkpointed_iteration.txt").write_text(tracker)
    located = locate(str(tmp_path))
    assert (located.iteration, [f.code for f in located.findings]) == (chosen, codes_)


def test_a_view_leads_to_the_save(save, tmp_path):
    view = tmp_path / "views"
    view.mkdir()
    os.symlink(save, view / "iter_0000040")
    assert codes(view) == ("complete", [])


def test_nothing_to_check(tmp_path):
    with pytest.raises(NoCheckpointError):
        locate(str(tmp_path))
    (tmp_path / "iter_0000007").mkdir()
    assert codes(tmp_path) == ("not_yet", ["NO_METADATA"])
    (tmp_path / "iter_0000007" / "mp_rank_00").mkdir()
    assert codes(tmp_path)[0] == "not_yet"


def test_the_manifest_of_another_save_is_refused(save):
    first = verify(str(save), Options(lag_s=0.0))
    from supervisor.checkpoints.manifest import FileEntry

    files = {n: FileEntry(size=s.size, xxh3=first.sums[n]) for n, s in first.look.files.items()}
    assert codes(save, manifest=Listed(files, 40, "x")) == ("complete", [])
    assert codes(save, manifest=Listed(files, 41, "x")) == ("broken", ["IDENTITY"])


def test_a_change_while_it_is_read_is_no_verdict(save):
    class Meddler(Watcher):
        def read(self, _):
            os.utime(save / "__0_0.distcp", (5, 5))

    report = verify(str(save), Options(lag_s=0.0, threads=1), Meddler())
    assert report.verdict is Verdict.NOT_YET
    assert "CHANGED" in {f.code for f in report.findings}


def test_further_checks_see_the_structure(save):
    def lacks(structure):
        return tuple(Finding("NOT_STORED", name, "the spec has it") for name in {"w", "v"} - set(structure.tensors))

    assert codes(save, extra_checks=(lacks,)) == ("broken", ["NOT_STORED"])


def test_metadata_by_rank(tmp_path):
    """As torch writes it without collectives: each rank its own file; a copy on every rank counts once."""
    parts = []
    for rank in range(2):
        items = [
            Chunk("w", "float32", (512,), (256 * rank,), (256,), f"__{rank}_0.distcp", ones(256)),
            Chunk("copied", "float32", (8,), (0,), (8,), f"__{rank}_0.distcp", ones(8)),
            Object("step", f"__{rank}_0.distcp", whole(value(7))),
        ]
        scratch = tmp_path / f"scratch{rank}"
        fake_saves.write(str(scratch), items)
        parts.append(scratch)
    save = tmp_path / "save"
    save.mkdir()
    for rank, part in enumerate(parts):
        os.rename(part / f"__{rank}_0.distcp", save / f"__{rank}_0.distcp")
        os.rename(part / ".metadata", save / f"__{rank}.metadata")
    report = verify(str(save), Options(lag_s=0.0))
    assert (report.verdict, report.structure.format, report.iteration) == (Verdict.COMPLETE, "dcp-ranks", 7)
    os.rename(save / "__1.metadata", tmp_path / "kept")
    verdict_, found = codes(save)
    assert verdict_ == "broken"
    assert {"COVER_GAP", "NO_METADATA"} <= set(found)
    os.rename(tmp_path / "kept", save / "__2.metadata")
    assert "NO_METADATA" in codes(save)[1]


def safetensors(path, tensors):
    at, header, body = 0, {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def test_safetensors_with_an_index(tmp_path):
    safetensors(
        tmp_path / "model-00001-of-00002.safetensors", {"a": ("F32", [512], ones()), "b": ("I64", [], bytes(8))}
    )
    safetensors(tmp_path / "model-00002-of-00002.safetensors", {"c": ("BF16", [2, 256], b"\x80\x3f" * 512)})
    index = {
        "metadata": {"total_size": 2048 + 8 + 1024},
        "weight_map": {
            "a": "model-00001-of-00002.safetensors",
            "b": "model-00001-of-00002.safetensors",
            "c": "model-00002-of-00002.safetensors",
        },
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text("{}")
    report = verify(str(tmp_path), Options(lag_s=0.0))
    assert (report.verdict, sorted(report.structure.tensors)) == (Verdict.COMPLETE, ["a", "b", "c"])
    assert [f.code for f in report.findings] == ["UNPROVED"]
    index["weight_map"]["d"] = "model-00002-of-00002.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert codes(tmp_path) == ("broken", ["NOT_STORED"])
    del index["weight_map"]["d"], index["weight_map"]["c"]
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "MISSING_FILE" in codes(tmp_path)[1] or "STRAY_FILE" in codes(tmp_path)[1]


@pytest.mark.parametrize("how", ["longer", "shorter", "gone", "nan"])
def test_damaged_safetensors(tmp_path, how):
    path = tmp_path / "model-00001-of-00001.safetensors"
    safetensors(path, {"a": ("F32", [512], floats([float("nan")] * 512) if how == "nan" else ones())})
    if how == "longer":
        path.write_bytes(path.read_bytes() + b"x")
    elif how == "shorter":
        os.truncate(path, os.path.getsize(path) - 4)
    elif how == "gone":
        path.rename(tmp_path / "model-00002-of-00002.safetensors")
    expected = {"longer": "TRAILING_BYTES", "shorter": "TRUNCATED", "gone": "MISSING_FILE", "nan": "NON_FINITE"}[how]
    assert codes(tmp_path) == ("broken", [expected])


def test_the_limit_of_speed_holds_for_all_threads_together():
    throttle = Throttle(1e6)
    began = time.monotonic()
    threads = [threading.Thread(target=throttle.take, args=(50_000,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # 200 kB at 1 MB/s; the last of the four may begin after the first three have had their time.
    assert time.monotonic() - began >= 0.149


def test_who_waits_for_the_limit_is_let_go_at_a_cancel():
    throttle = Throttle(1.0)
    throttle.take(3600)
    failed = []

    def wait():
        try:
            throttle.take(1)
        except CancelledError:
            failed.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    throttle.cancel()
    thread.join(60)
    assert failed == [True]


def test_large_files_pass_in_blocks(tmp_path):
    choose = random.Random(1)
    data = choose.randbytes(5 << 20).replace(b"\x7f", b"\x3f").replace(b"\xff", b"\x3f")
    count = len(data) // 4
    items = [tensor("w", count, data=data), tensor("v", count, "__1_0.distcp", data=data)]
    fake_saves.write(str(tmp_path / "s"), items)
    assert codes(tmp_path / "s") == ("complete", [])
    path = tmp_path / "s" / "__1_0.distcp"
    changed = bytearray(path.read_bytes())
    changed[(3 << 20) + 17] ^= 0x10
    path.write_bytes(changed)
    assert codes(tmp_path / "s") == ("broken", ["CRC"])


def run(*arguments):
    return CliRunner().invoke(command, list(map(str, arguments)), standalone_mode=False)


def test_the_command_for_programs(save):
    done = run("--json", save)
    answer = json.loads(done.output)
    assert done.return_value == 0
    assert (answer["schema"], answer["verdict"], answer["format"], answer["iteration"]) == (
        1,
        "complete",
        "megatron",
        40,
    )
    assert answer["counters"]["updates"] == 38
    assert (answer["files"], answer["bytes"]) == (3, sum(p.stat().st_size for p in save.iterdir()))
    assert answer["seconds"] > 0
    assert {"code", "path", "detail"} <= set(answer["findings"][0])
    os.unlink(save / "__0_0.distcp")
    assert run("--json", save).return_value == 1
    os.unlink(save / ".metadata")
    assert run("--json", save.parent).return_value == 3


def test_the_command_for_people(save):
    done = run(save)
    assert done.return_value == 0
    assert "complete" in done.output
    assert "updates 38" in done.output
    os.truncate(save / "__0_0.distcp", 10)
    done = run(save)
    assert done.return_value == 1
    assert "TRUNCATED" in done.output
    assert "10 of" in done.output


def test_the_command_and_a_manifest(save, tmp_path):
    manifest = tmp_path / "manifest.json"
    report = verify(str(save), Options(lag_s=0.0))
    files = {n: {"size": s.size, "xxh3": report.sums[n]} for n, s in report.look.files.items()}
    body = {
        "schema": 1, "id": "a0001-i0000040", "attempt": 1, "step": 40, "world": 8, "saved_at": 1.0, "completed_at": 2.0,
        "bytes": report.bytes, "files": files, "counters": None, "ranks": {}, "limited": True, "checks": {}, "archive": None,
    }  # fmt: skip
    manifest.write_text(json.dumps(body))
    assert run("--manifest", manifest, "--json", save).return_value == 0
    data = bytearray((save / "__0_0.distcp").read_bytes())
    data[100] ^= 1
    (save / "__0_0.distcp").write_bytes(data)
    done = run("--manifest", manifest, "--json", save)
    assert (done.return_value, [f["code"] for f in json.loads(done.output)["findings"]]) == (1, ["SUM"])
    for broken in (b"", b"{}", json.dumps(body | {"bytes": 1}).encode()):
        manifest.write_bytes(broken)
        with pytest.raises(UserError, match="manifest"):
            raise run("--manifest", manifest, save).exception


@pytest.mark.parametrize("path", ["nothing-here", "."])
def test_a_path_without_a_checkpoint_is_a_mistake(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    error = run(path).exception
    assert isinstance(error, UserError)
    assert error.exit_code == 2
