"""Random saves, broken in random ways: none passes as complete against its manifest, and no whole one is called broken."""

import os
import random
import shutil
import tempfile
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.bench import fake_saves
from supervisor.checkpoints.manifest import FileEntry
from supervisor.checkpoints.reading.findings import Verdict
from supervisor.checkpoints.reading.listed import Listed
from supervisor.checkpoints.reading.verifying import Options, verify


def made(folder, seed, *, megatron):
    choose = random.Random(seed)
    save = os.path.join(folder, "iter_0000040")
    items = fake_saves.random_items(choose, files=choose.randrange(1, 5), tensors=choose.randrange(1, 5))
    if megatron:
        state = fake_saves.common_state(40, 320, 38, 0.001)
        items.append(fake_saves.Object("common_state/shard_0_1", "__0_0.distcp", state))
    fake_saves.write(save, items, iteration=40, megatron=megatron)
    return save, items


def manifest_of(report):
    files = {name: FileEntry(size=stamp.size, xxh3=report.sums[name]) for name, stamp in report.look.files.items()}
    return Listed(files, 40, "a0001-i0000040")


def flip(path, choose):
    data = bytearray(path_bytes(path))
    at = choose.randrange(len(data))
    data[at] ^= 1 << choose.randrange(8)
    write(path, data)


def swap_bytes(path, choose):
    data = bytearray(path_bytes(path))
    at = choose.randrange(len(data))
    size = choose.randrange(1, 64)
    new = bytes(choose.randrange(256) for _ in data[at : at + size])
    data[at : at + size] = new if new != data[at : at + size] else bytes(b ^ 1 for b in new)
    write(path, data)


def shorten(path, choose):
    os.truncate(path, choose.randrange(os.path.getsize(path)))


def lengthen(path, choose):
    with open(path, "ab") as file:
        file.write(bytes(choose.randrange(1, 5000)))


def remove(path, choose):
    os.unlink(path)


def rename(path, choose):
    os.rename(
        path, choose.choice([path + ".bak", os.path.join(os.path.dirname(path), f"__{choose.randrange(9)}_7.distcp")])
    )


def close(path, choose):
    os.chmod(path, choose.choice([0, 0o100, 0o044]))


def link(path, choose):
    elsewhere = os.path.join(os.path.dirname(os.path.dirname(path)), "elsewhere")
    os.rename(path, elsewhere)
    os.symlink(choose.choice([elsewhere, "nowhere", os.path.basename(path)]), path)


def folder(path, choose):
    os.unlink(path)
    os.mkdir(path)


def pipe(path, choose):
    os.unlink(path)
    os.mkfifo(path)


def copy_over(path, choose):
    other = choose.choice(sorted(os.listdir(os.path.dirname(path))))
    data = path_bytes(os.path.join(os.path.dirname(path), other))
    write(path, data if data != path_bytes(path) else data + b"\0")


def stray(path, choose):
    name = choose.choice(["__99_0.distcp", "common.pt", "notes.txt", ".metadata.tmp", "__0.metadata", "sub"])
    target = os.path.join(os.path.dirname(path), name)
    if name == "sub":
        os.mkdir(target)
    else:
        write(target, b"stray")


def path_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


DAMAGE = [flip, swap_bytes, shorten, lengthen, remove, rename, close, link, folder, pipe, copy_over, stray]


@pytest.mark.parametrize("damage", DAMAGE)
def test_each_kind_of_damage_is_seen(damage, tmp_path):
    save, _ = made(str(tmp_path), 7, megatron=True)
    manifest = manifest_of(verify(save, Options(lag_s=0.0, threads=1)))
    damage(os.path.join(save, "__0_0.distcp"), random.Random(7))
    assert verify(save, Options(manifest, lag_s=0.0, threads=1)).verdict is not Verdict.COMPLETE


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9), st.sampled_from(DAMAGE), st.booleans())
def test_no_damaged_save_passes_against_its_manifest(seed, damage, megatron):
    with tempfile.TemporaryDirectory() as root:
        save, _ = made(root, seed, megatron=megatron)
        first = verify(save, Options(lag_s=0.0, threads=1))
        assert first.verdict is Verdict.COMPLETE, first.findings
        manifest = manifest_of(first)
        choose = random.Random(seed + 1)
        damage(os.path.join(save, choose.choice(sorted(os.listdir(save)))), choose)
        again = verify(save, Options(manifest, lag_s=0.0, threads=1))
        assert again.verdict is not Verdict.COMPLETE, (damage.__name__, again.findings)
        shutil.rmtree(save)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9), st.booleans())
def test_a_whole_save_is_complete_with_and_without_its_manifest(seed, megatron):
    with tempfile.TemporaryDirectory() as root:
        save, _ = made(root, seed, megatron=megatron)
        first = verify(save, Options(lag_s=0.0, threads=2))
        assert first.verdict is Verdict.COMPLETE, first.findings
        again = verify(root, Options(manifest_of(first), lag_s=0.0, threads=2))
        assert again.verdict is Verdict.COMPLETE, again.findings
        assert dict(again.sums) == dict(first.sums)


def change_chunk(items, choose):
    """The metadata says something else of one chunk than what its tensor needs."""
    chunks = [at for at, item in enumerate(items) if isinstance(item, fake_saves.Chunk)]
    at = choose.choice(chunks)
    item = items[at]
    d = choose.randrange(len(item.shape))
    offset = (*item.offset[:d], item.offset[d] + choose.choice([-1, 1]), *item.offset[d + 1 :])
    size = (*item.size[:d], item.size[d] + choose.choice([-1, 1]), *item.size[d + 1 :])
    return at, choose.choice([{"offset": offset}, {"size": size}, {"offset": offset, "size": size}])


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9), st.sampled_from(["change", "drop", "double"]))
def test_no_wrong_tiling_passes_even_without_a_manifest(seed, how):
    choose = random.Random(seed)
    items = fake_saves.random_items(choose, files=2, tensors=2)
    at, fields = change_chunk(items, choose)
    if how == "change":
        if min(*fields.get("offset", (0,)), *fields.get("size", (0,)), 0) < 0:
            fields = {"size": (*items[at].size[:-1], items[at].size[-1] + 1)}
        data = None if "size" in fields else items[at].data
        items[at] = replace(items[at], **fields, data=data)
    elif how == "drop":
        if sum(item.name == items[at].name for item in items) == 1:
            items.append(replace(items[at], file="__1_0.distcp"))
        else:
            del items[at]
    else:
        items.append(replace(items[at], file="__0_0.distcp"))
    with tempfile.TemporaryDirectory() as root:
        save = os.path.join(root, "iter_0000040")
        fake_saves.write(save, items, iteration=40)
        report = verify(save, Options(lag_s=0.0, threads=1))
        assert report.verdict is Verdict.BROKEN, (how, fields, report.findings)
