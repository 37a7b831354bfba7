"""Pickles and headers made to hurt: nothing in them runs, our process lives, and the verdict is broken."""

import json
import os
import resource
import struct
import sys

import pytest

from supervisor.bench import fake_saves
from supervisor.bench.fake_saves import called, instance, named, value, whole
from supervisor.checkpoints.reading.findings import Verdict
from supervisor.checkpoints.reading.structure import Limits, ReaderFault, limits_for, read_structure
from supervisor.checkpoints.reading.verifying import Options, verify

META = "torch.distributed.checkpoint.metadata"
ITEM = fake_saves.Chunk("w", "float32", (4,), (0,), (4,), "__0_0.distcp")


@pytest.fixture
def save(tmp_path):
    folder = tmp_path / "iter_0000040"
    state = fake_saves.Object("common_state/shard_0_1", "__0_0.distcp", fake_saves.common_state(40, 320, 40, 0.1))
    fake_saves.write(str(folder), [ITEM, state], iteration=40, megatron=True)
    assert verify(str(folder), Options(lag_s=0.0)).verdict is Verdict.COMPLETE
    return folder


def planted(folder, module="posix", name="system"):
    return called(module, name, f"touch {folder.parent}/executed")


def judged(folder, code):
    report = verify(str(folder), Options(lag_s=0.0))
    assert report.verdict is Verdict.BROKEN
    assert code in {finding.code for finding in report.findings}
    assert not (folder.parent / "executed").exists()
    return next(finding.detail for finding in report.findings if finding.code == code)


def older(path):
    """Not young, so that a file that is cut short is not one that is still being written."""
    os.utime(path, (1, 1))


@pytest.mark.parametrize(
    ("module", "name"),
    [("posix", "system"), ("os", "system"), ("subprocess", "Popen"), ("builtins", "eval"), ("torch", "load"),
     ("supervisor.checkpoints.reading.standins", "load"), ("torch.distributed.checkpoint.metadata", "os.system"), ("nt", "system")],
)  # fmt: skip
def test_a_call_in_the_metadata_is_refused(save, module, name):
    (save / ".metadata").write_bytes(whole(planted(save, module, name)))
    assert module in judged(save, "BAD_METADATA")


def test_enumerations_as_python_3_11_2_pickles_them_are_no_call(save):
    """Debian 12's Python: getattr(class, name), where others call the class with its value."""
    layout = named(META, "_MEM_FORMAT_ENCODING")
    usual = called(META, "_MEM_FORMAT_ENCODING", 0)
    body = (save / ".metadata").read_bytes()
    assert usual in body
    (save / ".metadata").write_bytes(
        body.replace(usual, called("builtins", "getattr", layout, "TORCH_CONTIGUOUS_FORMAT"))
    )
    assert verify(str(save), Options(lag_s=0.0)).verdict is Verdict.COMPLETE
    for owner, name in ((named(META, "Metadata"), "__init__"), (layout, 3), (layout, named(META, "Metadata"))):
        (save / ".metadata").write_bytes(body.replace(usual, called("builtins", "getattr", owner, name)))
        assert "builtins.getattr" in judged(save, "BAD_METADATA")


@pytest.mark.parametrize(
    ("owner", "verdict"), [(named("megatron.core.enums", "Backend"), Verdict.COMPLETE), ("os", Verdict.BROKEN)]
)
def test_the_same_in_the_common_state(save, owner, verdict):
    state = value(
        {"args": instance("argparse", "Namespace", {"backend": called("builtins", "getattr", owner, "auto")})}
    )
    fake_saves.write(
        str(save),
        [ITEM, fake_saves.Object("common_state/shard_0_1", "__0_0.distcp", whole(state))],
        iteration=40,
        megatron=True,
    )
    assert verify(str(save), Options(lag_s=0.0)).verdict is verdict


def test_a_call_deep_inside_of_it_is_refused(save):
    state = {"state_dict_metadata": {}, "storage_data": {}, "planner_data": {"a": [(planted(save),)]}}
    (save / ".metadata").write_bytes(whole(instance(META, "Metadata", state)))
    judged(save, "BAD_METADATA")


def test_the_same_bytes_do_execute_where_pickles_are_trusted(save):
    """The test would see it: an ordinary unpickler runs what was planted."""
    import pickle  # noqa: TID251

    pickle.loads(whole(planted(save)))  # noqa: S301
    assert (save.parent / "executed").exists()


@pytest.mark.parametrize("module", ["posix", "subprocess", "builtins", "torch.hub", "numpy.testing"])
def test_a_call_in_the_common_state_is_refused(save, module):
    hostile = fake_saves.Object("common_state/shard_0_1", "__0_0.distcp", whole(planted(save, module)))
    fake_saves.write(str(save), [ITEM, hostile], iteration=40, megatron=True)
    judged(save, "BAD_COMMON_STATE")


def test_a_call_in_a_common_pt_of_old_is_refused(save):
    fake_saves.write(str(save), [ITEM], iteration=40, megatron=True)
    (save / "common.pt").write_bytes(fake_saves.archive(whole(planted(save)), None))
    judged(save, "BAD_COMMON_STATE")


def test_a_class_of_somebody_else_is_told_and_not_loaded(save):
    (save.parent / "theirs.py").write_text(f"open({str(save.parent / 'executed')!r}, 'w')")
    args = instance("argparse", "Namespace", {"consumed_train_samples": 7, "x": called("theirs", "Thing", 1)})
    state = whole(value([{"iteration": 40, "args": args, "y": instance("megatron.core.enums", "Kind", {"a": 1})}]))
    items = [ITEM, fake_saves.Object("common_state/shard_0_1", "__0_0.distcp", state)]
    fake_saves.write(str(save), items, iteration=40, megatron=True)
    report = verify(str(save), Options(lag_s=0.0))
    assert report.verdict is Verdict.COMPLETE
    assert [f.detail for f in report.findings if f.code == "UNKNOWN_CLASS"] == ["theirs.Thing"]
    assert report.counters["samples"] == 7
    assert not (save.parent / "executed").exists()


def test_a_memory_bomb_ends_its_process_and_not_ours(save):
    """A megabyte of file asks for 40 GB: one list, copied 5,000 times."""
    copies = b"".join([b"h\x00\x85" + b"R" for _ in range(5000)])
    chunk = named(META, "ChunkStorageMetadata") + b"\x94"  # memo 0 is the class
    big = b"](" + b"N" * 1_000_000 + b"e\x94"  # memo 1 is the list
    body = chunk + b"0" + big + b"0](" + copies.replace(b"h\x00\x85", b"h\x00h\x01\x85") + b"e"
    (save / ".metadata").write_bytes(whole(body))
    assert "MiB of memory" in judged(save, "BAD_METADATA")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1 << 20


def test_a_length_that_is_a_lie_is_refused(save):
    (save / ".metadata").write_bytes(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"abc.")
    older(save / ".metadata")
    judged(save, "BAD_METADATA")


def test_deep_recursion_ends_its_process_and_not_ours(save):
    """A tuple in a tuple, three million times, as a key: the C code that hashes it runs out of stack."""
    deep = b")" + b"\x85" * 3_000_000
    (save / ".metadata").write_bytes(whole(b"}" + deep + b"Ns"))
    judged(save, "BAD_METADATA")


def test_a_bomb_of_time_is_stopped_by_the_kernel(save):
    """Doubling: a tuple of itself twice, 60 times over, takes 2^60 steps to hash."""
    body = b"}" + b")" + b"".join(b"\x94h" + bytes([n]) + b"\x86" for n in range(60)) + b"Ns"
    (save / ".metadata").write_bytes(whole(body))
    structure = read_structure(str(save), Limits(1 << 30, 1, 300.0))
    assert [(f.code, f.detail) for f in structure.findings] == [("BAD_METADATA", "reading it takes more than 1 s")]


def test_a_reader_that_is_too_slow_says_nothing_about_the_save(save):
    structure = read_structure(str(save), Limits(1 << 30, 60, 0.0))
    assert [f.code for f in structure.findings] == ["SLOW"]


def test_our_own_fault_is_no_verdict(save):
    with pytest.raises(ReaderFault):
        read_structure(str(save), Limits(1 << 20, 60, 60.0))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b".",
        b"\x80\x04N.",
        b"\x80\x04].more",
        whole(value({"a": 1})),
        whole(b"\x8c\x03abcQ"),
        whole(instance(META, "Metadata", {"state_dict_metadata": [], "storage_data": {}})),
        whole(instance(META, "Metadata", {"state_dict_metadata": {}, "storage_data": {1: 2}})),
        whole(instance(META, "Metadata", {"state_dict_metadata": {"a": value({})}, "storage_data": {}})),
        whole(instance(META, "Metadata", (1, 2))),
        whole(instance(META, "Metadata", {"state_dict_metadata": {}, "storage_data": {}}) + b"N0" + b"N1"),
    ],
)
def test_what_is_no_metadata_is_refused(save, body):
    (save / ".metadata").write_bytes(body)
    older(save / ".metadata")
    judged(save, "BAD_METADATA")


def tensor(**changed):
    state = {
        "properties": instance(META, "TensorProperties", (named("torch", "float32"),)),
        "size": called("torch", "Size", (4,)),
        "chunks": [instance(META, "ChunkStorageMetadata", {"offsets": (0,), "sizes": (4,)})],
    }
    return instance(META, "TensorStorageMetadata", state | changed)


@pytest.mark.parametrize(
    "changed",
    [{"size": (-4,)}, {"size": (1 << 70,)}, {"size": [4]}, {"size": (4.0,)}, {"size": (True,)}, {"chunks": 3}, {"chunks": [3]},
     {"chunks": [instance(META, "ChunkStorageMetadata", {"offsets": (0, 0), "sizes": (4,)})]},
     {"chunks": [instance(META, "ChunkStorageMetadata", {"offsets": None, "sizes": (4,)})]},
     {"chunks": [instance(META, "ChunkStorageMetadata", [1])]}],
)  # fmt: skip
def test_sizes_that_are_none_are_refused(save, changed):
    state = {"state_dict_metadata": {"w": tensor(**changed)}, "storage_data": {}}
    (save / ".metadata").write_bytes(whole(instance(META, "Metadata", state)))
    judged(save, "BAD_METADATA")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/b", "", "..", "a\0b", "\x1b[2J", 7])
def test_a_file_elsewhere_is_refused(save, path):
    index = instance(META, "MetadataIndex", {"fqn": "w", "offset": (0,), "index": 0})
    info = {"relative_path": path, "offset": 0, "length": 99}
    stored = {index: instance("torch.distributed.checkpoint.filesystem", "_StorageInfo", info)}
    state = {"state_dict_metadata": {"w": tensor()}, "storage_data": stored}
    (save / ".metadata").write_bytes(whole(instance(META, "Metadata", state)))
    judged(save, "BAD_METADATA")


def test_names_from_a_save_cannot_steer_a_terminal(save):
    (save / "__9_0.distcp\x1b[2J").write_bytes(b"x")
    report = verify(str(save), Options(lag_s=0.0))
    assert "\x1b" not in "".join(f.path + f.detail for f in report.findings)
    assert any(f.path.startswith("__9_0.distcp?") for f in report.findings)


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b'{"a": 1}',
        b"{}" + b"\xff",
        json.dumps({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]}}).encode(),
    ],
)
def test_a_hostile_header_of_safetensors_is_broken(tmp_path, header):
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    judged(tmp_path, "BAD_INDEX")


def test_limits_grow_with_the_file():
    assert limits_for(100).memory == (1 << 30) + 1400
    assert limits_for(248 << 20).memory > 4 << 30
    assert sys.maxsize > limits_for(1 << 40).memory


@pytest.mark.parametrize(
    "noted",
    ["{", "[]", "\ud800", json.dumps({"w": {"saved_offsets": [0, 0]}}), json.dumps({"w": {"saved_offsets": []}})],
)
def test_hostile_shards_of_safetensors_are_broken(tmp_path, noted):
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = json.dumps({"w": entry, "__metadata__": {"DCP_SHARDING_INFO": noted}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    judged(tmp_path, "BAD_INDEX")
