"""`relight checkpoints recover`: a run of which nothing is left goes on from its archive."""

import os
import shutil

import pytest
from archivecases import data_of, flipped
from storeruns import a_run, relight, sealed

from policies.facts import CheckpointPhase
from supervisor.journal.journal import Journal
from supervisor.rundir import RunDir
from supervisor.settings import frozen
from supervisor.stores import archive_of, open_store

__all__ = ["relight"]
ID = "a0001-i0000020"


@pytest.fixture
def place(tmp_path):
    return tmp_path / "archive"


@pytest.fixture
def run(tmp_path, place):
    return a_run(tmp_path, archive={"place": str(place)})


def test_a_run_of_which_nothing_is_left(relight, run, place):
    store = sealed(run, 10, 20)
    good = data_of(store.place(ID).data)
    assert relight("checkpoints", "archive", "demo", "--make")[0] == 0
    before, settings = journal_of(run), frozen(run.root)
    assert before
    shutil.rmtree(os.path.dirname(run.root))
    code, out, err = relight("checkpoints", "recover", str(place), "demo")
    assert (code, err) == (0, "")
    assert "Copies in the archive: 1; newest a0001-i0000020" in out
    assert journal_of(run) == before
    assert frozen(run.root) == settings
    back = open_store(RunDir(run.root), settings)
    assert back.scan() == ()  # marks without their data are no saves
    archive_of(settings, back).restore(ID)
    assert data_of(back.make_view(9, ID) + "/iter_0000020") == good
    journal, _ = Journal.begin(run.journal, lambda: 1e9, "h", 1)
    assert journal.epoch == 2
    journal.close()
    code, out, err = relight("checkpoints", "recover", str(place), "demo")
    assert code == 2
    assert "; give an empty folder" in err


def journal_of(run):
    return {name: open_bytes(os.path.join(run.journal, name)) for name in sorted(os.listdir(run.journal))}


def open_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def test_an_archive_that_is_away_is_not_now(relight, place):
    code, out, err = relight("checkpoints", "recover", str(place), "demo")
    assert (code, out) == (3, "")
    assert len(err.splitlines()) == 1
    assert not os.path.exists("relight-runs")


def test_a_journal_that_has_rotted_there_does_not_come_back(relight, run, place):
    store = sealed(run, 20)
    assert relight("checkpoints", "archive", "demo", "--make")[0] == 0
    assert store.state(ID).phase is CheckpointPhase.COMPLETED
    pieces = [p for p in (place / "demo/record/objects").rglob("@*") if b'"kind"' in p.read_bytes()]
    assert pieces
    for piece in pieces:
        piece.write_bytes(flipped(piece.read_bytes()))
    shutil.rmtree(os.path.dirname(run.root))
    code, _, err = relight("checkpoints", "recover", str(place), "demo")
    assert code == 3
    assert "missing in the archive, or damaged" in err
    assert not os.path.exists(run.root)  # no half of it


# --- a store that is lost, while the run is not --------------------------------------------------------------------


def test_the_newest_copy_comes_back_into_a_store_that_was_lost(relight, run, place):
    store = sealed(run, 10, 20)
    for one in ("a0001-i0000010", ID):
        assert relight("checkpoints", "archive", "demo", one, "--make")[0] == 0
    good = data_of(store.place(ID).data)
    shutil.rmtree(run.path("checkpoints"))
    code, out, err = relight("checkpoints", "restore", "demo")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "if it is lost for good, --make makes an empty one" in err
    assert not os.path.exists(run.path("checkpoints"))
    code, out, err = relight("checkpoints", "restore", "demo", "--make")
    assert (code, err) == (0, "")
    assert out.startswith(f"{ID}: completed, ")
    assert data_of(store.place(ID).data) == good
    assert relight("checkpoints", "restore", "demo", "a0001-i0000010")[0] == 0
    assert [s.id for s in store.scan()] == ["a0001-i0000010", ID]
    assert relight("checkpoints", "restore", "demo", ID)[0] == 0


def test_what_can_not_be_restored_is_one_line(relight, run, place, tmp_path):
    sealed(run, 20)
    code, _, err = relight("checkpoints", "restore", "demo")
    assert (code, err.count("\n"), "the archive can't be read now" in err) == (3, 1, True)
    assert relight("checkpoints", "archive", "demo", "--make")[0] == 0
    code, out, err = relight("checkpoints", "restore", "demo", "a0001-i0000010")
    assert (code, out, err) == (1, "a0001-i0000010: not restored: the archive has no copy of a0001-i0000010\n", "")
    assert relight("checkpoints", "restore", "demo", "newest")[0] == 2
    os.unlink(place / f".bulk/demo/saves/{ID}/__1_0.distcp")
    code, _, err = relight("checkpoints", "restore", "demo")
    assert (code, "no copy in the archive is whole" in err) == (1, True)
    code, out, _ = relight("checkpoints", "restore", "demo", ID)
    assert (code, "is missing in the archive" in out) == (1, True)


@pytest.mark.parametrize("name", ["restore", "recover"])
def test_each_has_examples_and_tells_its_exit_codes(relight, name):
    code, out, _ = relight("checkpoints", name, "--help")
    assert (code, "Examples:" in out, "Exit codes: " in out) == (0, True, True)
