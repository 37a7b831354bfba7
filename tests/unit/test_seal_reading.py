"""A seal reads all of a save, once: what its sidecars and sizes do not show is found, told by its code, and never sealed."""

import json
import os
import re
import shutil
import struct
import time
from pathlib import Path

import pytest
import xxhash
from test_store_good import WORLD, Now, items_of, new_store, only, write_save, write_sidecar

from policies.facts import CheckpointPhase
from supervisor.bench import fake_saves
from supervisor.bench.fake_saves import Chunk, Object, named, value, whole
from supervisor.checkpoints.ledgers import apart_from_ranks
from supervisor.checkpoints.manifest import CountersEntry, Manifest
from supervisor.checkpoints.reading.findings import Verdict
from supervisor.checkpoints.reading.structure import Structure
from supervisor.checkpoints.reading.verifying import Options, verify
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.views import ViewTakenError
from supervisor.errors import NotRestorable

ID = "a0001-i0000040"
Phase = CheckpointPhase


@pytest.fixture
def store(tmp_path):
    return new_store(tmp_path / "c")


def manifest_of(tmp_path):
    return json.loads((tmp_path / f"c/seals/{ID}/manifest.json").read_text())


def flip(path, name, what):
    """Change one bit of the bytes `what` in a file."""
    data = bytearray(Path(path, name).read_bytes())
    data[data.index(what) + 2] ^= 1
    Path(path, name).write_bytes(data)


# --- what only a full reading shows --------------------------------------------------------------------------------


def without(name):
    return [item for item in items_of(1, 40) if item.name != name]


def floats(number):
    return struct.pack("<f", number) * 256


WRONG = {
    "a part of a tensor in no chunk": ([i for i in items_of(1, 40) if i.file != "__2_0.distcp"] + [Chunk("v", "uint8", (8,), (0,), (8,), "__2_0.distcp")], "COVER_GAP w"),
    "a part of a tensor twice": ([*items_of(1, 40), Chunk("w", "uint8", (206,), (3,), (9,), "__2_0.distcp")], "COVER_OVERLAP w"),
    "weights that are NaN": ([*items_of(1, 40), Chunk("n", "float32", (256,), (0,), (256,), "__1_0.distcp", floats(float("nan")))], "NON_FINITE n"),
    "a second moment below zero": ([*items_of(1, 40), Chunk("exp_avg_sq.n", "float32", (256,), (0,), (256,), "__1_0.distcp", floats(-1.0))], "NEGATIVE_MOMENT exp_avg_sq.n"),
    "the state of another step": ([*without("ledger.step"), Chunk("ledger.step", "int64", (1,), (0,), (1,), "__0_0.distcp", (30).to_bytes(8, "little"))], "IDENTITY"),
    "other updates than the ranks say": ([*without("optimizer.step"), Chunk("optimizer.step", "int64", (1,), (0,), (1,), "__0_0.distcp", (38).to_bytes(8, "little"))], "updates 38, its ranks say 39"),
    "other samples than the ranks say": ([*without("ledger.samples"), Chunk("ledger.samples", "int64", (1,), (0,), (1,), "__0_0.distcp", (312).to_bytes(8, "little"))], "samples 312, its ranks say 320"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_sidecars_do_not_show_is_broken_and_says_why(store, tmp_path, kind):
    items, words = WRONG[kind]
    write_save(store, items=items)
    state = store.seal(ID)
    assert state.phase is Phase.BROKEN
    assert words in "; ".join(state.reasons)
    assert json.loads((tmp_path / f"c/seals/{ID}/BROKEN").read_text())["reasons"] == list(state.reasons)
    assert not (tmp_path / f"c/seals/{ID}/manifest.json").exists()
    assert store.latest() is None


def test_a_bit_that_has_rotted_before_the_first_read_is_not_blessed(store):
    path = write_save(store)
    flip(path, "__3_0.distcp", b"rank 3 attempt")
    state = store.seal(ID)
    assert state.phase is Phase.BROKEN
    assert state.reasons == ("CRC __3_0.distcp: w at 0: archive/data/0",)


def test_a_pickle_that_would_run_something_is_broken_and_runs_nothing(store, tmp_path):
    path = write_save(store)
    planted = tmp_path / "planted"
    body = named("os", "system") + value((f"touch {planted}",)) + b"R"
    Path(path, ".metadata").write_bytes(whole(body))
    state = store.seal(ID)
    assert state.phase is Phase.BROKEN
    assert state.reasons[0].startswith("BAD_METADATA .metadata")
    assert not planted.exists()


def test_what_is_wrong_and_young_waits(tmp_path):
    clock = Now()
    clock.at = time.time()
    store = new_store(tmp_path / "c", clock=clock)
    path = write_save(store)
    flip(path, "__3_0.distcp", b"rank 3 attempt")
    assert store.seal(ID).phase is Phase.NOT_YET
    assert only(store).phase is Phase.FRAMEWORK_DONE
    clock.at += 120
    assert store.seal(ID).phase is Phase.BROKEN


def test_the_manifest_holds_what_one_reading_has_found(store, tmp_path):
    path = write_save(store, megatron=True)
    state = store.seal(ID)
    assert (state.phase, state.reasons) == (Phase.COMPLETED, ())
    manifest = manifest_of(tmp_path)
    assert manifest["state"]["format"] == "megatron"
    assert manifest["state"]["save_id"] == "5a1e"
    expected = {"iteration": 40, "samples": 320, "dropped": 0, "updates": 39, "skipped": 1, "lr": 0.0012}
    assert manifest["state"]["counters"] == expected
    assert manifest["repairs"] == {}
    assert "the check sum of every record" in manifest["checks"]["content"]
    assert "all files are of one save" in manifest["checks"]["unproved"]
    for name, entry in manifest["files"].items():
        assert entry["xxh3"] == xxhash.xxh3_128_hexdigest(Path(path, name).read_bytes())


def test_a_manifest_of_an_earlier_relight_is_still_read():
    old = Manifest(
        id=ID, attempt=1, step=40, world=1, saved_at=1.0, completed_at=2.0, bytes=0, files={}, counters=None, ranks={},
        limited=True, checks={},
    )  # fmt: skip
    kept = json.loads(old.to_bytes())
    del kept["state"], kept["repairs"]
    assert Manifest.model_validate_json(json.dumps(kept)) == old


# --- counters ------------------------------------------------------------------------------------------------------

RANKS = CountersEntry(step=40, samples=320, updates=39, skipped=1, lr=0.5, data_version="")


def test_counters_of_names_that_may_mean_something_else_do_not_count():
    counters = {"iteration": 7, "samples": 320, "lr": 0.1}
    assert apart_from_ranks(Structure("dcp", counters=counters), RANKS) == []
    assert apart_from_ranks(Structure("megatron", counters=counters), None) == []
    assert len(apart_from_ranks(Structure("megatron", counters=counters), RANKS)) == 1


# --- repairs -------------------------------------------------------------------------------------------------------

TEXT = b'{"sharded_backend": "torch_dist", "sharded_backend_version": 1}'


@pytest.mark.parametrize("torn", [None, b"", b'{"sharded_'])
def test_a_save_that_lacks_its_metadata_json_is_repaired_in_the_view_alone(store, tmp_path, torn):
    path = write_save(store, megatron=True)
    Path(path, "metadata.json").unlink()
    if torn is not None:
        Path(path, "metadata.json").write_bytes(torn)
    before = {p: p.read_bytes() for p in Path(path).rglob("*") if p.is_file()}
    assert only(store).phase is Phase.FRAMEWORK_DONE
    state = store.seal(ID)
    assert state.phase is Phase.COMPLETED
    assert state.reasons == ("metadata.json is written in the view, not in the data",)
    assert state == only(store) == store.seal(ID)
    assert "BAD_METADATA_JSON" in manifest_of(tmp_path)["checks"]["repair"]
    view = Path(store.make_view(2, ID))
    assert (view / "iter_0000040/metadata.json").read_bytes() == TEXT
    assert len(TEXT) == 63
    for file, data in before.items():
        if file.name != "metadata.json":
            assert (view / "iter_0000040" / file.relative_to(path)).read_bytes() == data
    assert before == {p: p.read_bytes() for p in Path(path).rglob("*") if p.is_file()}
    assert store.make_view(2, ID) == str(view)
    assert store.views() == {2}
    assert store.view_targets() == {2: ID}
    loaded = shutil.copytree(view / "iter_0000040", tmp_path / "iter_0000040")  # as a loader sees it, through the links
    assert verify(str(loaded), Options(lag_s=0.0)).verdict is Verdict.COMPLETE
    store.drop_view(2)
    assert Path(path, ".metadata").exists()


@pytest.mark.parametrize("hurt", ["flip", "cut"])
def test_a_repair_never_hides_other_damage(store, hurt):
    path = write_save(store, megatron=True)
    Path(path, "metadata.json").unlink()
    if hurt == "flip":
        flip(path, "__3_0.distcp", b"rank 3 attempt")
    else:
        os.truncate(os.path.join(path, "__3_0.distcp"), 70)
        write_sidecar(path, 3, 1, 40, {"__3_0.distcp": 70})
    state = store.seal(ID)
    assert state.phase is Phase.BROKEN
    assert re.search("CRC|TRUNCATED", "; ".join(state.reasons))


def test_a_plain_save_needs_no_metadata_json(store, tmp_path):
    write_save(store)
    assert store.seal(ID).phase is Phase.COMPLETED
    assert manifest_of(tmp_path)["repairs"] == {}
    assert os.path.islink(os.path.join(store.make_view(2, ID), "iter_0000040"))


@pytest.mark.parametrize("torn", [None, b""])
def test_a_metadata_json_that_is_young_may_still_come(tmp_path, torn):
    clock = Now()
    clock.at = time.time()
    store = new_store(tmp_path / "c", clock=clock)
    path = write_save(store, megatron=True)
    text = Path(path, "metadata.json").read_bytes()
    Path(path, "metadata.json").unlink()
    if torn is not None:
        Path(path, "metadata.json").write_bytes(torn)
    assert store.seal(ID).phase is Phase.NOT_YET
    assert only(store).phase is Phase.FRAMEWORK_DONE  # so that nobody gives it up before it could be judged
    Path(path, "metadata.json").write_bytes(text)
    clock.at += 120
    assert store.seal(ID).reasons == ()
    assert only(store).phase is Phase.COMPLETED


def test_one_that_comes_after_the_seal_changes_nothing(store):
    path = write_save(store, megatron=True)
    text = Path(path, "metadata.json").read_bytes()
    Path(path, "metadata.json").unlink()
    store.seal(ID)
    Path(path, "metadata.json").write_bytes(text)  # its writer was only stopped
    view = store.make_view(2, ID)
    assert Path(view, "iter_0000040/metadata.json").read_bytes() == TEXT
    Path(path, "common.pt").write_bytes(b"x")
    with pytest.raises(NotRestorable, match=r"common\.pt"):
        store.make_view(3, ID)


def test_one_that_comes_between_two_sealers_changes_nothing(tmp_path):
    def step(name):
        if name == "after manifest.json":
            raise KeyboardInterrupt

    store = new_store(tmp_path / "c")
    path = write_save(store, megatron=True)
    text = Path(path, "metadata.json").read_bytes()
    Path(path, "metadata.json").unlink()
    with pytest.raises(KeyboardInterrupt):
        PosixStore(str(tmp_path / "c"), WORLD, Now(), step=step).seal(ID)
    Path(path, "metadata.json").write_bytes(text)
    assert store.seal(ID).phase is Phase.COMPLETED
    assert Path(store.make_view(2, ID), "iter_0000040/metadata.json").read_bytes() == TEXT


def test_a_view_with_repairs_is_finished_wherever_its_making_stopped(store, tmp_path):
    path = write_save(store, megatron=True)
    Path(path, "metadata.json").unlink()
    store.seal(ID)
    seen = []

    def stopping(at):
        def step(name):
            seen.append(name)
            whole_views = store.view_targets()
            assert whole_views in ({}, {2: ID}), whole_views
            if len(seen) - 1 == at:
                raise KeyboardInterrupt

        return PosixStore(str(tmp_path / "c"), WORLD, Now(), step=step)

    stopping(-1).make_view(2, ID)
    boundaries = list(seen)
    assert {"after metadata.json", "after link", "before view", "after view"} <= set(boundaries)
    for at in range(len(boundaries)):
        store.drop_view(2)
        seen.clear()
        with pytest.raises(KeyboardInterrupt):
            stopping(at).make_view(2, ID)
        view = Path(store.make_view(2, ID), "iter_0000040")
        assert (view / "metadata.json").read_bytes() == TEXT
        assert (view / "__3_0.distcp").read_bytes() == Path(path, "__3_0.distcp").read_bytes()
        assert store.view_targets() == {2: ID}
    assert not [name for name in os.listdir(tmp_path / "c/views") if name.endswith(".tmp")]


@pytest.mark.parametrize("other", ["link", "file", "text"])
def test_a_view_with_repairs_is_not_laid_over_another(store, tmp_path, other):
    path = write_save(store, megatron=True)
    Path(path, "metadata.json").unlink()
    store.seal(ID)
    view = tmp_path / "c/views/a0002"
    view.mkdir()
    if other == "link":
        (view / "iter_0000040").symlink_to("../../saves/a0001/iter_0000040")
    elif other == "file":
        (view / "iter_0000040").write_text("x")
    else:
        (view / "iter_0000040").mkdir()
        (view / "iter_0000040/metadata.json").write_text("{}")
    with pytest.raises(ViewTakenError):
        store.make_view(2, ID)
    assert not Path(path, "metadata.json").exists()


# --- speed ---------------------------------------------------------------------------------------------------------


def test_with_a_limit_of_speed_one_save_is_read_at_a_time(tmp_path):
    seen = []

    def step(name):
        if name == "before content" and not seen:
            seen.append(store.seal("a0001-i0000050"))

    new_store(tmp_path / "c")
    store = PosixStore(str(tmp_path / "c"), WORLD, Now(), step=step, rate=1e9, threads=2)
    for at in (40, 50):
        write_save(store, 1, at)
    assert store.seal(ID).phase is Phase.COMPLETED
    assert seen[0].phase is Phase.NOT_YET
    assert "limit of speed" in seen[0].reasons[0]
    assert store.seal("a0001-i0000050").phase is Phase.COMPLETED
    assert [s.phase for s in store.scan()] == [Phase.COMPLETED] * 2


def test_the_limit_of_speed_reaches_the_reading(tmp_path):
    def seconds(name, rate):
        new_store(tmp_path / name)
        store = PosixStore(str(tmp_path / name), 1, Now(), rate=rate)
        path = os.path.join(store.save_dir(1), "iter_0000040")
        fake_saves.write(
            path,
            [
                Chunk("w", "uint8", (1 << 20,), (0,), (1 << 20,), "__0_0.distcp"),
                Object("o", "__0_0.distcp", whole(value({}))),
            ],
        )
        began = time.monotonic()
        assert store.seal(ID).limited
        return time.monotonic() - began

    # 2 MiB are asked for a file; the first is let through, and each of the rest waits for those before it.
    assert seconds("slow", 2e6) > 1.0
