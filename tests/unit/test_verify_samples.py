"""Real saves of Megatron Core 0.19.2 and torch DCP, good and broken on purpose: each gets its verdict, and nothing runs."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from supervisor.checkpoints.manifest import FileEntry
from supervisor.checkpoints.reading.listed import Listed
from supervisor.checkpoints.reading.verifying import Options, verify

ARCHIVE = Path(__file__).resolve().parents[3] / "shared" / "checkpoints" / "samples.tar.xz"
pytestmark = pytest.mark.skipif(not ARCHIVE.exists(), reason="the samples lie beside the repository")

VERDICTS = {
    "00_good": ("complete", set()),
    "01_missing_shard": ("broken", {"MISSING_FILE"}),
    "02_truncated_shard": ("broken", {"TRUNCATED"}),
    "04_bitflip_payload": ("broken", {"INTEGRITY"}),
    "05_stale_metadata_older_save": ("broken", {"IDENTITY"}),
    "06_mixed_iterations": ("broken", {"INTEGRITY"}),
    "07_duplicated_chunk": ("broken", {"COVER_OVERLAP"}),
    "08_gap_in_coverage": ("broken", {"COVER_GAP", "EXTENT_GAP"}),
    "10_missing_second_moment": ("broken", {"TRAILING_BYTES"}),
    "11_tracker_ahead": ("complete", {"TRACKER"}),
    "12_tracker_empty": ("complete", {"TRACKER"}),
    "14_no_dot_metadata": ("not_yet", {"NO_METADATA"}),
    "15_truncated_dot_metadata": ("broken", {"BAD_METADATA"}),
    "16_zero_dot_metadata": ("broken", {"BAD_METADATA"}),
    "18_partial_archive_copy": ("broken", {"MISSING_FILE", "TRUNCATED"}),
    "19_permission_denied": ("not_yet", {"UNREADABLE"}),
    "20_symlink_loop": ("not_yet", {"LINK_LOOP"}),
    "22_extra_shard_from_bigger_world": ("broken", {"STRAY_FILE"}),
    "24_malicious_pickle": ("broken", {"BAD_METADATA"}),
    "25_metadata_json_zero": ("broken", {"BAD_METADATA_JSON"}),
    "real_8rank_fully_reshardable": ("complete", {"UNPROVED"}),
    "real_dcp_4rank_fsdp2": ("complete", {"UNPROVED"}),
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    with tarfile.open(ARCHIVE) as archive:
        if hasattr(tarfile, "tar_filter"):
            archive.extractall(folder, filter="tar")
        else:  # Python 3.11.0 to 3.11.3
            archive.extractall(folder)  # noqa: S202 - our own archive
    for name in ("19_permission_denied/iter_0000030/__0_0.distcp",):
        os.chmod(folder / name, 0)
    return folder


def codes(report):
    return {finding.code for finding in report.findings}


@pytest.mark.parametrize("name", sorted(VERDICTS))
@pytest.mark.parametrize("direct", [False, True])
def test_every_sample_gets_its_verdict(samples, name, direct):
    path = samples / name
    if direct:
        path = next(path.glob("iter_*"), path)
    report = verify(str(path), Options(lag_s=0.0))
    verdict, expected = VERDICTS[name]
    assert report.verdict.value == verdict, report.findings
    assert expected - ({"TRACKER"} if direct else set()) <= codes(report)
    assert report.repairable == (name == "25_metadata_json_zero")


def test_no_sample_is_left_out(samples):
    assert {path.name for path in samples.iterdir()} - {"README.md"} == set(VERDICTS)


def test_counters_come_without_torch(samples):
    script = (
        "import sys, json; from supervisor.checkpoints.reading.verifying import verify, Options\n"
        "r = verify(sys.argv[1], Options()); assert not {'torch', 'numpy', 'supervisor.checkpoints.reading.unpickling'} & set(sys.modules)\n"
        "print(json.dumps(dict(r.counters)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(samples / "00_good")], capture_output=True, text=True, check=True
    )
    counters = json.loads(done.stdout)
    schedule = counters.pop("schedule")
    assert counters == {"iteration": 30, "samples": 240, "dropped": 0, "updates": 2, "skipped": 28, "lr": 0.0002}
    assert schedule["num_steps"] == 2
    assert schedule["lr_decay_style"] == "cosine"


def test_the_parameter_groups_of_the_other_format_count_too(samples):
    counters = verify(str(samples / "real_8rank_fully_reshardable"), Options()).counters
    assert (counters["iteration"], counters["samples"], counters["updates"], counters["skipped"]) == (10, 80, 1, 9)


def test_a_plain_save_tells_what_it_can(samples):
    counters = verify(str(samples / "real_dcp_4rank_fsdp2"), Options()).counters
    assert counters == {"iteration": 2, "samples": 16, "lr": 0.001}


@pytest.mark.parametrize("name", ["04_bitflip_payload", "06_mixed_iterations"])
def test_what_only_sums_can_tell_is_told_by_a_manifest(samples, tmp_path, name):
    good = verify(str(samples / "00_good"), Options())
    files = {file: FileEntry(size=good.look.files[file].size, xxh3=good.sums[file]) for file in good.sums}
    copy = tmp_path / "iter_0000030"
    shutil.copytree(samples / name / "iter_0000030", copy)
    report = verify(str(copy), Options(Listed(files, 30, "a0001-i0000030")))
    assert report.verdict.value == "broken"
    assert codes(report) == {"SUM"}


def test_mixed_iterations_without_any_sum_are_said_to_be_unproved(samples, tmp_path):
    copy = tmp_path / "iter_0000030"
    shutil.copytree(samples / "06_mixed_iterations/iter_0000030", copy)
    (copy / "integrity.json").unlink()
    report = verify(str(copy), Options())
    assert report.verdict.value == "complete"
    assert any(f.code == "UNPROVED" and "of one save" in f.detail for f in report.findings)


def test_a_flipped_bit_is_found_by_the_record_itself(samples, tmp_path):
    copy = tmp_path / "iter_0000010"
    shutil.copytree(samples / "real_8rank_fully_reshardable/iter_0000010", copy)
    shard = copy / "__0_0.distcp"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    report = verify(str(copy), Options())
    assert report.verdict.value == "broken"
    assert codes(report) & {"CRC", "BAD_RECORD"}


def test_a_stray_common_pt_is_refused(samples, tmp_path):
    copy = tmp_path / "iter_0000030"
    shutil.copytree(samples / "00_good/iter_0000030", copy)
    (copy / "common.pt").write_bytes(b"PK")
    assert "COMMON_PT" in codes(verify(str(copy), Options()))


def test_a_folder_of_another_iteration_is_another_save(samples, tmp_path):
    copy = tmp_path / "iter_0000031"
    shutil.copytree(samples / "00_good/iter_0000030", copy)
    report = verify(str(copy), Options())
    assert report.verdict.value == "broken"
    assert [f.code for f in report.findings if f.weight == "broken"] == ["IDENTITY", "IDENTITY"]
