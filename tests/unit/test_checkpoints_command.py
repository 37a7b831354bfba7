"""`relight checkpoints list|show|seal|pin|unpin|prune`: what they print, what they change, and their exit codes."""

import json
import os
import time
from pathlib import Path

import pytest
from storeruns import a_run, relight, sealed
from test_store_good import finish, new_store, write_save

from policies.history import Choice, History, Intent
from supervisor.actions import Archive, Restore
from supervisor.commands.checkpoints.prune import needs
from supervisor.journal.lease import Lease

__all__ = ["relight"]


@pytest.fixture
def run(tmp_path):
    return a_run(tmp_path)


def rows(out):
    return {line.split()[0]: line for line in out.splitlines()[1:] if line.startswith("a0")}


def test_list_tells_every_save_newest_first(relight, run):
    store = sealed(run, 10, 20)
    torn = write_save(store, 1, 30)
    os.truncate(os.path.join(torn, "__2_0.distcp"), 10)
    store.seal("a0001-i0000030")
    store.abandon("a0001-i0000035", "its attempt was fenced")
    store.begin("a0002-i0000040")
    store.pin("a0001-i0000010", "before the new data", "li.wei@login1")
    code, out, err = relight("checkpoints", "list", "demo")
    assert (code, err) == (0, "")
    assert out.startswith("demo: 2 completed, 1 in progress, 1 broken, 1 abandoned; latest a0001-i0000020; ")
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        "a0002-i0000040", "a0001-i0000035", "a0001-i0000030", "a0001-i0000020", "a0001-i0000010",
    ]  # fmt: skip
    told = rows(out)
    assert "in progress for " in told["a0002-i0000040"]
    assert told["a0001-i0000035"].endswith("abandoned: its attempt was fenced")
    assert "broken: '__2_0.distcp' of rank 2 has 10 bytes" in told["a0001-i0000030"]
    assert told["a0001-i0000020"].endswith("completed; latest")
    assert told["a0001-i0000010"].endswith("completed; pinned by li.wei@login1: before the new data")


def test_list_for_programs(relight, run):
    store = sealed(run, 10, 20, 30)
    store.pin("a0001-i0000020", "why", "who")
    store.retain(1)
    code, out, _ = relight("checkpoints", "list", run.root, "--json")
    answer = json.loads(out)
    assert (code, answer["schema"], answer["run"], answer["latest"]) == (0, 1, "demo", "a0001-i0000030")
    assert [(s["id"], s["phase"], s["pinned"]) for s in answer["saves"]] == [
        ("a0001-i0000030", "completed", False),
        ("a0001-i0000020", "completed", True),
    ]
    assert (answer["saves"][1]["pin"]["why"], answer["saves"][1]["pin"]["who"]) == ("why", "who")
    assert [(one["id"], one["pending"]) for one in answer["deleted"]] == [("a0001-i0000010", False)]
    assert (answer["running"], answer["planned"], answer["archive"]) == ({"attempt": 1, "checkpoint": None}, None, None)
    code, out, _ = relight("checkpoints", "list", "demo")
    assert "1 save deleted: a0001-i0000010. All of them: --all" in out
    code, out, _ = relight("checkpoints", "list", "demo", "--all")
    assert rows(out)["a0001-i0000010"].endswith("deleted")


def test_how_long_a_save_has_been_in_progress_is_counted_from_its_mark(relight, run):
    sealed(run).begin("a0002-i0000040")
    mark = Path(run.path("checkpoints", "seals", "a0002-i0000040", "IN_PROGRESS"))
    assert relight("checkpoints", "list", "demo")[1].count("in progress for 0 s: ") == 1  # by a clock that is ahead
    begun = time.time() - 250
    mark.write_text(json.dumps({"schema": 1, "id": "a0002-i0000040", "began_at": begun}))
    assert "in progress for 4 min 1" in relight("checkpoints", "list", "demo")[1]
    (save,) = json.loads(relight("checkpoints", "list", "demo", "--json")[1])["saves"]
    assert save["began_at"] == begun
    mark.write_text("{")  # then nobody knows for how long
    assert "  in progress: no .metadata yet" in relight("checkpoints", "list", "demo")[1]


def test_a_store_that_is_away_is_never_an_empty_list(relight, run):
    code, out, err = relight("checkpoints", "list", "demo")
    assert (code, out) == (3, "")
    assert err.startswith("relight: demo: the checkpoint store can't be read now: ")
    sealed(run, 10, 20)
    os.rename(run.path("checkpoints", "seals"), run.path("checkpoints", "away"))
    for words in (["list", "demo"], ["prune", "demo", "--keep", "1"], ["show", "demo", "a0001-i0000010"]):
        assert relight("checkpoints", *words)[0] == 3
    os.rename(run.path("checkpoints", "away"), run.path("checkpoints", "seals"))
    assert len(json.loads(relight("checkpoints", "list", "demo", "--json")[1])["saves"]) == 2


def test_what_is_hostile_in_a_reason_does_not_reach_the_terminal(relight, run):
    sealed(run).abandon("a0001-i0000010", "\x1b[2Jgone\x07")
    assert "\x1b" not in relight("checkpoints", "list", "demo")[1]


def test_show_one_save(relight, run):
    sealed(run, 10)
    code, out, _ = relight("checkpoints", "show", "demo", "a0001-i0000010")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "a0001-i0000010: completed"
    assert "Counters: iteration 10, samples 80, updates 9, skipped 1, learning rate 0.0012, data v1" in lines
    assert any(line.startswith("Manifest: ") and line.endswith(" in 5 files, of 4 ranks") for line in lines)
    assert any(line.startswith("Check sidecars: 4 of 4 agree") for line in lines)
    code, out, _ = relight("checkpoints", "show", "demo", "a0001-i0000010", "--json")
    answer = json.loads(out)
    with open(run.path("checkpoints/seals/a0001-i0000010/manifest.json"), encoding="utf-8") as file:
        assert answer["manifest"] == json.load(file)
    assert answer["save"]["origin"] == "saved"


def test_show_a_broken_one_has_all_reasons(relight, run):
    store = sealed(run, 10)
    store.condemn("a0001-i0000010", "SUM __0_0.distcp: it rotted", "SUM __1_0.distcp: it too")
    code, out, _ = relight("checkpoints", "show", "demo", "a0001-i0000010")
    assert code == 0
    assert out.splitlines()[:2] == ["a0001-i0000010: broken: SUM __0_0.distcp: it rotted", "  SUM __1_0.distcp: it too"]
    assert "Counters: iteration 10" in out  # what was sealed is still told


def test_show_of_a_path_is_what_it_was(relight, run):
    sealed(run, 10)
    path = run.path("checkpoints/saves/a0001/iter_0000010")
    code, out, _ = relight("checkpoints", "show", path)
    assert code == 0
    assert out.startswith("HOLDS 5 tensors")
    relight("checkpoints", "spec", "--from", path, "-o", "spec.json")
    assert relight("checkpoints", "show", "demo", "a0001-i0000010", "--spec", "spec.json")[0] == 0
    code, _, err = relight("checkpoints", "show", path, "--json")
    assert (code, err.startswith("relight: --json is only there with --spec, or with RUN ID")) == (2, True)


@pytest.mark.parametrize("command", ["show", "seal", "pin"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("a1-i1", "'a1-i1' is not the id of a save, such as a0003-i0000040"),
        ("a0009-i0000009", "a0009-i0000009: there is no such save. See: relight checkpoints list demo"),
        ("a0001-i0000010", "a0001-i0000010: was deleted. See: relight checkpoints list demo"),
    ],
)
def test_a_save_that_is_not_there_is_one_line(relight, run, command, given, told):
    sealed(run, 10, 20).retain(1)
    why = ["--why", "w"] if command == "pin" else []
    code, out, err = relight("checkpoints", command, "demo", given, *why)
    assert (code, out, err) == (2, "", f"relight: {told}\n")


def test_a_run_that_is_not_there_is_one_line(relight):
    for words in (["list", "no"], ["show", "no", "a0001-i0000010"], ["seal", "no", "a0001-i0000010"], ["prune", "no"]):
        code, _, err = relight("checkpoints", *words)
        assert code == 2
        assert err.count("\n") == 1
        assert "no run of relight is here" in err


def test_seal_ends_with_the_verdict(relight, run):
    store = new_store(run.path("checkpoints"))
    write_save(store, 1, 10)
    code, out, err = relight("checkpoints", "seal", "demo", "a0001-i0000010")
    assert (code, out, err) == (0, "a0001-i0000010: completed\n", "")
    assert store.latest() == "a0001-i0000010"
    torn = write_save(store, 1, 20)
    os.truncate(os.path.join(torn, "__2_0.distcp"), 10)
    assert relight("checkpoints", "seal", "demo", "a0001-i0000020")[0] == 3  # written a moment ago: it may still come
    old(run, 1, 20)
    code, out, _ = relight("checkpoints", "seal", "demo", "a0001-i0000020")
    assert (code, out.startswith("a0001-i0000020: broken: '__2_0.distcp' of rank 2 has 10 bytes")) == (1, True)
    path = write_save(store, 1, 30, metadata=False)
    code, out, _ = relight("checkpoints", "seal", "demo", "a0001-i0000030")
    assert (code, out) == (3, "a0001-i0000030: in progress: no .metadata yet\n")
    finish(path)
    old(run, 1, 30)
    assert relight("checkpoints", "seal", "demo", "a0001-i0000030")[0] == 0


def old(run, attempt, step):
    """As if it had been written an hour ago."""
    folder = run.path("checkpoints/saves", f"a{attempt:04d}", f"iter_{step:07d}")
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        at = os.stat(path).st_mtime - 3600
        os.utime(path, (at, at))


def test_pin_and_unpin(relight, run):
    store = sealed(run, 10, 20, 30)
    code, out, err = relight("checkpoints", "pin", "demo", "a0001-i0000010", "--why", "the last with the old data")
    assert (code, err) == (0, "")
    assert out.endswith(": the last with the old data\n")
    assert "pinned by " in out
    code, out, _ = relight("checkpoints", "pin", "demo", "a0001-i0000010", "--why", "once more")
    assert (code, out.startswith("a0001-i0000010: was pinned by "), "old data" in out) == (0, True, True)
    assert store.retain(1) == ("a0001-i0000020",)
    assert relight("checkpoints", "unpin", "demo", "a0001-i0000010")[:2] == (0, "a0001-i0000010: unpinned\n")
    assert relight("checkpoints", "unpin", "demo", "a0001-i0000010")[:2] == (1, "a0001-i0000010: was not pinned\n")
    assert store.retain(1) == ("a0001-i0000010",)


@pytest.mark.parametrize("why", ["", "  ", "x" * 501])
def test_a_pin_says_why(relight, run, why):
    sealed(run, 10)
    code, _, err = relight("checkpoints", "pin", "demo", "a0001-i0000010", "--why", why)
    assert (code, err) == (2, "relight: --why: say it in 1 to 500 characters\n")
    assert os.listdir(run.path("checkpoints/pins")) == []


def test_prune_says_what_goes_and_why_the_others_stay(relight, run):
    store = sealed(run, 10, 20, 30, 40, 50)
    store.pin("a0001-i0000020", "why", "who")
    store.begin("a0001-i0000060")
    code, out, _ = relight("checkpoints", "prune", "demo", "--keep", "2", "--dry-run")
    assert code == 0
    lines = out.splitlines()
    assert lines[:6] == [
        "a0001-i0000060  stays: it is being written",
        "a0001-i0000050  stays: one of the newest 2 completed ones",
        "a0001-i0000040  stays: one of the newest 2 completed ones",
        "a0001-i0000030  would go",
        "a0001-i0000020  stays: pinned",
        "a0001-i0000010  would go",
    ]
    assert lines[6].startswith("2 saves would go, ")
    assert len(store.scan()) == 6
    code, out, _ = relight("checkpoints", "prune", "demo", "--keep", "2")
    assert (code, "2 saves deleted" in out) == (0, True)
    assert [s.id for s in store.scan()] == [f"a0001-i{n:07d}" for n in (20, 40, 50, 60)]
    assert relight("checkpoints", "prune", "demo", "--keep", "2")[1].endswith("Nothing to delete.\n")
    assert relight("checkpoints", "prune", "demo", "--keep", "0")[0] == 2


def test_without_a_number_prune_keeps_as_many_as_the_profile(relight, run):
    store = sealed(run, 10, 20, 30, 40)
    relight("checkpoints", "prune", "demo")
    assert [s.step for s in store.scan()] == [20, 30, 40]


def restarted(at=40):
    """Attempt 2 runs, from the save at step 40; newer ones were made since."""
    from builders import training

    scene = training(save_at=at)
    scene.lose("n1")
    scene.die(1)
    for _ in range(40):
        scene.wait(5)
        scene.settle()
        if scene.history.attempt.number == 2:
            return scene
    raise AssertionError("it never restarted")


def test_what_the_running_attempt_was_started_from_stays(relight, tmp_path):
    run = a_run(tmp_path, restarted())
    store = sealed(run, 30, 40)
    for step in (50, 60):
        write_save(store, 2, step)
        store.seal(f"a0002-i{step:07d}")
    code, out, _ = relight("checkpoints", "prune", "demo", "--keep", "1")
    assert code == 0
    assert "a0001-i0000040  stays: attempt 2 was started from it" in out
    assert [s.id for s in store.scan()] == ["a0001-i0000040", "a0002-i0000060"]
    code, out, _ = relight("checkpoints", "list", "demo")
    assert "completed; attempt 2 runs from it" in rows(out)["a0001-i0000040"]


def test_in_an_open_incident_with_a_controller_alive_nothing_is_deleted(relight, tmp_path):
    scene = restarted()
    assert scene.history.incident is not None
    run = a_run(tmp_path, scene)
    store = sealed(run, 10, 20, 30, 40)
    assert relight("checkpoints", "prune", "demo", "--keep", "1", "--dry-run")[0] == 0
    Lease(run.path("lease"), time.time())
    code, out, err = relight("checkpoints", "prune", "demo", "--keep", "1")
    assert (code, out) == (3, "")
    assert "incident 1 is open, and its plan may need any of them: nothing is deleted" in err
    assert len(store.scan()) == 4


@pytest.mark.parametrize("name", ["list", "show", "seal", "pin", "unpin", "prune", "spec"])
def test_each_has_examples_and_tells_its_exit_codes(relight, name):
    code, out, _ = relight("checkpoints", name, "--help")
    assert code == 0
    assert "Examples:" in out
    assert f"relight checkpoints {name}" in out


def test_what_is_being_copied_or_brought_back_stays_too():
    moving = {
        "archive:a0001-i0000010": Intent("archive:a0001-i0000010", 1.0, 1, action=Archive("a0001-i0000010")),
        "restore:a0001-i0000020": Intent("restore:a0001-i0000020", 1.0, 1, action=Restore("a0001-i0000020")),
    }
    found = needs(History(intents=moving, choice=Choice(checkpoint="a0001-i0000030")))
    assert sorted(found) == ["a0001-i0000010", "a0001-i0000020", "a0001-i0000030"]
    assert found["a0001-i0000010"] == "it is being copied, or brought back from the archive"
    assert found["a0001-i0000030"] == "a person chose it for the plan"
