"""The archive where something stands in the way: room, others at the same time, names, limits of speed, lag."""

import json
import os
import threading

import pytest
from archivecases import ID, RUN, archive_of, bulk_file, data_of, flipped, look_at, lose, made, recover, sealed_store
from test_store_good import WORLD, Now, items_of, new_store, write_save

from policies.facts import CheckpointPhase
from slurm.cluster import Unreadable
from supervisor.bench.fake_saves import Chunk
from supervisor.checkpoints.archive.carrying import Carrier, no_progress
from supervisor.checkpoints.archive.looking import ArchiveLooker
from supervisor.checkpoints.archive.record import PIECE
from supervisor.checkpoints.archive.shelf import Shelf, filed
from supervisor.checkpoints.manifest import FileEntry
from supervisor.checkpoints.objects.bulk import PosixBulk
from supervisor.checkpoints.objects.posix import PosixObjects
from supervisor.checkpoints.reading.throttle import Pace
from supervisor.checkpoints.store import PosixStore
from supervisor.errors import NotRestorable, UserError

Phase = CheckpointPhase


class SmallStore(PosixStore):
    """A store with little room."""

    free = 0

    def free_bytes(self):
        return self.free


@pytest.fixture
def root(tmp_path):
    return tmp_path / "c"


@pytest.fixture
def place(tmp_path, root):
    place = tmp_path / "archive"
    made(place, sealed_store(root, ID)).copy(ID)
    return place


def test_what_does_not_fit_is_refused_before_a_byte_is_written(root, place):
    size = look_at(root).state(ID).bytes
    lose(root)
    store = SmallStore(str(root), WORLD, Now())
    store.free = size - 1
    with pytest.raises(NotRestorable, match=f"{ID} has {size} bytes, .* free 1 more") as refused:
        archive_of(place, store).restore(ID)
    assert refused.value.not_yet
    assert os.listdir(root / "restored") == []
    store.free = None
    with pytest.raises(NotRestorable, match="can't be seen"):
        archive_of(place, store).restore(ID)
    store.free = size
    archive_of(place, store).restore(ID)
    assert store.state(ID).phase is Phase.COMPLETED


def test_what_has_landed_already_needs_no_room(root, place):
    size = look_at(root).state(ID).bytes
    lose(root)
    stopped = []

    def step(name):
        if name == "after file":
            stopped.append(name)
            raise OSError(5, "the disk is away")

    with pytest.raises(OSError, match="the disk is away"):
        archive_of(place, look_at(root), step=step).restore(ID)
    there = sum(map(len, data_of(root / f"restored/{ID}.1/iter_0000040").values()))
    assert 0 < there < size
    store = SmallStore(str(root), WORLD, Now())
    store.free = size - there
    archive_of(place, store).restore(ID)
    assert os.listdir(root / "restored") == [f"{ID}.1"]


def test_a_half_copy_in_which_something_wrong_has_landed_is_given_up(root, place):
    good = data_of(look_at(root).place(ID).data)
    store = lose(root)
    folder = root / f"restored/{ID}.1/iter_0000040"
    os.makedirs(folder)
    (folder / "__1_0.distcp").write_bytes(flipped(good["__1_0.distcp"]))
    with pytest.raises(OSError, match="another copy will be begun"):
        archive_of(place, store).restore(ID)
    assert archive_of(place, store).scan()[0].phase is Phase.COMPLETED  # the archive's own copy is as good as before
    archive_of(place, store).restore(ID)
    assert data_of(store.place(ID).data) == good
    assert store.place(ID).marks.endswith(f"{ID}.2")
    store.retain(1)
    assert os.listdir(root / "restored") == [f"{ID}.2"]


def test_a_stranger_among_the_files_is_never_vouched_for(root, place):
    store = lose(root)
    folder = root / f"restored/{ID}.1/iter_0000040"
    os.makedirs(folder)
    (folder / "__9_0.distcp").write_bytes(b"x")
    with pytest.raises(OSError, match=r"'__9_0.distcp' is not as in the manifest"):
        archive_of(place, store).restore(ID)
    assert store.scan() == ()


def test_a_half_copy_of_another_manifest_is_left_alone(root, place):
    store = lose(root)
    os.makedirs(root / f"restored/{ID}.1")
    (root / f"restored/{ID}.1/manifest.json").write_text("{}")
    archive_of(place, store).restore(ID)
    assert store.place(ID).marks.endswith(f"{ID}.2")


@pytest.mark.parametrize("what", ["copy", "restore"])
def test_several_at_once_end_with_one(root, place, tmp_path, what):
    good = data_of(look_at(root).place(ID).data)
    if what == "restore":
        lose(root)
    else:
        place = tmp_path / "fresh"
        made(place, look_at(root))
    failed = []

    def work():
        archive = archive_of(place, look_at(root))
        for _ in range(20):
            try:
                getattr(archive, what)(ID)
            except OSError as error:  # what the other has finished under our hands is asked for again
                failed.append(error)
            else:
                return
        raise AssertionError(failed)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = look_at(root)
    assert archive_of(place, store).scan()[0].phase is Phase.COMPLETED
    (state,) = store.scan()
    assert (state.phase, state.archived) == (Phase.COMPLETED, True)
    assert data_of(store.place(ID).data) == good
    if what == "restore":
        whole = [n for n in os.listdir(root / "restored") if (root / f"restored/{n}/RESTORED").exists()]
        assert len(whole) == len(os.listdir(root / "restored"))


def test_a_bad_reading_is_read_again_before_a_copy_is_given_up(root, place):
    """One node with bad memory must not take the last copy away."""
    lose(root)
    path = bulk_file(place, ID, "__1_0.distcp")
    data = path.read_bytes()

    class Flaky(PosixBulk):
        wrong = True

        def copy_out(self, key, *args, **more):
            if key.endswith("__1_0.distcp") and self.wrong:
                self.wrong = False
                path.write_bytes(flipped(data))
                try:
                    return super().copy_out(key, *args, **more)
                finally:
                    path.write_bytes(data)
            return super().copy_out(key, *args, **more)

    from supervisor.checkpoints.archive import Archive

    bulk = Flaky(str(place))
    store = look_at(root)
    shelf = Shelf(str(place), RUN, PosixObjects(str(place), lag_s=0.0), bulk)
    Archive(shelf, store, Now(), lag_s=0.0, threads=1).restore(ID)
    assert not bulk.wrong
    assert store.state(ID).phase is Phase.COMPLETED


def test_what_can_not_be_seen_yet_is_not_broken(root, place):
    """Over NFS a listing may be a minute old: the copy is not judged until that has passed."""
    ticks = [0.0]
    shelf = Shelf(str(place), RUN, PosixObjects(str(place), lag_s=0.0), PosixBulk(str(place)))
    looker = ArchiveLooker(shelf, 60.0, lambda: ticks[0])
    bulk_file(place, ID, "__1_0.distcp").unlink()
    for at in (0.0, 59.0):
        ticks[0] = at
        with pytest.raises(OSError, match="not visible yet"):
            looker.scan()
    ticks[0] = 60.0
    assert [s.phase for s in looker.scan()] == [Phase.BROKEN]


def test_a_copy_that_was_well_is_listed_again_after_a_while(root, place):
    ticks = [0.0]
    shelf = Shelf(str(place), RUN, PosixObjects(str(place), lag_s=0.0), PosixBulk(str(place)))
    looker = ArchiveLooker(shelf, 0.0, lambda: ticks[0])
    assert looker.scan()[0].phase is Phase.COMPLETED
    bulk_file(place, ID, "__1_0.distcp").unlink()
    ticks[0] = 601.0
    assert looker.scan()[0].phase is Phase.BROKEN


def test_names_that_an_archive_can_not_have(tmp_path):
    store = new_store(tmp_path / "c")
    files = ["__0_0.distcp", "ünï code.distcp", "x.tmp", "name-1"]
    items = [Chunk("w", "uint8", (32,), (8 * at,), (8,), name, bytes([65 + at]) * 8) for at, name in enumerate(files)]
    write_save(store, items=[*items_of(1, 40)[WORLD:], *items], sidecars=False)
    assert store.seal(ID).phase is Phase.COMPLETED
    good = data_of(store.place(ID).data)
    made(tmp_path / "archive", store).copy(ID)
    fresh = lose(tmp_path / "c")
    archive_of(tmp_path / "archive", fresh).restore(ID)
    assert data_of(fresh.place(ID).data) == good


def test_filed_names_are_different_and_stay_what_they_are():
    names = ["a", ".metadata", "a b", "a\tb", "ä", "x.tmp", "x.tmp2", "..", ".", "name-1", "a" * 201, "b" * 255, "a/b"]
    assert len({filed(name) for name in names}) == len(names)
    assert filed(".metadata") == ".metadata"
    assert all(filed(name).startswith("name-") for name in names[2:6] + names[7:])


@pytest.mark.parametrize("run", ["", "a/b", ".x", "a b", "x" * 101])
def test_a_run_by_a_name_that_can_not_be_one_there_is_refused(root, tmp_path, run):
    from supervisor.checkpoints.archive import open_archive

    with pytest.raises(UserError, match="can't be a name in an archive"):
        open_archive(str(tmp_path), run, new_store(root), Now())


def test_two_runs_in_one_place_do_not_see_each_other(root, place, tmp_path):
    from supervisor.checkpoints.archive import open_archive

    store = new_store(tmp_path / "other")
    other = open_archive(str(place), "demo2", store, Now())
    assert isinstance(other.scan(), Unreadable)
    other.make()
    assert other.scan() == ()
    with pytest.raises(NotRestorable, match="no copy"):
        other.restore(ID)


def test_the_limit_of_speed_holds_over_all_threads_and_both_readings():
    """10 files of 1 kB, each read twice: the limit sees every byte, and progress counts each once."""

    class Counted(Pace):
        taken = 0

        def take(self, size, is_over=None):  # noqa: ARG002
            self.taken += size

    def move(name, entry, pace, within_s):
        assert within_s > 120 + 2 * entry.size / (1e3 / 4 / 2) - 1
        for _ in range(2):
            pace(entry.size)

    done, limit = [], Counted(1e3)
    files = {str(n): FileEntry(size=1000, xxh3="0" * 32) for n in range(10)}
    Carrier(4, limit, 1e3, lambda *said: done.append(said)).carry(files, move, "x")
    assert limit.taken == 20_000
    assert max(done) == (10_000, 10_000, "x")


def endless(began=None):
    def move(name, entry, pace, within_s):
        if name == "bad":
            began.wait(30)
            raise NotRestorable("rot")
        if began is not None:
            began.set()
        while True:
            pace(1)

    return move


def test_the_first_that_fails_ends_the_others():
    files = {"bad": FileEntry(size=1, xxh3="0" * 32), "good": FileEntry(size=9, xxh3="0" * 32)}
    with pytest.raises(NotRestorable, match="rot"):
        Carrier(2, Pace(1e9), 1e9, no_progress).carry(files, endless(threading.Event()), "x")


def test_the_end_of_all_reading_ends_a_copy_too():
    pace = Pace(1e9)
    pace.end()
    with pytest.raises(OSError, match="given up"):
        Carrier(2, pace, 1e9, no_progress).carry({"good": FileEntry(size=9, xxh3="0" * 32)}, endless(), "x")


def test_a_copy_keeps_to_the_pace_of_the_store_and_a_restore_does_not(root, place, tmp_path):
    """The one has ended, so that whoever goes by it is told at once."""
    store = look_at(root)
    store.reading.pace.end()
    slow = made(tmp_path / "fresh", store)
    with pytest.raises(OSError, match="given up"):
        slow.copy(ID)
    empty = PosixStore(str(tmp_path / "empty"), WORLD, Now())
    empty.reading.pace.end()
    archive_of(place, empty).restore(ID)
    assert empty.state(ID).phase is Phase.COMPLETED


def test_one_that_was_found_damaged_is_read_again_when_a_person_says_so(root, place):
    path = bulk_file(place, ID, "__1_0.distcp")
    data = path.read_bytes()
    path.write_bytes(flipped(data))
    archive = archive_of(place, lose(root))
    for again in (False, True):
        with pytest.raises(NotRestorable, match="is damaged"):
            archive.restore(ID, again=again)
        assert archive.scan()[0].phase is Phase.BROKEN
    path.write_bytes(data)  # it was this machine's memory
    with pytest.raises(NotRestorable, match="is broken"):
        archive.restore(ID)
    archive.restore(ID, again=True)
    assert look_at(root).state(ID).phase is Phase.COMPLETED
    assert archive.scan()[0].phase is Phase.COMPLETED


def test_what_an_archive_says_of_paths_is_not_believed(root, place, tmp_path):
    from supervisor.checkpoints.archive.documents import Index

    objects = PosixObjects(str(place), lag_s=0.0)
    for bad in ("../x", "/etc/x", "a/../../x", "a//b", "."):
        found = objects.get(f"{RUN}/record/index", within_s=60)
        kept = {"size": 0, "xxh3": "0" * 32, "objects": []}

        def index(name, kept=kept):
            return json.dumps({"schema": 1, "at": 1.0, "files": {name: kept}}).encode()

        assert Index.model_validate_json(index("x")).files
        data = index(bad)
        objects.put_if_version(f"{RUN}/record/index", data, found.version, within_s=60)
        with pytest.raises(OSError, match=r"no name of a file|no index of a run"):
            recover(place, tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_the_record_is_sent_in_parts_that_were_agreed(root, place, tmp_path):
    from supervisor.checkpoints.archive import Archive

    run = tmp_path / "run"
    (run / "journal").mkdir(parents=True)
    (run / "settings.json").write_text("{}")
    for number in (1, 2, 3):
        (run / f"journal/{number:06d}.jsonl").write_bytes(os.urandom(40_000))
    store = look_at(root)
    shelf = Shelf(str(place), RUN, PosixObjects(str(place), lag_s=0.0), PosixBulk(str(place)))
    archive = Archive(shelf, store, Now(), lag_s=0.0, record_most=100_000)
    first = archive.keep_record(str(run))
    assert 80_000 < first <= 100_000
    assert archive.keep_record(str(run)) >= 40_000
    assert archive.keep_record(str(run)) == 0
    assert len(recover(place, tmp_path / "back")) == 4 + 4  # journal and settings, and marks of the seal


def test_a_file_larger_than_what_one_call_sends_is_kept_by_the_calls_after_it(root, place, tmp_path):
    from supervisor.checkpoints.archive import Archive

    run = tmp_path / "run"
    (run / "journal").mkdir(parents=True)
    (run / "journal/000001.jsonl").write_bytes(os.urandom(3 * PIECE))
    shelf = Shelf(str(place), RUN, PosixObjects(str(place), lag_s=0.0), PosixBulk(str(place)))
    archive = Archive(shelf, look_at(root), Now(), lag_s=0.0, record_most=PIECE + 100_000)
    sent = [archive.keep_record(str(run)) for _ in range(4)]
    assert sent[:2] == [PIECE, PIECE]
    assert sent[3] == 0
    assert "journal/000001.jsonl" in recover(place, tmp_path / "back")


def test_another_run_of_the_same_name_is_not_mixed_in(root, place, tmp_path):
    other = archive_of(place, new_store(tmp_path / "other"))
    with pytest.raises(UserError, match=f"already has saves of a run named {RUN}"):
        other.make(fresh=True)
    archive_of(place, look_at(root)).make()  # by whoever has one, as often as wanted
    empty = archive_of(tmp_path / "fresh", look_at(root))
    empty.make(fresh=True)
    empty.make(fresh=True)
    assert empty.scan() == ()


def test_no_secret_and_nothing_of_the_moment_is_in_the_record(root, place, tmp_path):
    run = tmp_path / "run"
    (run / "incidents").mkdir(parents=True)
    for name in (
        "token",
        "lease",
        "endpoint.json",
        "status.json",
        "notify.json",
        "settings.json",
        "spec.json",
        "x.tmp",
    ):
        (run / name).write_text(name)
    (run / "link").symlink_to("/etc/passwd")
    (run / "incidents/bad\nname").write_text("x")
    archive = archive_of(place, look_at(root))
    archive.keep_record(str(run))
    names = [n for n in recover(place, tmp_path / "back") if not n.startswith("manifests/")]
    assert sorted(names) == ["settings.json", "spec.json"]


def test_rotten_pieces_are_sent_again(root, place, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "settings.json").write_text("{}")
    archive = archive_of(place, look_at(root))
    archive.keep_record(str(run))
    (piece,) = [p for p in (place / RUN / "record/objects").rglob("@*") if p.read_bytes().endswith(b"\n{}")]
    piece.write_bytes(piece.read_bytes()[:-1] + b"!")
    with pytest.raises(OSError, match="missing in the archive, or damaged"):
        recover(place, tmp_path / "back")
    (run / "spec.json").write_text("{}")
    index = place / RUN / "record/index"
    for path in sorted(index.iterdir())[1:]:
        path.unlink()  # the index of before: nothing is known to be there
    archive_of(place, look_at(root)).keep_record(str(run))
    assert "spec.json" in recover(place, tmp_path / "again")


def test_nothing_is_made_where_the_stores_file_system_is_away(place, tmp_path):
    with pytest.raises(NotRestorable, match="is not there") as refused:
        archive_of(place, PosixStore(str(tmp_path / "unmounted/run/checkpoints"), WORLD, Now())).restore(ID)
    assert refused.value.not_yet
    assert not (tmp_path / "unmounted").exists()
