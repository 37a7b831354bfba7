"""A drill fetches and reads what a recovery would, changes nothing of the run, and keeps how long each part took."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_store_good import WORLD, write_save

from policies.facts import CheckpointPhase
from slurm.cluster import Unreadable
from supervisor import drill_files
from supervisor.commands.drill import command
from supervisor.drills import fetching
from supervisor.drills.drilling import Wish, drill
from supervisor.errors import NOT_YET_EXIT, UserError
from supervisor.rundir import RunDir
from supervisor.settings import ArchiveSettings, LayoutSettings, RunSettings, Settings, freeze
from supervisor.stores import archive_of, open_store
from supervisor.telling.drills import drill_text, drills_line

SAVE = "a0001-i0000040"


@pytest.fixture
def run(tmp_path):
    """A run with one completed save, and an archive that has it too."""
    one = RunDir(str(tmp_path / "run"))
    one.create()
    settings = Settings(
        run=RunSettings(name="demo"),
        layout=LayoutSettings(dp=WORLD),
        archive=ArchiveSettings(place=str(tmp_path / "archive")),
        command=("train",),
    )
    freeze(one.root, settings)
    store = open_store(one, settings)
    store.create()
    path = write_save(store)
    for base, _, names in os.walk(path):
        for name in names:
            os.utime(os.path.join(base, name), (1.0e9, 1.0e9))
    assert store.seal(SAVE).phase is CheckpointPhase.COMPLETED
    archive = archive_of(settings, store)
    archive.make()
    archive.copy(SAVE)
    return one


def settings_of(run):
    from supervisor.settings import frozen

    return frozen(run.root)


def contents(folder):
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.parametrize("kind", ["shared", "archive"])
def test_every_byte_is_fetched_and_read_and_the_run_is_as_it_was(run, kind):
    before = contents(run.path("checkpoints"))
    said = []
    one = drill(run, settings_of(run), Wish(kind, "bytes"), said.append)
    assert (one.ok, one.checkpoint, one.number) == (True, SAVE, 1)
    assert list(one.parts) == said == ["choose", "fetch", "read"]
    assert contents(run.path("checkpoints")) == before
    assert os.listdir(run.path("drills")) == ["0001.json"]
    assert drill_files.read_all(run) == (one,)


@pytest.mark.parametrize("kind", ["shared", "archive"])
def test_rot_is_found(run, kind, tmp_path):
    where = run.path("checkpoints", "saves") if kind == "shared" else str(tmp_path / "archive")
    shard = next(
        os.path.join(base, name) for base, _, names in os.walk(where) for name in names if "__0_0.distcp" in name
        or "__0_0.distcp" in base
    )  # fmt: skip
    with open(shard, "r+b") as file:
        file.seek(-30, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    one = drill(run, settings_of(run), Wish(kind, "bytes"), lambda _: None)
    assert not one.ok
    assert "__0_0.distcp" in one.why
    assert drill_files.newest(drill_files.read_all(run), kind) is None


def test_the_scratch_place_stays_where_it_is_asked_for(run, tmp_path):
    one = drill(run, settings_of(run), Wish("shared", "bytes", scratch=str(tmp_path / "s"), keep=True), lambda _: None)
    view = tmp_path / "s" / f"drill-{one.number:04d}" / "checkpoints" / "views" / "a0001"
    assert (view / "latest_checkpointed_iteration.txt").read_text() == "40"
    assert (view / "iter_0000040" / ".metadata").read_bytes()


def test_what_is_not_there_begins_no_drill(run):
    with pytest.raises(UserError, match="no completed save a0009-i0000001"):
        drill(run, settings_of(run), Wish("shared", "bytes", "a0009-i0000001"), lambda _: None)
    bare = settings_of(run).model_copy(update={"archive": ArchiveSettings()})
    with pytest.raises(UserError, match="has no archive"):
        drill(run, bare, Wish("archive", "bytes"), lambda _: None)
    with pytest.raises(UserError, match="can't be read") as error:
        fetching.choose(Unreadable("away"), "archive", "")
    assert error.value.exit_code == NOT_YET_EXIT
    assert drill_files.read_all(run) == ()


def test_the_last_ones_show_with_age_level_and_time(run):
    assert drills_line((), 0.0) == "Drills: shared never; archive never."
    good = drill_files.Drill(
        number=1, kind="shared", level="load", checkpoint=SAVE, bytes=7, began_at=90.0, ended_at=100.0,
        parts={"fetch": 2.0, "load": 3.0}, ok=True,
    )  # fmt: skip
    bad = good.model_copy(update={"number": 2, "ok": False, "why": "it halted", "ended_at": 150.0})
    line = drills_line((good, bad), 3700.0)
    assert line == ("Drills: shared 1 h ago (level load, 5 s), failed 59 min 10 s ago: it halted; archive never.")
    assert "loading: 3 s" in drill_text(good)
    assert "failed after 5 s: it halted" in drill_text(bad)


def test_a_record_that_is_none_is_left_out(run):
    os.makedirs(run.path("drills"))
    for name, text in (("0001.json", "{}"), ("0002.json", "\xff"), ("0003.json", '{"schema": 2}')):
        with open(run.path("drills", name), "w", encoding="latin-1") as file:
            file.write(text)
    assert drill_files.read_all(run) == ()
    assert drill_files.begin(run) == 4


def test_the_command(run):
    def called(*words):
        return CliRunner().invoke(command, [*words], standalone_mode=False)

    os.makedirs(run.journal, exist_ok=True)
    told = called("archive", run.root, "--json")
    assert told.return_value == 0
    assert json.loads(told.stdout)["checkpoint"] == SAVE
    assert "reading every byte" in called("shared", run.root).stdout
    wrong = called("shared", run.root, "--checkpoint", "a0009-i0000001")
    assert isinstance(wrong.exception, UserError)
