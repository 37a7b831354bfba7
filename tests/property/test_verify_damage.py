"""Random saves, broken in random ways: none passes as complete against its manifest, and no whole one is called broken."""

import os
import random
import tempfile
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.bench import fake_saves
from supervisor.bench.proofs import damage
from supervisor.bench.proofs.work import Work
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


@pytest.fixture
def open_again(tmp_path):
    """What was closed is opened, so that whoever is not root can remove it."""
    yield
    damage.open_again(str(tmp_path))


@pytest.mark.parametrize("kind", sorted(damage.DAMAGE))
def test_each_kind_of_damage_is_seen(kind, tmp_path, open_again):
    one = damage.sealed(str(tmp_path), random.Random(7), megatron=True)
    assert one.judge(1) == damage.PASSED
    assert damage.damaged(one, random.Random(8), [kind]) == kind
    assert one.judge(2) in {"broken", "not_yet"}


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9), st.sampled_from(sorted(damage.DAMAGE)), st.booleans())
def test_no_damaged_save_passes_against_its_manifest(seed, kind, megatron):
    with tempfile.TemporaryDirectory() as root:
        one = damage.sealed(root, random.Random(seed), megatron=megatron)
        damage.damaged(one, random.Random(seed + 1), [kind])
        assert one.judge(1) in {"broken", "not_yet"}
        damage.open_again(root)


def test_the_proof_in_short(tmp_path):
    work = Work("damage", str(tmp_path), tell=lambda _: None)
    damage.prove(work, 4, 4)
    assert work.ok, work.checks
    assert sum(work.measured["by kind"].values()) == 16
    assert os.listdir(tmp_path) == []


def test_a_judge_that_looks_at_names_and_sizes_alone_would_be_found_out(tmp_path):
    one = damage.sealed(str(tmp_path), random.Random(7), megatron=False)
    damage.damaged(one, random.Random(8), ["a bit"])
    assert not one.seen_by_sizes()
    assert one.judge(1) == "broken"


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
