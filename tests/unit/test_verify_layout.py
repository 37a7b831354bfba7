"""Chunks, storage and extents against each other: each kind of disagreement is named."""

import io
import json
import struct
from dataclasses import replace

import pytest

from supervisor.bench import fake_saves
from supervisor.bench.fake_saves import Chunk, Object
from supervisor.checkpoints.reading.findings import Collected, Verdict
from supervisor.checkpoints.reading.layout import read_layout
from supervisor.checkpoints.reading.standins import unpickle
from supervisor.checkpoints.reading.verifying import Options, verify

FILE = "__0_0.distcp"
ITEMS = [
    Chunk("w", "float32", (8, 4), (0, 0), (4, 4), FILE),
    Chunk("w", "float32", (8, 4), (4, 0), (4, 4), FILE),
    Object("o", FILE, b""),
]
PLACES = {0: (FILE, 0, 1000), 1: (FILE, 1000, 1000), 2: (FILE, 2000, 500)}


def found(items, places):
    collected = Collected()
    layout = read_layout(unpickle(io.BytesIO(fake_saves.metadata(items, places, "x", "y"))), collected)
    return layout, sorted({(f.code, f.path) for f in collected.all()})


def test_a_right_one():
    layout, findings = found(ITEMS, PLACES)
    assert findings == []
    extents = layout.files[FILE]
    assert extents.end == 2500
    assert list(extents.starts) == [0, 1000, 2000]
    assert list(extents.payloads)[:2] == [64, 64]
    assert [layout.names[item] for item in extents.items] == ["w", "w", "o"]
    assert layout.tensors["w"].shape == (8, 4)
    assert layout.objects == {"o"}


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ({0: (FILE, 0, 900)}, [("EXTENT_GAP", FILE)]),
        ({0: (FILE, 0, 1100)}, [("EXTENT_OVERLAP", FILE)]),
        ({0: (FILE, 100, 900)}, [("EXTENT_GAP", FILE)]),
        ({1: (FILE, 0, 1000)}, [("EXTENT_GAP", FILE), ("EXTENT_OVERLAP", FILE)]),
        ({0: (FILE, 0, 64), 1: (FILE, 64, 1936)}, [("EXTENT_SHORT", "w")]),
        ({1: ("__1_0.distcp", 0, 1000)}, [("EXTENT_GAP", FILE)]),
        ({1: ("__1_0.distcp", 0, 1000), 2: (FILE, 1000, 500)}, []),
    ],
)
def test_extents(places, expected):
    assert found(ITEMS, PLACES | places)[1] == expected


def stored_otherwise(change):
    """The storage of other items than those that the tensors tell of."""
    listed, stored = list(ITEMS), change(list(ITEMS))
    about = fake_saves.metadata(listed, PLACES, "x", "y")
    where = fake_saves.metadata(stored, PLACES, "x", "y")
    mark = fake_saves.value("storage_data")
    head, tail = about.split(mark)[0], where.split(mark)[1]
    collected = Collected()
    read_layout(unpickle(io.BytesIO(head + mark + tail)), collected)
    return sorted({(f.code, f.path) for f in collected.all()})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda items: items[:2], [("NOT_STORED", "o")]),
        (lambda items: [replace(items[0], offset=(1, 0)), *items[1:]], [("NOT_LISTED", "w"), ("NOT_STORED", "w")]),
        (lambda items: [replace(items[0], name="v"), *items[1:]], [("NOT_LISTED", "v"), ("NOT_STORED", "w")]),
        (lambda items: [items[1], *items[1:]], [("EXTENT_GAP", FILE), ("NOT_STORED", "w")]),
    ],
)
def test_chunks_and_storage_match_one_to_one(change, expected):
    assert stored_otherwise(change) == expected


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (replace(ITEMS[1], offset=(5, 0)), "OUT_OF_BOUNDS"),
        (replace(ITEMS[1], size=(3, 4)), "COVER_GAP"),
        (replace(ITEMS[1], offset=(3, 0), size=(5, 4)), "COVER_OVERLAP"),
        (replace(ITEMS[1], offset=(3, 0)), "COVER_SHIFT"),
    ],
)
def test_tiling(item, code):
    assert (code, "w") in found([ITEMS[0], item, ITEMS[2]], PLACES)[1]


def sharded(path, name, shape, offset):
    count = 4
    for n in shape:
        count *= n
    header = {
        "__metadata__": {"DCP_SHARDING_INFO": json.dumps({name: {"saved_offsets": offset}}), "DCP_VERSION": "1.0"},
        name: {"dtype": "F32", "shape": shape, "data_offsets": [0, count]},
    }
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack("<f", 1.0) * (count // 4))


def test_safetensors_in_shards_as_dcp_writes_them(tmp_path):
    for rank in range(3):
        sharded(tmp_path / f"shard-{rank + 1:05d}-model-00001-of-00001.safetensors", "w", [2, 4], [2 * rank, 0])
    report = verify(str(tmp_path), Options(lag_s=0.0))
    assert report.verdict is Verdict.COMPLETE
    assert report.structure.tensors["w"].shape == (6, 4)
    middle = tmp_path / "shard-00002-model-00001-of-00001.safetensors"
    kept = middle.read_bytes()
    middle.unlink()
    codes = {f.code for f in verify(str(tmp_path), Options(lag_s=0.0)).findings if f.weight == "broken"}
    assert codes == {"COVER_GAP"}
    middle.write_bytes(kept)
    sharded(tmp_path / "shard-00003-model-00001-of-00001.safetensors", "w", [2, 4], [2, 0])
    assert verify(str(tmp_path), Options(lag_s=0.0)).verdict is Verdict.BROKEN
