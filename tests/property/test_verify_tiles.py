"""Tiling, archives and samples against the simplest thing that could be right."""

import io
import random
import struct
import zipfile
import zlib
from itertools import product
from math import isinf, isnan, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.bench import fake_saves
from supervisor.checkpoints.reading import sanity, tiles
from supervisor.checkpoints.reading.archives import BadArchiveError, read_records


def counted(size, chunks):
    """How often each cell is covered; None when a chunk sticks out."""
    cells = dict.fromkeys(product(*map(range, size)), 0)
    for offset, length in chunks:
        for cell in product(*(range(o, o + n) for o, n in zip(offset, length, strict=True))):
            if cell not in cells:
                return None
            cells[cell] += 1
    return cells


@st.composite
def tilings(draw):
    """Right ones, and right ones with one chunk moved, resized, dropped or doubled."""
    size = tuple(draw(st.lists(st.integers(0, 5), min_size=0, max_size=3)))
    choose = random.Random(draw(st.integers(0, 10**6)))
    boxes = fake_saves.cut(size, choose, draw(st.integers(0, 8)))
    how = draw(st.sampled_from(["right", "move", "resize", "drop", "double"]))
    at = choose.randrange(len(boxes))
    offset, length = boxes[at]
    if size and how in {"move", "resize"}:
        d = choose.randrange(len(size))
        moved = tuple(max(0, o + (choose.choice([-1, 1]) if i == d else 0)) for i, o in enumerate(offset))
        grown = tuple(max(0, n + (choose.choice([-1, 1]) if i == d else 0)) for i, n in enumerate(length))
        boxes[at] = (moved, length) if how == "move" else (offset, grown)
    elif how == "drop":
        del boxes[at]
    elif how == "double":
        boxes.append(boxes[at])
    choose.shuffle(boxes)
    return size, boxes


@given(tilings())
def test_a_fault_is_found_exactly_when_a_cell_is_not_covered_once(made):
    size, boxes = made
    cells = counted(size, boxes)
    right = cells is not None and all(count == 1 for count in cells.values())
    fault = tiles.fault(size, boxes)
    assert (fault is None) == right, (fault, size, boxes)
    if fault is not None and cells is not None and len(size) != 1:
        held = sum(prod(length) for _, length in boxes)
        wanted = {-1: "COVER_GAP", 0: "COVER_SHIFT", 1: "COVER_OVERLAP"}[(held > prod(size)) - (held < prod(size))]
        assert fault[0] == wanted


def test_a_pinwheel_is_no_grid_and_tiles():
    pinwheel = [((0, 0), (1, 2)), ((0, 2), (2, 1)), ((2, 1), (1, 2)), ((1, 0), (2, 1)), ((1, 1), (1, 1))]
    assert tiles.fault((3, 3), pinwheel) is None
    shifted = [*pinwheel[:-1], ((0, 0), (1, 1))]
    assert tiles.fault((3, 3), shifted) is not None
    assert tiles.fault((3, 3), shifted)[0] == "COVER_SHIFT"


def test_sixty_dimensions_are_refused_before_they_are_counted():
    assert tiles.fault((2,) * 60, [((0,) * 60, (2,) * 60)]) is not None


def reader(data):
    return lambda at, count: data[at : at + count]


@given(st.binary(max_size=6000), st.booleans())
def test_records_are_those_that_zipfile_sees(data, described):
    class Out(io.BytesIO):
        def seekable(self):
            return not described

    out = Out()
    with zipfile.ZipFile(out, "w") as packed:
        for name in ("archive/data.pkl", "archive/data/0", "archive/version"):
            packed.writestr(name, data[: len(data) // 2] if name.endswith("pkl") else data)
    blob = out.getvalue()
    records = read_records(reader(blob), len(blob))
    with zipfile.ZipFile(io.BytesIO(blob)) as packed:
        assert [(r.name, r.size, r.crc) for r in records] == [
            (i.filename, i.file_size, i.CRC) for i in packed.infolist()
        ]
        assert [blob[r.start : r.end] for r in records] == [packed.read(r.name) for r in records]
    assert [r.name for r in records if r.is_data] == ["archive/data/0"]


@given(st.integers(0, 10**9), st.integers(0, 7))
def test_a_flipped_bit_of_a_record_is_always_seen(where, bit):
    blob = bytearray(fake_saves.archive(fake_saves.whole(b"N"), bytes(range(256)) * 20))
    records = read_records(reader(bytes(blob)), len(blob))
    owned = [at for r in records for at in range(r.start, r.end)]
    at = owned[where % len(owned)]
    blob[at] ^= 1 << bit
    found = read_records(reader(bytes(blob)), len(blob))
    assert any(zlib.crc32(blob[r.start : r.end]) != r.crc for r in found)


def test_numbers_of_64_bits_are_read_where_they_need_not_be():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed, packed.open("archive/data/0", "w", force_zip64=True) as record:
        record.write(b"elements")
    blob = out.getvalue()
    assert [(r.name, r.size, r.is_data) for r in read_records(reader(blob), len(blob))] == [("archive/data/0", 8, True)]


def test_a_flipped_bit_around_the_records_is_nearly_always_seen():
    """Headers and directory say most things twice; what they say once is of no account to a load."""
    blob = fake_saves.archive(fake_saves.whole(b"N"), b"elements" * 10)
    unseen = 0
    for at in range(len(blob)):
        changed = bytearray(blob)
        changed[at] ^= 1
        data = bytes(changed)
        try:
            unseen += all(zlib.crc32(data[r.start : r.end]) == r.crc for r in read_records(reader(data), len(data)))
        except BadArchiveError:
            continue
    assert unseen <= len(blob) // 100


@given(st.integers(0, 10**9), st.binary(min_size=1, max_size=40))
def test_no_damaged_archive_makes_the_walk_fail_in_another_way(where, noise):
    blob = bytearray(fake_saves.archive(fake_saves.whole(b"N"), b"elements" * 100))
    at = where % len(blob)
    blob[at : at + len(noise)] = noise
    data = bytes(blob)
    try:
        records = read_records(reader(data), len(data))
    except BadArchiveError:
        return
    assert all(0 <= r.start <= r.end <= len(data) for r in records)


@given(st.binary(max_size=3000))
def test_noise_is_no_archive(noise):
    with pytest.raises(BadArchiveError):
        read_records(reader(noise), len(noise))


def numbers(dtype, words):
    """The values of raw words, by another way than the exponent."""
    match dtype:
        case "float32":
            return [struct.unpack("<f", struct.pack("<I", w))[0] for w in words]
        case "bfloat16":
            return [struct.unpack("<f", struct.pack("<I", w << 16))[0] for w in words]
        case "float16":
            return [struct.unpack("<e", struct.pack("<H", w))[0] for w in words]
        case _:
            return [struct.unpack("<d", struct.pack("<Q", w))[0] for w in words]


SMALLEST = {"float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14, "float64": 2.0**-1022}


@given(st.sampled_from(sorted(SMALLEST)), st.data())
def test_counts_over_a_sample_are_those_of_the_numbers(dtype, data):
    width = sanity.width_of(dtype)
    top = 1 << (8 * width)
    special = [0, top >> 1, 1, (top >> 1) + 1, 0x7F80 << (8 * width - 16), 0xFF80 << (8 * width - 16), 0x7C00 << (8 * width - 16),
               0x7FF0 << (8 * width - 16), 0xFFF0 << (8 * width - 16), (0x7FF0 << (8 * width - 16)) + (width > 2), top - 1]  # fmt: skip
    words = data.draw(st.lists(st.one_of(st.sampled_from(special), st.integers(0, top - 1)), max_size=40))
    seen = sanity.look(b"".join(w.to_bytes(width, "little") for w in words), dtype)
    values = numbers(dtype, words)
    assert seen.count == len(words)
    assert seen.nan == sum(map(isnan, values))
    assert seen.infinite == sum(map(isinf, values))
    assert seen.zero == values.count(0.0)
    assert seen.denormal == sum(0 < abs(v) < SMALLEST[dtype] for v in values)
    signed = [w >> (8 * width - 1) for w in words]
    assert seen.negative == sum(bool(s) and v != 0 for s, v in zip(signed, values, strict=True))
