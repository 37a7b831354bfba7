"""Where a save's data lies: restored copies stand before what was written, and go as carefully as they came."""

import os
import shutil

import pytest
from archivecases import ID, Killed, archive_of, data_of, flipped, look_at, lose, made, sealed_store
from test_store_good import new_store, write_save

from policies.facts import CheckpointPhase
from supervisor.checkpoints import places
from supervisor.checkpoints.pins import BeingDeletedError
from supervisor.checkpoints.publishing import read_list
from supervisor.checkpoints.tree import SaveId, Tree
from supervisor.errors import NotRestorable

Phase = CheckpointPhase
NEWER = "a0001-i0000060"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "c"


@pytest.fixture
def archive(tmp_path, root):
    """A store with one save, and its copy."""
    store = sealed_store(root, ID)
    archive = made(tmp_path / "archive", store)
    archive.copy(ID)
    return archive


def spoil(folder, name="__1_0.distcp"):
    path = os.path.join(folder, name)
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        file.write(flipped(data))


def phase(root, checkpoint=ID):
    return look_at(root).state(checkpoint).phase


def test_a_copy_stands_in_for_a_save_that_is_broken(root, archive):
    store = look_at(root)
    good = data_of(store.place(ID).data)
    spoil(store.place(ID).data)
    with pytest.raises(NotRestorable, match="SUM __1_0"):
        store.make_view(2, ID)
    store.condemn(ID, "SUM")
    assert phase(root) is Phase.BROKEN
    assert store.latest() is None
    archive.restore(ID)
    assert (phase(root), store.latest()) == (Phase.COMPLETED, ID)
    view = store.make_view(2, ID)
    assert os.readlink(f"{view}/iter_0000040") == f"../../restored/{ID}.1/iter_0000040"
    assert data_of(f"{view}/iter_0000040") == good


def test_a_view_of_the_place_before_is_made_anew(root, archive):
    store = look_at(root)
    view = store.make_view(2, ID)
    assert "saves/a0001" in os.readlink(f"{view}/iter_0000040")
    store.condemn(ID, "SUM")
    archive.restore(ID)
    store.make_view(2, ID)
    assert f"restored/{ID}.1" in os.readlink(f"{view}/iter_0000040")
    assert store.view_targets() == {2: ID}


def test_each_condemned_copy_makes_room_for_what_is_left(root, archive):
    store = look_at(root)
    store.condemn(ID, "first")
    archive.restore(ID)
    spoil(store.place(ID).data)
    with pytest.raises(NotRestorable, match="SUM"):
        store.make_view(2, ID)
    assert store.condemn(ID, "second").phase is Phase.BROKEN
    archive.restore(ID)
    assert store.place(ID).marks.endswith(f"{ID}.2")
    assert phase(root) is Phase.COMPLETED
    assert store.condemn(ID, "third").reasons == ("first",)  # what was first said of what the ranks wrote
    assert read_list(Tree(str(root))).completed == ()


def test_a_good_save_is_not_brought_back(root, archive):
    archive.restore(ID)
    assert not posix_names(root / "restored")


def posix_names(path):
    return sorted(os.listdir(path)) if path.exists() else []


def test_in_a_store_that_was_lost_a_condemned_copy_is_broken_and_the_next_is_not(root, archive, tmp_path):
    fresh = lose(root)
    back = archive_of(tmp_path / "archive", fresh)
    back.restore(ID)
    assert fresh.condemn(ID, "rot").phase is Phase.BROKEN
    (state,) = fresh.scan()
    assert (state.phase, state.reasons) == (Phase.BROKEN, ("rot",))
    back.restore(ID)
    assert phase(root) is Phase.COMPLETED


def test_a_deleted_save_comes_back_and_goes_again(root, archive):
    store = look_at(root)
    write_save(store, 1, 60)
    store.seal(NEWER)
    assert store.retain(1) == (ID,)
    assert [s.id for s in store.scan()] == [NEWER]
    archive.restore(ID)
    assert [(s.id, s.phase) for s in store.scan()] == [(ID, Phase.COMPLETED), (NEWER, Phase.COMPLETED)]
    assert store.seal(ID).phase is Phase.COMPLETED
    assert store.latest() == NEWER
    with pytest.raises(ValueError, match="never used again"):
        store.begin(ID)
    store.make_view(3, ID)
    assert store.retain(1, frozenset({ID})) == ()
    assert store.retain(1) == (ID,)
    assert [s.id for s in store.scan()] == [NEWER]
    assert posix_names(root / "restored") == []
    assert store.pending_deletions() == ()


def test_a_restored_save_can_be_pinned_and_a_deleted_one_can_not(root, archive):
    store = look_at(root)
    write_save(store, 1, 60)
    store.seal(NEWER)
    store.retain(1)
    with pytest.raises(BeingDeletedError):
        store.pin(ID, "figure 3", "ada")
    archive.restore(ID)
    assert store.pin(ID, "figure 3", "ada")
    assert store.retain(1) == ()
    assert phase(root) is Phase.COMPLETED


def test_what_is_pinned_while_its_copy_is_taken_away_stays(root, archive):
    store = look_at(root)
    write_save(store, 1, 60)
    store.seal(NEWER)
    store.retain(1)
    archive.restore(ID)

    def step(name):
        if name == "before removing RESTORED":
            store.pin(ID, "figure 3", "ada")

    assert look_at(root, step=step).retain(1) == ()
    assert phase(root) is Phase.COMPLETED
    assert data_of(store.place(ID).data)


def test_retention_of_a_copy_stopped_anywhere(root, archive, tmp_path):
    store = look_at(root)
    write_save(store, 1, 60)
    store.seal(NEWER)
    archive.restore(ID)
    store.condemn(ID, "the one that the ranks wrote")
    archive.restore(ID)
    good = data_of(store.place(ID).data)
    seen = run_to(root, None, good)
    assert {name for name in seen if "RESTORED" in name or "copy" in name} == {
        "before removing RESTORED",
        "after removing RESTORED",
        "before removing a copy",
        "after removing a copy",
    }
    for at in range(len(seen)):
        again = tmp_path / f"stop{at}"
        shutil.copytree(tmp_path / "c.before", again, symlinks=True)
        with pytest.raises(Killed):
            run_to(again, at, good)
        look_at(again).retain(1)
        assert [s.id for s in look_at(again).scan()] == [NEWER]
        assert posix_names(again / "restored") == []


def run_to(root, stop_at, good):
    """Retain, with a reader at each boundary; stopped at one of them."""
    if stop_at is None:
        shutil.copytree(root, f"{root}.before", symlinks=True)
    seen = []

    def step(name):
        reader = look_at(root)
        states = {s.id: s for s in reader.scan()}
        assert states[NEWER].phase is Phase.COMPLETED
        assert {s.phase for s in states.values()} == {Phase.COMPLETED}
        if ID in states:
            assert data_of(reader.place(ID).data) == good
        seen.append(name)
        if len(seen) - 1 == stop_at:
            raise Killed(name)

    look_at(root, step=step).retain(1)
    return seen


def test_a_half_copy_is_nobodys_after_a_day(root, archive):
    store = look_at(root)
    tree, save = Tree(str(root)), SaveId.parse(ID)
    for number, names in (
        (1, ()),
        (2, ("manifest.json",)),
        (3, (places.RESTORED, places.BROKEN)),
        (4, (places.REMOVED,)),
    ):
        os.makedirs(os.path.join(tree.copy(save, number), "iter_0000040"))
        for name in names:
            open(os.path.join(tree.copy(save, number), name), "w").close()
    now = os.stat(tree.copy(save, 1)).st_mtime
    over = places.superfluous(tree, frozenset(), now + 60)
    assert [number for _, number in over] == [3, 4]
    assert [n for _, n in places.superfluous(tree, frozenset(), now + places.IDLE_S + 60)] == [1, 2, 3, 4]
    assert places.superfluous(tree, frozenset({ID}), now + 2 * places.IDLE_S) == []
    assert places.find(tree, save).kind == "saved"
    assert [s.id for s in store.scan()] == [ID]


@pytest.mark.parametrize("name", ["x.1", f"{ID}", f"{ID}.0", f"{ID}.01", f"{ID}.-1", f"{ID}.1.gone", f"{ID}.1_0"])
def test_other_names_are_no_copies(tmp_path, name):
    root = tmp_path / "c"
    store = new_store(root)
    folder = root / "restored" / name
    folder.mkdir()
    (folder / "RESTORED").write_text("{}")
    assert store.scan() == ()


@pytest.mark.parametrize(
    ("spoil_it", "reason"),
    [
        (lambda p: (p / "RESTORED").write_text("{}"), "RESTORED is not a record"),
        (lambda p: (p / "manifest.json").write_text("{}"), "is not the one that RESTORED vouches for"),
        (lambda p: (p / "iter_0000040/__2_0.distcp").unlink(), "1 of 5 files are gone"),
        (lambda p: shutil.rmtree(p / "iter_0000040"), "5 of 5 files are gone"),
        (
            lambda p: (p / "RESTORED").write_text((p / "RESTORED").read_text().replace(ID, "a0002-i0000040")),
            "is of another save",
        ),
    ],
)
def test_a_copy_that_is_not_as_it_was_is_broken(root, archive, tmp_path, spoil_it, reason):
    fresh = lose(root)
    archive_of(tmp_path / "archive", fresh).restore(ID)
    spoil_it(root / f"restored/{ID}.1")
    (state,) = look_at(root, settle_s=0.0).scan()
    assert state.phase is Phase.BROKEN
    assert reason in state.reasons[0]
    (young,) = look_at(root).scan()
    assert young.phase is (Phase.NOT_YET if "gone" in reason else Phase.BROKEN)
    with pytest.raises(NotRestorable):
        look_at(root).make_view(2, ID)
    archive_of(tmp_path / "archive", look_at(root)).restore(ID)
    assert phase(root) is Phase.COMPLETED
