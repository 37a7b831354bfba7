"""A save from before relight is taken in where it lies, after the whole check, and nothing of it is ever deleted."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from archivecases import ID, Killed, archive_of, data_of, flipped, look_at, made
from test_store_good import WORLD, Now, items_of, new_store, write_save

from policies.facts import CheckpointPhase
from supervisor.bench import fake_saves
from supervisor.checkpoints.store import PosixStore
from supervisor.errors import NotRestorable

Phase = CheckpointPhase
ADOPTED = "a0000-i0000040"


@pytest.fixture
def store(tmp_path):
    return new_store(tmp_path / "c")


def old_save(folder, step=40, *, megatron=True):
    """What Megatron left there before there was a relight, with its tracker. Returns the folder of the iteration."""
    path = folder / f"iter_{step:07d}"
    fake_saves.write(str(path), items_of(0, step, megatron=megatron), iteration=step, megatron=megatron)
    (folder / "latest_checkpointed_iteration.txt").write_text(str(step))
    return path


def everything(folder):
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("megatron", [True, False])
def test_an_old_save_is_adopted_where_it_lies(store, tmp_path, megatron):
    path = old_save(tmp_path / "old", megatron=megatron)
    before = everything(tmp_path / "old")
    state = store.adopt(str(path))
    assert (state.id, state.phase, state.limited) == (ADOPTED, Phase.COMPLETED, True)
    assert store.scan() == (state,)
    assert store.latest() == ADOPTED
    said = json.loads((tmp_path / f"c/seals/{ADOPTED}/PLACE").read_text())
    assert said == {"schema": 1, "path": str(path)}
    view = store.make_view(1, ADOPTED)
    assert os.readlink(f"{view}/iter_0000040") == str(path)
    assert data_of(f"{view}/iter_0000040") == data_of(str(path))
    assert store.view_targets() == {1: ADOPTED}
    assert store.expected(ADOPTED).limited
    assert everything(tmp_path / "old") == before
    assert store.adopt(str(tmp_path / "old")) == state  # the folder above, whose tracker names it; and again


def test_links_on_the_way_are_resolved(store, tmp_path):
    path = old_save(tmp_path / "old")
    (tmp_path / "current").symlink_to(tmp_path / "old")
    store.adopt(str(tmp_path / "current"))
    assert store.place(ADOPTED).data == str(path)


def cut_short(path):
    os.truncate(path / "__1_0.distcp", 30)


def rot(path):
    data = (path / "__1_0.distcp").read_bytes()
    at = data.index(b"rank 1")
    (path / "__1_0.distcp").write_bytes(data[:at] + flipped(data[at : at + 6]) + data[at + 6 :])


REFUSED = {
    "a shard is cut short": (cut_short, "TRUNCATED __1_0.distcp", False),
    "a bit has flipped": (rot, "CRC __1_0.distcp", False),
    "a shard is missing": (lambda p: (p / "__2_0.distcp").unlink(), "MISSING_FILE __2_0.distcp", False),
    "a stray shard": (lambda p: (p / "__7_0.distcp").write_bytes(b"x"), "STRAY_FILE __7_0.distcp", False),
    "not finished": (lambda p: (p / ".metadata").unlink(), "no .metadata yet", True),
    "of another iteration": (lambda p: p.rename(p.parent / "iter_0000050"), "IDENTITY", False),
    "no iteration in its name": (lambda p: p.rename(p.parent / "release"), "named like iter_0000040", False),
    "nothing there": (shutil.rmtree, "no .metadata, no safetensors", False),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_not_whole_is_refused_and_leaves_nothing(store, tmp_path, why):
    path = old_save(tmp_path / "old")
    spoil, reason, not_yet = REFUSED[why]
    spoil(path)
    (tmp_path / "old/latest_checkpointed_iteration.txt").unlink()
    inside = [p for p in (tmp_path / "old").iterdir() if p.is_dir()]
    with pytest.raises(NotRestorable) as refused:
        store.adopt(str(inside[0] if inside else tmp_path / "old"))
    assert any(reason in one for one in refused.value.reasons), refused.value.reasons
    assert refused.value.not_yet is not_yet
    assert os.listdir(tmp_path / "c/seals") == []
    assert store.scan() == ()


def test_what_is_young_waits_and_is_adopted_later(tmp_path):
    clock = Now()
    clock.at -= 3600
    store = new_store(tmp_path / "c", clock=clock)
    path = old_save(tmp_path / "old")
    cut_short(path)
    with pytest.raises(NotRestorable) as refused:
        store.adopt(str(path))
    assert refused.value.not_yet
    shutil.rmtree(path)
    old_save(tmp_path / "old")
    assert store.adopt(str(path)).phase is Phase.COMPLETED  # no sidecars are awaited


def test_our_own_saves_are_not_adopted(store, tmp_path):
    path = write_save(store)
    for inside in (path, os.path.dirname(path)):
        with pytest.raises(NotRestorable, match="in this run's own store"):
            store.adopt(inside)
    link = tmp_path / "around"
    link.symlink_to(path)
    with pytest.raises(NotRestorable, match="in this run's own store"):
        store.adopt(str(link))


def test_sidecars_of_another_run_are_none_of_ours(store, tmp_path):
    other = new_store(tmp_path / "other")
    path = write_save(other, 7, 40)
    state = store.adopt(path)
    assert (state.phase, state.limited) == (Phase.COMPLETED, True)


def test_one_iteration_is_adopted_from_one_place(store, tmp_path):
    first, second = old_save(tmp_path / "old"), old_save(tmp_path / "older")
    store.adopt(str(first))
    with pytest.raises(NotRestorable, match=f"already adopted, from {first}"):
        store.adopt(str(second))
    assert store.place(ADOPTED).data == str(first)


def test_two_who_adopt_the_same_iteration_at_once(store, tmp_path):
    first, second = old_save(tmp_path / "old"), old_save(tmp_path / "older")

    def step(name):
        if name == "before PLACE":
            store.adopt(str(first))

    with pytest.raises(NotRestorable, match="already adopted"):
        look_at(tmp_path / "c", step=step).adopt(str(second))
    assert store.place(ADOPTED).data == str(first)
    assert store.state(ADOPTED).phase is Phase.COMPLETED


def test_adopting_killed_anywhere(store, tmp_path):
    path = old_save(tmp_path / "old")
    before = everything(tmp_path / "old")

    def adopt(root, stop_at):
        seen = []

        def step(name):
            states = look_at(root).scan()
            assert {s.phase for s in states} <= {Phase.COMPLETED, Phase.FRAMEWORK_DONE}
            seen.append(name)
            if len(seen) - 1 == stop_at:
                raise Killed(name)

        look_at(root, step=step).adopt(str(path))
        return seen

    shutil.copytree(tmp_path / "c", tmp_path / "whole")
    seen = adopt(tmp_path / "whole", None)
    assert [n for n in seen if n.startswith("after ")] == [
        f"after {n}"
        for n in (
            "content",
            "PLACE",
            "claim",
            ADOPTED,
            "manifest.json",
            "OUTCOME",
            "COMMITTED",
            "completed.json",
            "latest",
        )
    ] + [n for n in seen if "baseline" in n and n.startswith("after")]
    for at in range(len(seen)):
        root = tmp_path / f"stop{at}"
        shutil.copytree(tmp_path / "c", root)
        with pytest.raises(Killed):
            adopt(root, at)
        if (root / f"seals/{ADOPTED}/PLACE").exists():  # the loop finds it, and seals it as any other
            assert look_at(root).seal(ADOPTED).phase is Phase.COMPLETED
        assert look_at(root).adopt(str(path)).phase is Phase.COMPLETED
        assert look_at(root).latest() == ADOPTED
    assert everything(tmp_path / "old") == before


def test_retention_takes_the_seal_and_never_the_data(store, tmp_path):
    path = old_save(tmp_path / "old")
    before = everything(tmp_path / "old")
    store.adopt(str(path))
    store.unpin(ADOPTED)
    write_save(store, 1, 40)
    store.seal(ID)
    store.make_view(3, ADOPTED)
    assert store.retain(1) == (ADOPTED,)
    assert [s.id for s in store.scan()] == [ID]
    assert everything(tmp_path / "old") == before
    assert store.pending_deletions() == ()
    store.drop_view(3)
    assert everything(tmp_path / "old") == before
    with pytest.raises(NotRestorable, match="never used again"):
        store.adopt(str(path))


def test_one_that_others_have_changed_is_condemned_and_its_data_stays(store, tmp_path):
    path = old_save(tmp_path / "old")
    store.adopt(str(path))
    rot(path)
    with pytest.raises(NotRestorable, match="SUM __1_0") as refused:
        store.make_view(1, ADOPTED)
    assert not refused.value.not_yet
    assert store.condemn(ADOPTED, *refused.value.reasons).phase is Phase.BROKEN
    assert path.is_dir()
    with pytest.raises(NotRestorable, match="SUM"):
        store.adopt(str(path))


def test_one_whose_file_system_is_away_is_not_broken(store, tmp_path):
    path = old_save(tmp_path / "old")
    store.adopt(str(path))
    os.rename(tmp_path / "old", tmp_path / "unmounted")
    state = look_at(tmp_path / "c", settle_s=0.0).state(ADOPTED)
    assert state.phase is Phase.NOT_YET
    assert "not mounted" in state.reasons[0]
    with pytest.raises(NotRestorable) as refused:
        store.make_view(1, ADOPTED)
    assert refused.value.not_yet
    os.rename(tmp_path / "unmounted", tmp_path / "old")
    assert store.state(ADOPTED).phase is Phase.COMPLETED
    (path / "__0_0.distcp").unlink()
    assert PosixStore(str(tmp_path / "c"), WORLD, lambda: time.time() + 9999).state(ADOPTED).phase is Phase.BROKEN


def test_a_place_that_is_no_record_is_not_believed(store, tmp_path):
    store.adopt(str(old_save(tmp_path / "old")))
    (tmp_path / f"c/seals/{ADOPTED}/PLACE").write_text('{"schema":1,"path":"relative"}')
    assert look_at(tmp_path / "c").state(ADOPTED).phase is Phase.NOT_YET


def test_metadata_json_that_is_missing_is_repaired_in_the_view(store, tmp_path):
    path = old_save(tmp_path / "old")
    (path / "metadata.json").unlink()
    store.adopt(str(path))
    view = store.make_view(1, ADOPTED)
    assert json.loads(Path(f"{view}/iter_0000040/metadata.json").read_text())["sharded_backend"] == "torch_dist"
    assert os.readlink(f"{view}/iter_0000040/.metadata") == f"{path}/.metadata"
    assert store.view_targets() == {1: ADOPTED}
    assert not (path / "metadata.json").exists()


def test_an_adopted_save_is_archived_and_comes_back_when_others_delete_it(store, tmp_path):
    path = old_save(tmp_path / "old")
    (path / "metadata.json").unlink()
    store.adopt(str(path))
    made(tmp_path / "archive", store).copy(ADOPTED)
    good = data_of(str(path))
    shutil.rmtree(tmp_path / "c")
    shutil.rmtree(tmp_path / "old")
    fresh = PosixStore(str(tmp_path / "c"), WORLD, Now())
    archive_of(tmp_path / "archive", fresh).restore(ADOPTED)
    view = fresh.make_view(1, ADOPTED)
    assert data_of(f"{view}/iter_0000040").items() > good.items()
    assert json.loads(Path(f"{view}/iter_0000040/metadata.json").read_text())["sharded_backend"] == "torch_dist"
    assert fresh.view_targets() == {1: ADOPTED}


def test_it_is_pinned_so_that_retention_does_not_let_go_of_it_at_once(store, tmp_path):
    """It is older than all that the run has saved: three newer ones are there already."""
    for step in (100, 110, 120):
        write_save(store, 1, step)
        assert store.seal(f"a0001-i{step:07d}").phase is Phase.COMPLETED
    old_save(tmp_path)
    state = store.adopt(str(tmp_path / "iter_0000040"))
    store.retain(3)
    assert store.state(ADOPTED).phase is Phase.COMPLETED
    assert state.id in {one.id for one in store.scan() if one.pinned}
    assert store.unpin(ADOPTED)
    assert store.retain(3) == (ADOPTED,)
