"""`relight checkpoints archive|adopt`, and what `list` and `show` tell of copies in an archive and of adopted saves."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from storeruns import a_run, relight, sealed
from test_store_good import new_store, write_save

from policies.facts import CheckpointPhase
from policies.ladder import climb
from supervisor.rundir import RunDir
from supervisor.settings import frozen
from supervisor.stores import archive_of, open_store

__all__ = ["relight"]


@pytest.fixture
def place(tmp_path):
    return tmp_path / "archive"


@pytest.fixture
def run(tmp_path, place):
    return a_run(tmp_path, archive={"place": str(place)})


def files_below(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file()]


def test_the_newest_is_copied_and_told_everywhere(relight, run, place):
    sealed(run, 10, 20)
    code, out, err = relight("checkpoints", "archive", "demo", "--make")
    assert (code, err) == (0, "")
    assert out.startswith(f"a0001-i0000020: in the archive {place}, ")
    assert "Record of the run: " in out
    code, out, _ = relight("checkpoints", "list", "demo")
    assert code == 0
    told = {line.split()[0]: line for line in out.splitlines()}
    assert "; archived " in told["a0001-i0000020"]
    assert "archived" not in told["a0001-i0000010"]
    assert out.splitlines()[-1] == f"Archive {place}: 1 save, the newest a0001-i0000020."
    answer = json.loads(relight("checkpoints", "list", "demo", "--json")[1])
    assert [s["id"] for s in answer["archive"]["saves"]] == ["a0001-i0000020"]
    assert answer["saves"][0]["archive"] == str(place)
    code, out, _ = relight("checkpoints", "show", "demo", "a0001-i0000020")
    assert "Archive: completed, " in out
    code, out, _ = relight("checkpoints", "archive", "demo", "a0001-i0000020")
    assert (code, out.splitlines()[0].startswith("a0001-i0000020: in the archive")) == (0, True)


def test_one_that_is_only_in_the_archive_is_listed_too(relight, run):
    store = sealed(run, 10, 20)
    relight("checkpoints", "archive", "demo", "a0001-i0000010", "--make")
    store.retain(1)
    code, out, _ = relight("checkpoints", "list", "demo")
    assert code == 0
    assert "a0001-i0000010" in out.splitlines()[2]
    assert "in the archive only: completed" in out.splitlines()[2]


def test_what_came_back_is_told_as_restored(relight, run):
    store = sealed(run, 10, 20)
    relight("checkpoints", "archive", "demo", "a0001-i0000010", "--make")
    store.retain(1)
    settings = frozen(run.root)
    opened = open_store(run, settings)
    archive_of(settings, opened).restore("a0001-i0000010")
    code, out, _ = relight("checkpoints", "list", "demo")
    assert code == 0
    assert "completed; archived" in out.splitlines()[2]
    assert "restored from the archive" in out.splitlines()[2]
    (told,) = (s for s in json.loads(relight("checkpoints", "list", "demo", "--json")[1])["saves"] if s["step"] == 10)
    assert (told["origin"], told["archive"]) == ("restored", settings.archive.place)
    assert told["archived_at"] is not None
    code, out, _ = relight("checkpoints", "show", "demo", "a0001-i0000010")
    assert (code, "Counters: iteration 10, " in out) == (0, True)
    assert f"Data: {run.path('checkpoints')}/restored/a0001-i0000010.1/iter_0000010" in out


def test_what_is_whole_is_not_brought_back(relight, run):
    store = sealed(run, 10, 20)
    relight("checkpoints", "archive", "demo", "a0001-i0000010", "--make")
    code, out, err = relight("checkpoints", "restore", "demo", "a0001-i0000010")
    assert (code, err) == (0, "")
    assert out.startswith("a0001-i0000010: nothing to bring back: it is whole, ")
    store.retain(1)
    code, out, _ = relight("checkpoints", "restore", "demo", "a0001-i0000010")
    assert (code, out.startswith("a0001-i0000010: completed, ")) == (0, True)
    assert "nothing to bring back: it is whole" in relight("checkpoints", "restore", "demo", "a0001-i0000010")[1]


def test_a_store_is_no_save_and_one_of_its_saves_is_named(relight, run):
    sealed(run, 10, 20)
    place = run.path("checkpoints")
    code, out, err = relight("verify", place)
    assert (code, out) == (2, "")
    assert f"Give one of its saves: {place}/saves/a0001/iter_0000020" in err
    code, _, _ = relight("verify", f"{place}/saves/a0001/iter_0000020")
    assert code in {0, 1}  # it is looked at


def test_an_archive_that_is_away_is_said_and_is_not_an_empty_one(relight, run, place):
    sealed(run, 10)
    relight("checkpoints", "archive", "demo", "--make")
    os.rename(place, f"{place}.away")
    code, out, err = relight("checkpoints", "list", "demo")
    assert (code, err) == (3, "")
    assert f"Archive {place}: it can't be read now: " in out
    assert "a0001-i0000010" in out
    answer = json.loads(relight("checkpoints", "list", "demo", "--json")[1])
    assert (answer["archive"]["known"], answer["archive"]["saves"]) == (False, [])
    assert answer["archive"]["why"]
    code, _, err = relight("checkpoints", "archive", "demo")
    assert (code, err.count("\n"), err.startswith("relight: a0001-i0000010 is not in the archive")) == (3, 1, True)
    assert not os.path.exists(place)


def test_an_archive_that_can_not_be_opened_here_hides_no_saves(relight, tmp_path):
    sealed(a_run(tmp_path, archive={"place": "ftp://host/x"}), 10)
    code, out, err = relight("checkpoints", "list", "demo")
    assert (code, err) == (3, "")
    assert "completed; latest" in out
    assert "Archive ftp://host/x: it can't be read now: " in out
    code, _, err = relight("checkpoints", "archive", "demo")
    assert (code, err.count("\n")) == (2, 1)


def test_rot_is_not_archived(relight, run, place):
    sealed(run, 10)
    shard = run.path("checkpoints/saves/a0001/iter_0000010/__2_0.distcp")
    with open(shard, "r+b") as file:
        file.seek(os.path.getsize(shard) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    code, out, _ = relight("checkpoints", "archive", "demo", "--make")
    assert (code, out.startswith("a0001-i0000010: not archived: ")) == (1, True)
    assert not run_has(run, "ARCHIVED")


def run_has(run, mark):
    return os.path.exists(run.path("checkpoints/seals/a0001-i0000010", mark))


def test_only_a_completed_one_is_copied(relight, run):
    store = new_store(run.path("checkpoints"))
    store.begin("a0001-i0000010")
    code, out, err = relight("checkpoints", "archive", "demo", "--make")
    assert (code, out, err) == (3, "", "relight: demo: no save is completed yet. See: relight checkpoints list demo\n")
    write_save(store, 1, 10)
    code, out, err = relight("checkpoints", "archive", "demo", "a0001-i0000010", "--make")
    assert (code, err, out.startswith("a0001-i0000010: not archived: a0001-i0000010 is ")) == (3, "", True)


def test_a_run_without_an_archive_is_told_how_to_get_one(relight, tmp_path):
    run = a_run(tmp_path)
    sealed(run, 10)
    code, _, err = relight("checkpoints", "archive", "demo")
    assert (code, err) == (
        2,
        "relight: demo: it has no archive: [archive] place of relight.toml names one at the first start\n",
    )


# --- adopting ------------------------------------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path):
    """An iteration from before relight: no sidecars, and an hour old."""
    made = write_save(new_store(tmp_path / "elsewhere"), 1, 50, sidecars=False)
    shutil.rmtree(os.path.join(made, "relight"))
    path = tmp_path / "ckpt" / "iter_0000050"
    os.makedirs(path.parent)
    os.rename(made, path)
    for file in path.iterdir():
        os.utime(file, (time.time() - 3600, time.time() - 3600))
    return path


def test_adopt_and_see_it(relight, run, old):
    sealed(run, 10)
    code, out, err = relight("checkpoints", "adopt", "demo", str(old.parent))
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("a0000-i0000050: adopted where it lies, ")
    assert out.splitlines()[0].endswith(f": {old}")
    assert out.splitlines()[1].endswith("relight checkpoints unpin demo a0000-i0000050")
    assert out.splitlines()[2].endswith("relight checkpoints archive demo a0000-i0000050")
    code, out, _ = relight("checkpoints", "list", "demo")
    assert f"completed without sidecars; pinned by relight: adopted; adopted: {old}" in out
    assert relight("checkpoints", "archive", "demo", "a0000-i0000050", "--make")[0] == 0
    assert files_below(old)


def test_a_broken_one_is_not_adopted_and_all_reasons_are_told(relight, run, old):
    sealed(run, 10)
    os.truncate(old / "__2_0.distcp", 10)
    code, out, err = relight("checkpoints", "adopt", "demo", str(old))
    assert (code, err) == (1, "")
    assert out.startswith(f"{old}: not adopted: TRUNCATED __2_0.distcp: ")
    assert [s.id for s in open_store(run, frozen(run.root)).scan()] == ["a0001-i0000010"]


def test_what_is_no_checkpoint_is_one_line(relight, run, tmp_path):
    sealed(run, 10)
    (tmp_path / "empty").mkdir()
    for path in ("empty", "not-there"):
        code, out, err = relight("checkpoints", "adopt", "demo", path)
        assert code in {1, 3}
        assert (out + err).count("\n") == 1
        assert "not adopted" in out + err
    inside = run.path("checkpoints/saves/a0001/iter_0000010")
    assert "in this run's own store" in relight("checkpoints", "adopt", "demo", inside)[1]


def test_a_run_that_was_never_started_begins_with_what_it_adopted(relight, tmp_path, old):
    (tmp_path / "relight.toml").write_text('command = ["true"]\n[run]\nname = "fresh"\n[layout]\ntp = 2\npp = 2\n')
    code, _, err = relight("checkpoints", "adopt", "fresh", str(old))
    assert (code, "no run of relight is here" in err) == (2, True)
    code, _, err = relight("checkpoints", "adopt", "fresh", str(old), "--config", "relight.toml")
    assert (code, err) == (0, "")
    run = RunDir(str(tmp_path / "relight-runs/fresh"))
    states = open_store(run, frozen(run.root)).scan()
    assert [(s.id, s.phase) for s in states] == [("a0000-i0000050", CheckpointPhase.COMPLETED)]
    assert climb(states).checkpoint.id == "a0000-i0000050"
    code, _, err = relight("checkpoints", "adopt", "fresh", str(old), "--config", "relight.toml")
    assert (code, err) == (2, "relight: fresh: the run is there already; leave --config out\n")


def test_the_command_of_such_a_run_and_its_name(relight, tmp_path, old):
    (tmp_path / "relight.toml").write_text('[run]\nname = "fresh"\n[layout]\ntp = 2\npp = 2\n')
    given = ("checkpoints", "adopt", "fresh", str(old))
    code, _, err = relight(*given, "--", "true", "--x")
    assert (code, "a command goes with --config" in err) == (2, True)
    code, _, err = relight(*given, "--config", "relight.toml")
    assert (code, err.startswith("relight: no command: give it after --")) == (2, True)
    code, _, err = relight("checkpoints", "adopt", "other", str(old), "--config", "relight.toml", "--", "true")
    assert (code, err.startswith("relight: other: relight.toml is of the run fresh. ")) == (2, True)
    assert relight(*given, "--config", "relight.toml", "--", "true", "--x")[0] == 0
    assert frozen(str(tmp_path / "relight-runs/fresh")).command == ("true", "--x")


def test_a_store_that_vanished_is_not_made_anew_by_adopting(relight, run, old):
    code, _, err = relight("checkpoints", "adopt", "demo", str(old))
    assert (code, "the checkpoint store can't be read now" in err) == (3, True)
    assert not os.path.exists(run.path("checkpoints"))


@pytest.mark.parametrize("name", ["archive", "adopt"])
def test_each_has_examples_and_tells_its_exit_codes(relight, name):
    code, out, _ = relight("checkpoints", name, "--help")
    assert code == 0
    assert "Examples:" in out
    assert f"relight checkpoints {name}" in out
    assert "Exit codes: 0" in out
