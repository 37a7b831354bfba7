"""A save that is as it should be, and the makers of saves that the other store tests use: real in form, without torch."""

import hashlib
import json
import os
import stat
import time

import pytest
import xxhash

from policies.facts import Batch, CheckpointPhase, Counters
from slurm.cluster import Unreadable
from supervisor.bench import fake_saves
from supervisor.bench.fake_saves import Chunk, Object
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId
from supervisor.errors import NotRestorable

WORLD = 4


class Now:
    """A clock that is set by hand. It begins an hour ahead, so that no file written now is young."""

    def __init__(self):
        self.at = time.time() + 3600

    def __call__(self):
        self.at += 1.0
        return self.at


def new_store(root, **more):
    store = PosixStore(str(root), WORLD, more.pop("clock", Now()), **more)
    store.create()
    return store


def items_of(attempt, step, *, megatron=False, word="rank"):
    """A weight in a part a rank, and the ledgers as the reference trainer keeps them, or Megatron's common state."""
    items = []
    for rank in range(WORLD):
        body = f"{word} {rank} attempt {attempt} step {step} ".encode().ljust(50 + rank)
        items.append(
            Chunk(
                "w", "uint8", (4 * 50 + 6,), (50 * rank + sum(range(rank)),), (50 + rank,), f"__{rank}_0.distcp", body
            )
        )
    if megatron:
        state = fake_saves.common_state(step, 8 * step, step - 1, 0.0012)
        return [*items, Object("common_state/shard_0_1", "__0_0.distcp", state)]
    ledgers = {"ledger.step": step, "ledger.samples": 8 * step, "ledger.skipped": 1, "optimizer.step": step - 1}
    for name, value in ledgers.items():
        items.append(Chunk(name, "int64", (1,), (0,), (1,), "__0_0.distcp", value.to_bytes(8, "little")))
    return items


def write_save(store, attempt=1, step=40, *, sidecars=True, metadata=True, megatron=False, items=None):
    """Write what four ranks would write. Without `metadata`, its `.metadata` waits beside it. Returns the save's folder."""
    path = os.path.join(store.save_dir(attempt), f"iter_{step:07d}")
    items = items_of(attempt, step, megatron=megatron) if items is None else items
    fake_saves.write(path, items, iteration=step, megatron=megatron)
    os.makedirs(os.path.join(path, "relight"))
    for rank in range(WORLD) if sidecars else ():
        name = f"__{rank}_0.distcp"
        write_sidecar(path, rank, attempt, step, {name: os.path.getsize(os.path.join(path, name))})
    if not metadata:
        os.rename(os.path.join(path, ".metadata"), path + ".later")
    return path


def write_sidecar(path, rank, attempt, step, files, **changed):
    record = {
        "schema": 1, "rank": rank, "attempt": attempt, "tp": rank % 2, "pp": rank // 2, "dp": 0, "step": step,
        "samples": 8 * step, "updates": step - 1, "skipped": 1, "lr": 0.0012, "digest": f"{rank:032x}",
        "next": [8 * step, 8, "abc"], "files": files, "data_version": "v1", "wall": 1.5,
    }  # fmt: skip
    with open(os.path.join(path, "relight", f"rank_{rank:05d}.json"), "w", encoding="utf-8") as file:
        json.dump(record | changed, file)


def finish(path):
    os.rename(path + ".later", os.path.join(path, ".metadata"))


@pytest.fixture
def store(tmp_path):
    return new_store(tmp_path / "checkpoints")


def only(store):
    (state,) = store.scan()
    return state


def test_seal_of_a_good_save(store, tmp_path):
    path = write_save(store)
    assert store.begin("a0001-i0000040") is True
    assert store.begin("a0001-i0000040") is False
    assert only(store).phase is CheckpointPhase.FRAMEWORK_DONE
    state = store.seal("a0001-i0000040")
    assert state.phase is CheckpointPhase.COMPLETED
    assert state == only(store)
    assert not state.limited
    assert state.counters == Counters(40, 320, 39, 1, 0.0012)
    root = tmp_path / "checkpoints"
    raw = (root / "seals/a0001-i0000040/manifest.json").read_bytes()
    assert state.manifest_hash == hashlib.sha256(raw).hexdigest()
    manifest = json.loads(raw)
    on_disk = {name: os.path.join(path, name) for name in os.listdir(path) if name != "relight"}
    assert manifest["files"].keys() == on_disk.keys()
    for name, file in on_disk.items():
        with open(file, "rb") as opened:
            assert manifest["files"][name]["xxh3"] == xxhash.xxh3_128_hexdigest(opened.read())
    assert state.bytes == sum(os.path.getsize(file) for file in on_disk.values()) == manifest["bytes"]
    committed = json.loads((root / "seals/a0001-i0000040/COMMITTED").read_text())
    assert (committed["schema"], committed["manifest_sha256"]) == (1, state.manifest_hash)
    assert (root / "latest").read_text() == "a0001-i0000040\n"
    listed = json.loads((root / "completed.json").read_text())
    assert listed == {"schema": 1, "generation": 1, "completed": ["a0001-i0000040"]}


def test_sealing_again_changes_nothing(store, tmp_path):
    write_save(store)
    first = store.seal("a0001-i0000040")
    before = {p: p.read_bytes() for p in (tmp_path / "checkpoints").rglob("*") if p.is_file()}
    assert store.seal("a0001-i0000040") == first
    assert before == {p: p.read_bytes() for p in (tmp_path / "checkpoints").rglob("*") if p.is_file()}


def test_the_list_grows_in_the_order_of_completion_even_when_the_clock_is_set_back(tmp_path):
    clock = Now()
    store = new_store(tmp_path / "c", clock=clock)
    for attempt, step in ((1, 40), (2, 30)):
        write_save(store, attempt, step)
        store.seal(str(SaveId(attempt, step)))
        clock.at -= 1800
    listed = json.loads((tmp_path / "c/completed.json").read_text())
    assert listed["completed"] == ["a0001-i0000040", "a0002-i0000030"]
    assert listed["generation"] == 2
    assert store.latest() == "a0002-i0000030"
    first, second = store.scan()
    assert first.completed_at < second.completed_at


def test_expected_is_what_the_ranks_wrote(store):
    write_save(store)
    store.seal("a0001-i0000040")
    expected = store.expected("a0001-i0000040")
    assert expected.counters == Counters(40, 320, 39, 1, 0.0012)
    assert expected.digests == {rank: f"{rank:032x}" for rank in range(WORLD)}
    assert expected.next_batches[3] == Batch(320, 8, "abc")
    assert not expected.limited


def test_expected_refuses_what_is_not_completed(store):
    write_save(store)
    with pytest.raises(NotRestorable):
        store.expected("a0001-i0000040")


def test_a_save_without_sidecars_is_limited(store):
    write_save(store, sidecars=False)
    assert store.seal("a0001-i0000040").limited
    expected = store.expected("a0001-i0000040")
    assert (expected.limited, expected.counters, dict(expected.digests)) == (True, None, {})
    assert store.make_view(2, "a0001-i0000040")


def test_sidecars_that_may_still_come_are_waited_for(tmp_path):
    store = new_store(tmp_path / "c", clock=time.time, settle_s=60.0)
    write_save(store, sidecars=False)
    assert store.seal("a0001-i0000040").phase is CheckpointPhase.NOT_YET
    assert only(store).phase is CheckpointPhase.FRAMEWORK_DONE


def test_folders_are_private(store, tmp_path):
    for path in ("", "saves", "seals", "views", "deleted"):
        assert stat.S_IMODE(os.stat(tmp_path / "checkpoints" / path).st_mode) == 0o700


def test_a_view_leads_to_the_save(store, tmp_path):
    path = write_save(store)
    store.seal("a0001-i0000040")
    view = store.make_view(2, "a0001-i0000040")
    assert store.make_view(2, "a0001-i0000040") == view
    assert os.readlink(os.path.join(view, "iter_0000040")) == "../../saves/a0001/iter_0000040"
    assert os.path.samefile(os.path.join(view, "iter_0000040"), path)
    assert (tmp_path / "checkpoints/views/a0002/latest_checkpointed_iteration.txt").read_bytes() == b"40"
    empty = store.make_view(1, None)
    assert os.listdir(empty) == []
    assert store.views() == {1, 2}


def test_a_store_that_was_never_made_is_unreadable_and_not_empty(tmp_path):
    store = PosixStore(str(tmp_path / "c"), WORLD, time.time)
    assert store.free_bytes() is None
    assert isinstance(store.scan(), Unreadable)
    (tmp_path / "c").mkdir()  # a mount point whose file system is gone looks like this
    assert isinstance(store.scan(), Unreadable)
    store.create()
    assert store.scan() == ()


@pytest.mark.parametrize(
    "text", ["", "a1-i40", "a00003-i0000040", "a0003-i0000040\n", "../a0003-i0000040", "a\u0660003-i0000040"]
)
def test_other_texts_are_no_ids(store, text):
    with pytest.raises(ValueError, match="not the id"):
        store.seal(text)
