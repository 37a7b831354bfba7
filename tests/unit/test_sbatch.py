"""`relight sbatch`: what is added to a job script, what can't be had together, and nothing of the script is changed."""

import os
import subprocess

import pytest
from click.testing import CliRunner

from slurm import sbatch
from supervisor.commands.sbatch import command
from supervisor.errors import UserError

SCRIPT = """#!/bin/bash
#SBATCH --job-name=llm500b
#SBATCH -N 640 --ntasks-per-node 8   # eight ranks a node
#SBATCH --gres=gpu:8
#SBATCH -t4-00:00:00
module load python
#SBATCH --array=1-9
relight run -- python train.py
"""


def with_line(line):
    return SCRIPT.replace("#SBATCH --gres=gpu:8\n", f"#SBATCH --gres=gpu:8\n{line}\n")


def test_options_as_sbatch_reads_them():
    found = [(one.name, one.value, one.line) for one in sbatch.options(SCRIPT)]
    assert found == [
        ("job-name", "llm500b", 2),
        ("nodes", "640", 3),
        ("ntasks-per-node", "8", 3),
        ("gres", "gpu:8", 4),
        ("time", "4-00:00:00", 5),
    ]  # and none behind the first command


def test_spares_on_top_and_a_job_that_outlives_a_node():
    asked = sbatch.ask(SCRIPT, 3)
    assert asked.words == ("--nodes=643", "--no-kill", "--requeue", "--open-mode=append", "--exclusive")
    assert (asked.nodes, asked.spares) == (640, 3)


def test_what_is_there_is_not_said_again():
    assert "--exclusive" not in sbatch.ask(with_line("#SBATCH --exclusive=user"), 1).words
    assert sbatch.ask(with_line("#SBATCH --no-kill"), 1).words.count("--no-kill") == 1


def test_a_total_of_tasks_grows_with_the_nodes():
    """With fewer tasks than nodes Slurm would give fewer nodes: the spares would be gone without a word."""
    assert "--ntasks=5144" in sbatch.ask(with_line("#SBATCH --ntasks=5120"), 3).words
    assert not [w for w in sbatch.ask(with_line("#SBATCH --ntasks=5120"), 0).words if "ntasks" in w]
    with pytest.raises(sbatch.ConflictError, match=r"line 5: --ntasks=5121 .*--ntasks-per-node"):
        sbatch.ask(with_line("#SBATCH -n 5121"), 3)


def test_the_environment_is_carried_beside_the_script_s_own():
    assert "--export=ALL,RELIGHT_PROFILE=auto" in sbatch.ask(SCRIPT, 1, {"RELIGHT_PROFILE": "auto"}).words
    own = with_line("#SBATCH --export=PATH,HOME=/h")
    assert "--export=PATH,HOME=/h,RELIGHT_PROFILE=auto" in sbatch.ask(own, 1, {"RELIGHT_PROFILE": "auto"}).words


def test_how_it_was_submitted_reaches_a_job_that_names_its_variables():
    """Without it the next job can't be submitted as this one was."""
    own = with_line("#SBATCH --export=PATH,HOME=/h")
    assert "--export=PATH,HOME=/h,RELIGHT_SBATCH" in sbatch.ask(own, 1, passed=("RELIGHT_SBATCH",)).words
    whole = sbatch.ask(with_line("#SBATCH --export=ALL,A=1"), 1, passed=("RELIGHT_SBATCH",)).words
    assert not [word for word in whole if "--export" in word]
    none = with_line("#SBATCH --export=NONE")
    assert not [word for word in sbatch.ask(none, 1, passed=("RELIGHT_SBATCH",)).words if "--export" in word]
    with pytest.raises(sbatch.ConflictError, match=r"line 5: --export=NONE: RELIGHT_PROFILE can't be given beside it"):
        sbatch.ask(none, 1, {"RELIGHT_PROFILE": "auto"})


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("#SBATCH --array=0-3", "line 5: --array: one run is one job"),
        ("#SBATCH -a 0-3", "line 5: --array"),
        ("#SBATCH --no-requeue", "line 5: --no-requeue: a run outlives its jobs"),
        ("#SBATCH -s", "line 5: --oversubscribe"),
        ("#SBATCH -H", "line 5: --hold: every job of the run would be held"),
        ("#SBATCH --gpus=5120", "line 5: --gpus: it is a total"),
        ("#SBATCH -G5120", "line 5: --gpus"),
        ("#SBATCH --open-mode=truncate", "line 5: --open-mode=truncate"),
        ("#SBATCH --no-kill=off", "line 5: --no-kill=off"),
        ("#SBATCH --nodelist=n[1-640]", "line 5: --nodelist names the nodes"),
        ("#SBATCH --nodes=600-640", "line 5: --nodes=600-640: a fixed number"),
        ("#SBATCH hetjob", "line 5: heterogeneous jobs"),
        ("#SBATCH --comment='x", "line 5: No closing quotation"),
    ],
)
def test_what_cannot_be_had_together_is_refused_with_the_line(line, told):
    with pytest.raises(sbatch.ConflictError) as error:
        sbatch.ask(with_line(line), 2)
    assert str(error.value).startswith(told)


def test_how_many_nodes_must_be_said():
    with pytest.raises(sbatch.ConflictError, match="no #SBATCH --nodes=N"):
        sbatch.ask("#!/bin/sh\nrelight run -- x\n", 1)


@pytest.mark.parametrize(
    ("line", "calls"),
    [
        ("relight run -- x", True),
        ("exec /opt/v/bin/relight  run -- x", True),
        ("python -m supervisor run -- x", True),
        ("cd a && relight run -- x", True),
        ("# relight run -- x", False),
        ("srun python train.py", False),
        ("relight running", False),
    ],
)
def test_a_script_that_calls_relight(line, calls):
    assert sbatch.calls_relight(f"#!/bin/sh\n{line}\n") is calls


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("srun relight run -- x", 2),
        ("srun -n 8 --gres=gpu:8 /opt/v/bin/relight run -- x", 2),
        ("srun python -m supervisor run -- x", 2),
        ("srun hostname; relight run -- x", None),
        ("# srun relight run -- x", None),
        ("relight run -- srun x", None),
    ],
)
def test_a_controller_on_every_node_is_refused(line, at, tmp_path):
    text = f"#!/bin/sh\n{line}\n"
    assert sbatch.as_step(text) == at
    if at:
        path = tmp_path / "job.sbatch"
        path.write_text(text.replace("sh\n", "sh\n#SBATCH --nodes=2\n", 1))
        assert "line 3: srun would start `relight run` on every node" in str(called("--dry-run", str(path)).exception)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "job.sbatch"
    path.write_text(SCRIPT)
    return str(path)


def called(*words):
    return CliRunner().invoke(command, [*words], standalone_mode=False)


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("[layout]\ndp = 640\n", ""),
        ("[layout]\ndp = 643\n", "needs 643 nodes, the script asks for 640 (spares are added"),
        ("[run\n", "relight.toml"),
    ],
)
def test_a_layout_that_the_job_does_not_fit_is_said_before_it_waits(toml, said, script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relight.toml").write_text(toml)
    told = called("--dry-run", script)
    assert told.return_value == 0
    assert [line for line in told.stderr.splitlines() if line.startswith("relight:")] == ([] if not said else [
        next(line for line in told.stderr.splitlines() if said in line)
    ])  # fmt: skip


def test_a_dry_run_shows_all_and_submits_nothing(script):
    told = called("--dry-run", "--spares", "3", script, "--seed", "7")
    assert told.return_value == 0
    *ours, rest = told.stdout.split(" ", 2)
    assert [word.partition("=")[0] for word in ours] == ["SBATCH_NO_KILL", "RELIGHT_SBATCH"]
    assert rest == f"sbatch --nodes=643 --no-kill --requeue --open-mode=append --exclusive {script} --seed 7\n"
    assert "640 nodes for the training, 3 hot spares" in told.stderr


def test_what_a_dry_run_shows_submits_the_same_when_a_shell_reads_it(script, tmp_path, monkeypatch):
    """The words, and the variables without which the job knows neither of --no-kill nor how it was submitted."""
    fake = tmp_path / "bin" / "sbatch"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$SBATCH_NO_KILL" "$RELIGHT_SBATCH" "$@" >{tmp_path}/asked\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    words = ("--profile", "auto", script, "--name", "it's $HOME")
    shown = called("--dry-run", *words).stdout
    assert not (tmp_path / "asked").exists()
    called(*words)
    submitted = (tmp_path / "asked").read_text()
    assert submitted.splitlines()[0] == "set"
    (tmp_path / "asked").unlink()
    subprocess.run(["sh", "-c", shown], check=True)
    assert (tmp_path / "asked").read_text() == submitted


def test_it_is_submitted_as_shown_and_the_script_is_as_it_was(script, tmp_path, monkeypatch):
    fake = tmp_path / "bin" / "sbatch"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\necho Submitted batch job 77\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    told = called("--profile", "auto", script)
    assert "Submitted batch job 77" in told.stdout
    assert "--export=ALL,RELIGHT_PROFILE=auto" in (tmp_path / "asked").read_text()
    with open(script, encoding="utf-8") as file:
        assert file.read() == SCRIPT
    fake.write_text("#!/bin/sh\necho sbatch: error: Invalid partition >&2\nexit 1\n")
    refused = called(script)
    assert isinstance(refused.exception, UserError)
    assert "Invalid partition" in str(refused.exception)


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ("echo\n", (), "no job script"),
        ("#!/bin/sh\n#SBATCH -N2\nsrun x\n", (), "does not call `relight run`"),
        (SCRIPT, ("--profile", "nope"), "profile nope: not known"),
        (SCRIPT, ("--spare", "3"), "--spare: relight sbatch has no such option"),
        (SCRIPT, ("-p", "debug"), "in the script: #SBATCH -p ..."),
        ("#!/bin/sh\n#SBATCH -N2 --array=1\nrelight run -- x\n", (), "line 2: --array"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, text, words, told):
    path = tmp_path / "x.sbatch"
    path.write_text(text)
    error = called(*words, "--dry-run", str(path)).exception
    assert isinstance(error, UserError)
    assert told in str(error)
    assert "\n" not in str(error)
