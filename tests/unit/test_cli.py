"""The command line: what it says, which code it ends with, and that a mistake is one line."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from builders import APPROVE, Scene, training

from policies.decisions import Continue, Wait
from policies.reasons import Reason
from supervisor.cli import COMMANDS, main
from supervisor.journal import requests
from supervisor.journal.entries import Ended
from supervisor.journal.journal import Journal
from supervisor.rundir import RunDir
from supervisor.settings import Settings, freeze
from supervisor.telling.status import status_json

HERE = [name for name, (module, _) in COMMANDS.items() if find_spec(module) is not None]


@pytest.fixture
def relight(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Run the command line in this process, in an empty folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["relight", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


def journaled(tmp_path: Path, scene: Scene) -> str:
    """The run directory of a story, as its controller would have left it."""
    run = RunDir(str(tmp_path / "relight-runs" / "demo"))
    run.create()
    freeze(run.root, Settings.model_validate({"run": {"name": "demo"}, "layout": {"dp": 3}, "cluster": {"spares": 1}}))
    journal, _ = Journal.begin(run.journal, lambda: scene.stamped[0].at, "h", 1)
    for one in scene.stamped[1:]:
        journal.append([one.entry], one.at)
    journal.close()
    return run.root


def test_all_commands_are_here() -> None:
    assert list(COMMANDS) == HERE


@pytest.mark.parametrize("name", HERE)
def test_each_command_explains_itself_with_an_example(name: str, relight) -> None:
    code, out, err = relight(name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: relight {name}")
    assert f"  relight {name}" in out.split("Example")[1]


def test_the_list_of_commands_says_what_they_say(relight) -> None:
    code, out, _ = relight("--help")
    assert code == 0
    for name, (_, text) in COMMANDS.items():
        assert f"  {name}  " in out
        assert text in " ".join(out.split())
    assert "Exit codes:" in out


def test_no_command_is_bad_usage_and_shows_the_list(relight) -> None:
    code, out, err = relight()
    assert (code, out) == (2, "")
    assert err.startswith("Usage: relight")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nosuch"], "relight: No such command 'nosuch'. See: relight --help"),
        (["stauts"], "relight: No such command 'stauts'. Did you mean status? See: relight --help"),
        (
            ["stop", "x", "--next-jobb"],
            "relight: No such option '--next-jobb'. Did you mean '--next-job'? See: relight stop --help",
        ),
        (["status"], "relight: no run is below ./relight-runs. Give a run's directory: relight status DIR"),
        (["status", "--jsn", "x"], "relight: No such option"),
        (["approve", "x"], "relight: Missing option '--plan'. See: relight approve --help"),
        (["run"], "relight: no command: give it after --, or as `command` in relight.toml"),
        (
            ["run", "--cluster", "pbs", "--", "true"],
            "relight: Invalid value for '--cluster': 'pbs' is not one of 'local', 'slurm'.",
        ),
        (["run", "--config", "none.toml", "--", "true"], "relight: none.toml: there is no such file"),
        (["run", "--profile", "atuo", "--", "true"], "relight: profile atuo: not known; these ship: "),
        (["explain", "x", "two"], "relight: Invalid value for '[INCIDENT]': 'two' is not a valid integer."),
        (["approve", "x", "--plan", "xyz"], "relight: --plan xyz: a plan's id is of the digits 0-9 and a-f."),
        (["unbar", "x"], "relight: Missing argument 'NODE...'. See: relight unbar --help"),
        (["unbar", "x", "n[1"], "relight: NODE: brackets in 'n[1'. Wanted a name, or names as Slurm prints them"),
    ],
)
def test_a_mistake_is_one_line_and_ends_with_2(args: list[str], said: str, relight) -> None:
    code, out, err = relight(*args)
    assert (code, out) == (2, "")
    assert err.startswith(said)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ["status", "x"],
        ["explain", "x"],
        ["plan", "x"],
        ["approve", "x", "--plan", "abcdef"],
        ["refuse", "x", "--plan", "abcdef"],
        ["pause", "x"],
        ["resume", "x"],
        ["halt", "x"],
        ["unbar", "x", "n[1-2]"],
    ],
    ids=lambda a: a[0],
)
def test_an_unknown_run_is_one_line(args: list[str], relight, tmp_path: Path) -> None:
    code, out, err = relight(*args)
    assert (code, out) == (2, "")
    assert (
        err
        == f"relight: {tmp_path}/x: no run of relight is here. Give a run's name or its directory; one whose job still waits has not begun\n"
    )


def test_a_mistake_in_the_settings_names_the_line(relight, tmp_path: Path) -> None:
    (tmp_path / "relight.toml").write_text("[layout]\ntpp = 3\n")
    code, _, err = relight("run", "--", "true")
    assert (code, err) == (2, "relight: relight.toml:2: layout.tpp: there is no such setting. Did you mean tp?\n")


def test_without_a_controller_a_status_is_old_news(relight, tmp_path: Path) -> None:
    root = journaled(tmp_path, training())
    for name in ("demo", root, "relight-runs/demo"):
        code, out, err = relight("status", name)
        assert (code, err) == (3, "")
        assert out.splitlines()[:2] == [
            "demo: no controller is alive.",
            f"Take over: relight run --run-dir {root}",
        ]
    code, out, _ = relight("status", "demo", "--json")
    told = json.loads(out)
    assert (code, told["schema"], told["controller_alive"]) == (3, 1, False)
    assert told["standing"] == "no controller is alive. Before: no incident is open."


def test_nodes_to_be_unbarred_are_filed_one_by_one(relight, tmp_path: Path) -> None:
    scene = training()
    scene.lose("n1")
    scene.settle()
    root = journaled(tmp_path, scene)
    assert relight("unbar", "demo", "n1", "n[1-1]", "--because", "repaired")[0] == 3
    assert "Filed, for the next controller to answer: unbar (" in relight("status", "demo")[1]
    filed = requests.pending(root)
    assert [(r.what, r.nodes, r.why) for r in filed] == [("unbar", ("n1", "n1"), "repaired")]


def test_a_run_that_has_just_begun_is_not_called_forsaken(relight, tmp_path: Path) -> None:
    root = Path(journaled(tmp_path, training()))
    for segment in (root / "journal").iterdir():
        segment.unlink()
    code, out, err = relight("status", "demo")
    assert (code, err) == (3, "")
    assert out.splitlines()[:2] == [
        "demo: not started yet.",
        "Nothing is in its journal yet: its controller is starting, or has ended early. Its own output says.",
    ]


def test_without_a_run_the_runs_are_listed(relight, tmp_path: Path) -> None:
    journaled(tmp_path, training())
    (tmp_path / "relight-runs" / "torn" / "journal").mkdir(parents=True)
    (tmp_path / "relight-runs" / "none").mkdir()
    code, out, err = relight("status")
    assert (code, err) == (0, "")
    first, second = out.splitlines()
    assert first == "demo: no controller is alive. Before: no incident is open."
    assert second.startswith("torn: can't be read: ")
    assert "(no settings.json)" in second
    assert [row["run"] for row in json.loads(relight("status", "--json")[1])["runs"]] == ["demo", "torn"]


def test_the_story_of_a_run_that_goes_on_counts_what_it_has_done(relight, tmp_path: Path) -> None:
    """The journal books an attempt at its end; what the open one has done is in the last view."""
    scene = training()
    root = Path(journaled(tmp_path, scene))
    unseen = relight("explain", "demo")[1]
    assert "Updates: 0 computed = 0 in the current lineage + 0 rolled back; 0 skipped." in unseen
    assert "Those of attempt 1 are not among them" in unseen
    (root / "status.json").write_text(
        json.dumps(status_json(scene.view, Continue(Reason.RUNNING, None), None, scene.now))
    )
    told = relight("explain", "demo")[1]
    assert "Updates: 45 computed = 45 in the current lineage + 0 rolled back; 0 skipped." in told
    assert "not among them" not in told
    for command in ("explain", "status"):
        books = json.loads(relight(command, "demo", "--json")[1])["ledgers"]
        assert (books["computed"], books["lineage"]) == (45, 45)


def test_a_status_says_what_will_go_wrong_if_nobody_looks(relight, tmp_path: Path) -> None:
    scene = training()
    root = Path(journaled(tmp_path, scene))
    for decision, said in (
        (Continue(Reason.NO_ROOM, None, "The store has 1 GB free"), "Look at it soon: The store has 1 GB free. See"),
        (Continue(Reason.SAVE_UNFINISHED, None, "The save of step 40"), "Look at it soon: The save of step 40. See"),
        (Continue(Reason.RUNNING, None), ""),
    ):
        (root / "status.json").write_text(json.dumps(status_json(scene.view, decision, None, scene.now)))
        out = relight("status", "demo")[1]
        assert said in out
        assert ("Look at it soon" in out) is bool(said)


def test_between_two_jobs_a_status_says_why_there_is_none(relight, tmp_path: Path) -> None:
    scene = training()
    root = Path(journaled(tmp_path, scene))
    refused = Wait(Reason.NEXT_JOB, scene.now, "sbatch: error: no")
    (root / "status.json").write_text(json.dumps(status_json(scene.view, refused, None, scene.now)))
    assert "sbatch: error" not in relight("status", "demo")[1]  # while it trains its own decision stands
    journal, _ = Journal.begin(str(root / "journal"), lambda: scene.now, "h", 2)
    journal.append([Ended("next-job")], scene.now)
    journal.close()
    assert relight("status", "demo")[1].endswith("Waiting: sbatch: error: no. See: relight runbook next-job\n")


def test_a_halted_run_is_a_negative_answer(relight, tmp_path: Path) -> None:
    scene = training()
    scene.lose("n1", "n2")
    scene.settle()
    journaled(tmp_path, scene)
    assert relight("status", "demo")[0] == 1
    code, out, _ = relight("explain", "demo", "1")
    assert code == 0
    assert "n1" in out
    assert relight("explain", "demo", "9")[0] == 2


def test_a_run_that_has_ended_is_well(relight, tmp_path: Path) -> None:
    scene = training()
    scene.finish_ranks()
    scene.settle()
    journaled(tmp_path, scene)
    assert relight("status", "demo")[0] == 0
    assert relight("plan", "demo")[0] == 3


def test_a_request_without_a_controller_waits(relight, tmp_path: Path) -> None:
    scene = training(APPROVE)
    scene.die(1)
    scene.settle()
    root = journaled(tmp_path, scene)
    digest = scene.history.decision_digest or ""
    assert relight("plan", "demo")[0] == 0
    for args in (
        ["approve", "demo", "--plan", digest[:8].upper()],
        ["pause", "demo"],
        ["halt", "demo", "--because", "x"],
    ):
        code, out, err = relight(*args)
        assert (code, err) == (3, "")
        assert out.startswith("filed; no controller of demo is alive")
    assert {r.what for r in requests.pending(root)} == {"approve", "pause", "halt"}
    approved = next(r for r in requests.pending(root) if r.what == "approve")
    assert approved.digest == digest[:8]


def test_a_damaged_journal_is_told_and_is_our_own_affair(relight, tmp_path: Path) -> None:
    root = journaled(tmp_path, training())
    segment = Path(root, "journal", "000001.jsonl")
    raw = segment.read_bytes()
    segment.write_bytes(raw.replace(b'"kind":"run-started"', b'"kind":"run-stopped"'))
    assert segment.read_bytes() != raw
    code, _, err = relight("status", "demo")
    assert code == 70
    assert "000001.jsonl:2" in err
    assert err.count("\n") == 1


def test_what_nobody_thought_of_is_not_taken_for_a_verdict(relight, tmp_path: Path) -> None:
    """A folder where the journal's segment should be: 70, not 1, which would mean halted."""
    root = journaled(tmp_path, training())
    Path(root, "journal", "000002.jsonl").mkdir()
    code, _, err = relight("status", "demo")
    assert code == 70
    assert "relight: our own fault: IsADirectoryError" in err


def test_a_changed_layout_is_refused(relight, tmp_path: Path) -> None:
    root = journaled(tmp_path, training())
    (tmp_path / "relight.toml").write_text('[run]\nname = "demo"\n[layout]\ndp = 4\n')
    code, _, err = relight("run", "--profile", "bench", "--", "true")
    assert code == 2
    assert err.startswith("relight: layout has changed since this run began (dp 3 -> 4)")
    assert not Path(root, "lease").exists()


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; sys.argv = ['relight', '--help']\n"
        "from supervisor.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'structlog', 'rich', 'asyncio'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_it_is_a_module_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "supervisor", "--version"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.startswith("relight, version ")
