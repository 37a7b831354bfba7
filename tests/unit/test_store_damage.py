"""Each kind of damage is found; what can't be seen is never called broken."""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
import time

import pytest
from test_store_good import WORLD, Now, items_of, new_store, only, write_save, write_sidecar

from policies.facts import CheckpointPhase
from slurm.cluster import Unreadable
from supervisor.checkpoints.posix import read_bounded
from supervisor.checkpoints.views import ViewTakenError
from supervisor.errors import NotRestorable

ID = "a0001-i0000040"


@pytest.fixture
def store(tmp_path):
    return new_store(tmp_path / "c")


def shard(path, rank):
    return os.path.join(path, f"__{rank}_0.distcp")


def rewrite_sidecar(path, rank, *, step=40, attempt=1, files=None, **changed):
    own = {f"__{rank}_0.distcp": os.path.getsize(shard(path, rank))}
    write_sidecar(
        path, rank, attempt, step, own if files is None else files, **{"samples": 320, "updates": 39} | changed
    )


def rewrite_text(path, rank, text):
    with open(os.path.join(path, "relight", f"rank_{rank:05d}.json"), "w", encoding="utf-8") as file:
        file.write(text)


def put(path, name, body=b"x"):
    with open(os.path.join(path, name), "wb") as file:
        file.write(body)


DAMAGE = {
    "missing shard": (lambda p: os.unlink(shard(p, 2)), "'__2_0.distcp' of rank 2 is missing"),
    "truncated shard": (lambda p: os.truncate(shard(p, 1), 17), "has 17 bytes"),
    "missing sidecar": (lambda p: os.unlink(f"{p}/relight/rank_00003.json"), "1 of 4 sidecars are missing: ranks 3"),
    "step disagrees": (lambda p: rewrite_sidecar(p, 2, step=39), "step is 40 on most ranks, another on ranks 2"),
    "samples disagree": (lambda p: rewrite_sidecar(p, 2, samples=1), "samples is 320"),
    "updates disagree": (lambda p: rewrite_sidecar(p, 0, updates=1), "updates is 39"),
    "lr disagrees": (lambda p: rewrite_sidecar(p, 0, lr=0.5), "lr is 0.0012"),
    "data version disagrees": (lambda p: rewrite_sidecar(p, 1, data_version="v2"), "data_version is 'v1'"),
    "another attempt": (lambda p: rewrite_sidecar(p, 1, attempt=7), "the folder is of attempt 1"),
    "same place twice": (lambda p: rewrite_sidecar(p, 1, tp=0), "2 ranks say that they hold place (0, 0, 0)"),
    "all of another step": (lambda p: [rewrite_sidecar(p, r, step=50) for r in range(WORLD)], "the folder is of step 40"),
    "rank in the wrong file": (lambda p: rewrite_text(p, 1, pathlib.Path(p, "relight/rank_00000.json").read_text()), "is of rank 0"),
    "sidecar torn": (lambda p: rewrite_text(p, 1, '{"schema":1,'), "relight/rank_00001.json"),
    "sidecar hostile": (lambda p: rewrite_text(p, 1, "[" * 5000), "relight/rank_00001.json"),
    "sidecar of more ranks": (lambda p: write_sidecar(p, 4, 1, 40, {}, tp=9), "does not have: 4"),
    "extra shard": (lambda p: put(p, "__9_0.distcp"), "'__9_0.distcp' is listed by no rank"),
    "shard listed twice": (lambda p: rewrite_sidecar(p, 3, files={"__3_0.distcp": os.path.getsize(shard(p, 3)), "__2_0.distcp": os.path.getsize(shard(p, 2))}), "listed by ranks 2 and 3"),
    "name leads out": (lambda p: rewrite_sidecar(p, 3, files={"../../../latest": 1}), "is missing"),
    "symlink for a shard": (lambda p: (os.rename(shard(p, 1), f"{p}/../moved"), os.symlink("../moved", shard(p, 1))), "is a symlink"),
    "dangling symlink": (lambda p: os.symlink("nothing", f"{p}/x"), "leads nowhere"),
    "subdirectory": (lambda p: os.mkdir(f"{p}/optimizer"), "'optimizer' is a folder"),
    "pipe": (lambda p: os.mkfifo(f"{p}/x"), "no plain file"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_before_the_seal_is_broken_for_good(store, tmp_path, kind):
    path = write_save(store)
    hurt, words = DAMAGE[kind]
    hurt(path)
    state = store.seal(ID)
    assert state.phase is CheckpointPhase.BROKEN
    assert words in "; ".join(state.reasons)
    assert json.loads((tmp_path / f"c/seals/{ID}/BROKEN").read_text())["reasons"] == list(state.reasons)
    assert not (tmp_path / f"c/seals/{ID}/COMMITTED").exists()
    assert store.latest() is None
    shutil.rmtree(path)
    write_save(store)
    assert store.seal(ID) == only(store) == state
    with pytest.raises(NotRestorable):
        store.make_view(2, ID)


@pytest.mark.parametrize("kind", ["missing shard", "truncated shard", "missing sidecar", "sidecar torn"])
def test_damage_that_is_young_may_be_a_lagging_cache(tmp_path, kind):
    clock = Now()
    clock.at = time.time()
    store = new_store(tmp_path / "c", clock=clock)
    path = write_save(store)
    DAMAGE[kind][0](path)
    assert store.seal(ID).phase is CheckpointPhase.NOT_YET
    assert only(store).phase is CheckpointPhase.FRAMEWORK_DONE
    clock.at += 120
    assert store.seal(ID).phase is CheckpointPhase.BROKEN


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        (".metadata", None, "no .metadata yet"),
        (".metadata", b"", "is empty"),
        (".metadata", b"\x80\x04 cut", "cut short"),
        (".metadata.tmp", b"\x80", "being written again"),
    ],
)
def test_what_the_framework_has_not_finished_is_in_progress(store, tmp_path, name, body, words):
    path = write_save(store)
    put(path, name, body) if body is not None else os.unlink(os.path.join(path, name))
    for state in (only(store), store.seal(ID)):
        assert state.phase is CheckpointPhase.IN_PROGRESS
        assert words in state.reasons[0]
    if name == ".metadata.tmp":
        os.unlink(os.path.join(path, name))
    else:
        write_save(new_store(tmp_path / "again"), items=items_of(1, 40))
        shutil.copy(tmp_path / "again/saves/a0001/iter_0000040/.metadata", path)
    assert store.seal(ID).phase is CheckpointPhase.COMPLETED


def test_a_file_that_is_no_part_of_the_format_is_sealed_with_the_rest(store):
    path = write_save(store)
    put(path, "notes.txt")
    assert store.seal(ID).phase is CheckpointPhase.COMPLETED


def flip(path):
    with open(path, "r+b") as file:
        file.seek(100)
        byte = file.read(1)[0]
        file.seek(100)
        file.write(bytes([byte ^ 4]))


AFTER = {
    "bit flip": (lambda p: flip(shard(p, 3)), "SUM __3_0.distcp"),
    "truncated": (lambda p: os.truncate(shard(p, 3), 5), "TRUNCATED __3_0.distcp: 5 bytes"),
    "stray file": (lambda p: put(p, "common.pt"), "STRAY_FILE common.pt"),
    "missing": (lambda p: os.unlink(shard(p, 0)), "1 of 5 files are gone, '__0_0.distcp' first"),
    "gone": (shutil.rmtree, "5 of 5 files are gone"),
}


@pytest.mark.parametrize("kind", AFTER)
def test_damage_after_the_seal_is_refused_by_the_view(store, kind):
    path = write_save(store)
    store.seal(ID)
    hurt, words = AFTER[kind]
    hurt(path)
    store.scan()
    time_passes = store._clock
    time_passes.at += 120
    with pytest.raises(NotRestorable, match=words) as refused:
        store.make_view(2, ID)
    assert not refused.value.not_yet
    assert store.views() == frozenset()


def test_a_sample_always_reads_metadata_and_may_miss_a_flip(store):
    path = write_save(store)
    store.seal(ID)
    flip(shard(path, 3))
    assert store.make_view(2, ID, deep_limit=1, sample_bytes=1)
    flip(os.path.join(path, ".metadata"))
    with pytest.raises(NotRestorable, match="metadata"):
        store.make_view(3, ID, deep_limit=1, sample_bytes=1)


def test_a_condemned_save_is_never_shown_as_completed_again(store):
    for step in (40, 50):
        write_save(store, 1, step)
        store.seal(f"a0001-i00000{step}")
    assert store.condemn("a0001-i0000050", "xxh3 differs").reasons == ("xxh3 differs",)
    assert [s.phase for s in store.scan()] == [CheckpointPhase.COMPLETED, CheckpointPhase.BROKEN]
    assert store.latest() == ID


@pytest.mark.parametrize("file", ["manifest.json", "COMMITTED"])
def test_a_changed_manifest_is_not_believed(store, tmp_path, file):
    write_save(store)
    store.seal(ID)
    mark = tmp_path / f"c/seals/{ID}/{file}"
    mark.write_bytes(mark.read_bytes().replace(b"320" if file == "manifest.json" else b"sha256", b"321"))
    assert only(store).phase is CheckpointPhase.BROKEN
    with pytest.raises(NotRestorable):
        store.expected(ID)


def test_a_view_that_leads_elsewhere_is_not_changed(store):
    for step in (40, 50):
        write_save(store, 1, step)
        store.seal(f"a0001-i00000{step}")
    view = store.make_view(2, ID)
    with pytest.raises(ViewTakenError):
        store.make_view(2, "a0001-i0000050")
    with pytest.raises(ViewTakenError):
        store.make_view(2, None)
    assert set(os.listdir(view)) == {"iter_0000040", "latest_checkpointed_iteration.txt"}
    store.drop_view(2)
    assert store.make_view(2, "a0001-i0000050") == view
    assert os.path.exists(os.path.join(view, "iter_0000050", ".metadata"))


@pytest.mark.parametrize("made", [0, 1])
def test_a_half_made_view_is_finished(store, made):
    write_save(store)
    store.seal(ID)
    path = os.path.join(os.path.dirname(store.make_view(9, None)), "a0002")
    os.mkdir(path)
    if made:
        os.symlink("../../saves/a0001/iter_0000040", os.path.join(path, "iter_0000040"))
        assert store.views() == {9}
    store.make_view(2, ID)
    assert store.views() == {2, 9}


# --- what can't be seen ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def nobody():
    """Take on rights for which modes count, as root in a container has none to lack."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder():
    """A folder that `nobody` owns and can reach."""
    with nobody():
        path = tempfile.mkdtemp()
    yield path
    for folder, _, files in os.walk(path):
        os.chmod(folder, 0o700)
        for name in files:
            if not os.path.islink(os.path.join(folder, name)):
                os.chmod(os.path.join(folder, name), 0o600)
    shutil.rmtree(path)


def as_before(folder):
    """What root has made in a folder of nobody's becomes nobody's too."""
    for place, folders, files in os.walk(folder) if os.geteuid() == 0 else ():
        for name in (*folders, *files):
            os.chown(os.path.join(place, name), 65534, 65534, follow_symlinks=False)


@pytest.mark.parametrize("closed", ["__1_0.distcp", ".metadata"])
def test_a_closed_file_is_not_yet_and_opens_again(store, closed):
    path = write_save(store)
    door = os.path.join(path, closed)
    os.chmod(door, 0)
    state = store.seal(ID)
    assert state.phase is CheckpointPhase.NOT_YET
    # Root reads it none the less; but whoever restores may not be root.
    assert "UNREADABLE" in state.reasons[0] or "Permission denied" in state.reasons[0]
    os.chmod(door, 0o600)
    assert store.seal(ID).phase is CheckpointPhase.COMPLETED
    os.chmod(door, 0)
    with pytest.raises(NotRestorable, match=r"UNREADABLE|Permission denied") as refused:
        store.make_view(2, ID)
    assert refused.value.not_yet
    assert only(store).phase is CheckpointPhase.COMPLETED


@pytest.mark.parametrize("closed", ["relight/rank_00001.json", "relight", "."])
def test_a_closed_folder_is_not_yet_and_opens_again(open_folder, closed):
    with nobody():
        store = new_store(os.path.join(open_folder, "c"))
        path = write_save(store)
        door = os.path.normpath(os.path.join(path, closed))
        mode = os.stat(door).st_mode
        os.chmod(door, 0)
        state = store.seal(ID)
        assert state.phase is CheckpointPhase.NOT_YET
        assert "Permission denied" in state.reasons[0]
        assert "python" not in state.reasons[0]  # it is the door that is closed
        os.chmod(door, mode)
    # Nobody may not be able to start an interpreter of ours, which reading a save takes.
    assert store.seal(ID).phase is CheckpointPhase.COMPLETED
    if closed == ".":
        os.chmod(door, 0)
        with pytest.raises(NotRestorable) as refused:
            store.make_view(2, ID)
        assert refused.value.not_yet


@pytest.mark.parametrize("closed", ["saves", "seals", "deleted", "."])
def test_a_closed_store_is_unreadable(open_folder, closed):
    with nobody():
        store = new_store(os.path.join(open_folder, "c"))
        write_save(store)
        os.chmod(os.path.normpath(os.path.join(open_folder, "c", closed)), 0)
        assert isinstance(store.scan(), Unreadable)
        assert store.retain(1) == ()


def test_a_closed_attempt_hides_nothing(open_folder):
    with nobody():
        store = new_store(os.path.join(open_folder, "c"))
        write_save(store)
    assert store.seal(ID).phase is CheckpointPhase.COMPLETED
    as_before(open_folder)
    with nobody():
        write_save(store, 2, 50)
        for attempt in ("a0001", "a0002"):
            os.chmod(os.path.join(open_folder, "c/saves", attempt), 0)
        states = store.scan()
        assert {s.attempt for s in states} == {1, 2}
        assert {s.phase for s in states} == {CheckpointPhase.NOT_YET}


def test_a_symlink_loop_is_not_yet(store):
    path = write_save(store)
    os.unlink(shard(path, 1))
    os.symlink("__1_0.distcp", shard(path, 1))
    state = store.seal(ID)
    assert state.phase is CheckpointPhase.NOT_YET
    assert "symbolic links" in state.reasons[0]
    os.unlink(path + "/__1_0.distcp")
    assert store.seal(ID).phase is CheckpointPhase.BROKEN


@pytest.mark.parametrize("at", ["iter_0000040", "attempt"])
def test_a_symlink_loop_above_the_files_is_not_yet(store, at):
    path = write_save(store)
    place = path if at == "iter_0000040" else os.path.dirname(path)
    shutil.rmtree(place)
    os.symlink(os.path.basename(place), place)
    assert only(store).phase is CheckpointPhase.NOT_YET
    assert store.seal(ID).phase is CheckpointPhase.NOT_YET


def test_a_vanished_root_is_unreadable(store, tmp_path):
    write_save(store)
    store.seal(ID)
    (tmp_path / "c").rename(tmp_path / "gone")
    assert isinstance(store.scan(), Unreadable)
    assert store.seal(ID).phase is store.state(ID).phase is CheckpointPhase.NOT_YET
    with pytest.raises(NotRestorable) as refused:
        store.make_view(2, ID)
    assert refused.value.not_yet
    assert store.retain(1) == ()
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("folder", ["saves", "seals", "deleted"])
def test_a_store_that_has_lost_a_folder_is_not_published_as_empty(store, tmp_path, folder):
    write_save(store)
    store.seal(ID)
    (tmp_path / "c" / folder).rename(tmp_path / folder)
    assert isinstance(store.scan(), Unreadable)
    assert store.seal("a0001-i0000060").phase is CheckpointPhase.NOT_YET
    assert store.latest() == ID


@pytest.mark.parametrize("moment", ["before content", "after content"])
@pytest.mark.parametrize(
    "change",
    [
        lambda p: put(p, "__0_0.distcp", b"y" * os.path.getsize(shard(p, 0))),
        lambda p: put(p, "late.pt"),
        lambda p: os.unlink(shard(p, 0)),
    ],
)
def test_a_save_that_changes_while_it_is_read_is_not_yet(tmp_path, moment, change):
    changes = []

    def step(name):
        if name == moment and not changes:
            changes.append(name)
            change(path)

    store = new_store(tmp_path / "c", step=step)
    path = write_save(store)
    assert store.seal(ID).phase is CheckpointPhase.NOT_YET
    assert changes
    assert only(store).phase is CheckpointPhase.FRAMEWORK_DONE


def test_files_missing_just_after_the_seal_may_be_a_lagging_cache(tmp_path):
    clock = Now()
    store = new_store(tmp_path / "c", clock=clock)
    path = write_save(store)
    store.seal(ID)
    os.rename(shard(path, 0), shard(path, 9))
    assert only(store).phase is CheckpointPhase.NOT_YET
    clock.at += 120
    assert only(store).phase is CheckpointPhase.BROKEN
    os.rename(shard(path, 9), shard(path, 0))
    assert only(store).phase is CheckpointPhase.COMPLETED


def test_only_plain_files_are_read(tmp_path):
    (tmp_path / "plain").write_bytes(b"12345")
    os.symlink("plain", tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    assert read_bounded(str(tmp_path / "plain"), 5) == b"12345"
    for name, limit in (("link", 5), ("pipe", 5), (".", 5), ("plain", 4)):
        with pytest.raises(OSError, match=r"symbolic link|regular|directory|more than"):
            read_bounded(str(tmp_path / name), limit)


def test_a_save_that_can_not_be_removed_is_no_longer_taken_for_whole(open_folder):
    with nobody():
        store = new_store(os.path.join(open_folder, "c"))
        path = write_save(store)
        write_save(store, 1, 50)
    for step in (40, 50):
        assert store.seal(f"a0001-i00000{step}").phase is CheckpointPhase.COMPLETED
    as_before(open_folder)
    with nobody():
        os.chmod(os.path.join(path, "relight"), 0)
        assert store.retain(1) == (ID,)
        assert not os.path.exists(os.path.join(path, ".metadata"))
        assert [s.id for s in store.scan()] == ["a0001-i0000050"]
        assert store.pending_deletions() == (ID,)
        os.chmod(os.path.join(path, "relight"), 0o700)
        assert store.retain(1) == ()
        assert store.pending_deletions() == ()
        assert not os.path.exists(path)
