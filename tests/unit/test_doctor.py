"""relight doctor: each check is seen to fail on a planted fault, and each trial on a machine that does not hold."""

import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.agent.stacks import find_py_spy
from supervisor.commands.doctor import command
from supervisor.doctor import machine as doctor
from supervisor.doctor.machine import (
    CHECKS,
    FolderSeen,
    Installation,
    Machine,
    NvrxSeen,
    Package,
    ProgramSeen,
    PyslurmSeen,
    SettingsSeen,
    SlurmSeen,
    SocketsSeen,
    StacksSeen,
    examine,
)
from supervisor.doctor.verdict import Check, exit_code
from supervisor.errors import UserError
from supervisor.observe import machine
from supervisor.observe.optional import look_at_nvrx, look_at_pyslurm
from supervisor.observe.programs import look_at_programs

ROOT = Path(__file__).parents[2]
COMMANDS = tuple((name, f"/usr/bin/{name}") for name in machine.SLURM_COMMANDS)
NO_COMMANDS = tuple((name, None) for name, _ in COMMANDS)
NO_CONF = "srun: fatal: Could not establish a configuration source"
FIT = Machine(
    python=(3, 11, 7),
    installation=Installation(
        "/site", "0.1.0", tuple(Package(n, f"/site/{n}", ("relight",)) for n in ("supervisor", "slurm", "policies"))
    ),
    settings=SettingsSeen("relight.toml", "", "approve", 656, warm=False),
    folder=FolderSeen("/data/runs/demo", "/data/runs", "", 1 << 40, 10**7),
    sockets=SocketsSeen("/run/user/1000/relight-1000-0123456789ab", 60, 107, ""),
    stacks=StacksSeen("/site/bin/py-spy", "", 0),
    open_files=1024,
    clock="tsc",
    torch="2.13.0+cpu",
    nvrx=NvrxSeen("0.7.0"),
    pyslurm=PyslurmSeen("25.11.1", ""),
    slurm=SlurmSeen(COMMANDS, "slurm 25.11.3"),
)


def broken(part, **fields):
    return {part: replace(getattr(FIT, part), **fields)}


PACKAGES = FIT.installation.packages
FAULTS = [
    ("python", {"python": (3, 10, 14)}),
    ("packages", broken("installation", packages=(replace(PACKAGES[0], folder="/other/supervisor"), *PACKAGES[1:]))),
    (
        "packages",
        broken("installation", packages=(replace(PACKAGES[0], owners=("relight", "supervisor")), *PACKAGES[1:])),
    ),
    ("packages", broken("installation", packages=(*PACKAGES[:2], replace(PACKAGES[2], folder=None)))),
    ("settings", broken("settings", trouble="relight.toml:3: run.nam: there is no such setting. Did you mean name?")),
    ("programs", {"programs": (ProgramSeen("notify.command", "./page-me", "there is no such file"),)}),
    ("run-directory", broken("folder", trouble="2 of 4 got the same name by an exclusive link")),
    ("room", broken("folder", free_bytes=(1 << 30) - 1)),
    ("room", broken("folder", free_files=99_999)),
    ("sockets", broken("sockets", longest=108)),
    ("sockets", broken("sockets", trouble="/run/user/1000: Permission denied")),
    ("open-files", {"open_files": 911}),
    ("py-spy", broken("stacks", path=None, trouble=None)),
    ("py-spy", broken("stacks", trouble="Permission denied", scope=1)),
    ("clock", {"clock": "hpet"}),
    ("torch", {"torch": None, **broken("settings", warm=True)}),
    ("torch", {"torch": "2.5.1", **broken("settings", warm=True)}),
    ("nvrx", broken("nvrx", version=None, python="/nvrx/bin/python", trouble="it has no nvidia-resiliency-ext")),
    ("slurm", broken("slurm", commands=(("srun", None), *COMMANDS[:3]))),
    ("slurm", broken("slurm", commands=NO_COMMANDS, wanted="job 4711")),
    ("slurm", broken("slurm", version=None, trouble=NO_CONF, wanted="job 4711")),
]
WARNINGS = [
    ("torch", {"torch": "2.5.1"}),
    ("nvrx", broken("nvrx", version="0.6.0")),
    ("slurm", {**broken("slurm", version="slurm 24.05.3"), "pyslurm": PyslurmSeen(None)}),
    ("slurm", {**broken("slurm", version=None, trouble=NO_CONF), "pyslurm": PyslurmSeen(None)}),
    ("pyslurm", broken("pyslurm", version="24.11.0")),
    ("pyslurm", broken("pyslurm", trouble="python: error: resolve_ctls_from_dns_srv (exit 1)")),
]
UNKNOWNS = [
    ("room", broken("folder", free_bytes=None, free_files=None)),
    ("py-spy", broken("stacks", trouble=None)),
    ("clock", {"clock": None}),
    ("torch", {"torch": "of unknown version"}),
    ("slurm", broken("slurm", version=None)),
    ("pyslurm", broken("pyslurm", trouble=None)),
    ("pyslurm", broken("pyslurm", version="of unknown version")),
]
OPTIONAL = [
    ("torch", {"torch": None}),
    ("nvrx", {"nvrx": NvrxSeen(None)}),
    ("pyslurm", {"pyslurm": PyslurmSeen(None)}),
    ("slurm", {**broken("slurm", commands=NO_COMMANDS, version=None), "pyslurm": PyslurmSeen(None)}),
]


def states(seen):
    return {check.name: check.state for check in examine(seen)}


def test_a_fit_machine_is_ok_in_every_check():
    assert set(states(FIT).values()) == {"ok"}
    assert all(check.seen and not check.right for check in examine(FIT))


@pytest.mark.parametrize(("name", "fields"), FAULTS)
def test_a_fault_is_named_by_its_own_check_and_by_no_other(name, fields):
    seen = replace(FIT, **fields)
    assert {n for n, state in states(seen).items() if state == "bad"} == {name}
    assert all(check.right for check in examine(seen) if check.state == "bad")


def test_every_check_can_fail():
    assert {name for name, _ in FAULTS + WARNINGS} == set(states(FIT))
    assert len(states(FIT)) == len(CHECKS)


@pytest.mark.parametrize(("name", "fields"), UNKNOWNS)
def test_what_cannot_be_seen_is_unknown_not_ok_and_not_wrong(name, fields):
    found = states(replace(FIT, **fields))
    assert found[name] == "unknown"
    assert "bad" not in found.values()


@pytest.mark.parametrize(("name", "fields"), WARNINGS)
def test_what_works_but_was_not_tried_is_a_warning_with_what_to_do(name, fields):
    seen = replace(FIT, **fields)
    assert {n: state for n, state in states(seen).items() if state != "ok"} == {name: "warn"}
    assert all(check.right for check in examine(seen) if check.state == "warn")


@pytest.mark.parametrize(("name", "fields"), OPTIONAL)
def test_what_is_not_there_and_not_needed_is_ok(name, fields):
    assert states(replace(FIT, **fields))[name] == "ok"


def test_bad_comes_before_unknown_and_a_warning_changes_nothing():
    def code(*states):
        return exit_code(Check("x", state, "seen") for state in states)

    assert [code("ok", "warn"), code("ok", "unknown"), code("unknown", "bad"), code()] == [0, 3, 1, 0]


def test_the_other_supervisor_is_named_with_what_to_do():
    seen = replace(FIT, **FAULTS[2][1])
    check = doctor.packages(seen)
    assert check.seen == "supervisor belongs to the distribution supervisor too"
    assert check.right == "pip uninstall supervisor, then install relight again"


def test_limits_are_met_exactly():
    assert states(replace(FIT, open_files=912))["open-files"] == "ok"
    assert states(replace(FIT, open_files=None))["open-files"] == "ok"
    assert states(replace(FIT, **broken("folder", free_bytes=1 << 30, free_files=None)))["room"] == "ok"
    assert states(replace(FIT, **broken("sockets", longest=107)))["sockets"] == "ok"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('[notify]\ncommand = ["./page-me"]\n', "there is no such file"),
        ('[notify]\ncommand = ["./plain"]\n', "not executable"),
        ('[notify]\ncommand = ["./folder"]\n', "no file"),
        ('[cluster]\ndrain_command = ["no-such-drain", "-q"]\n', "not in PATH"),
        ('[health]\ncommands = [["no-such-program-anywhere"]]\n', "not in PATH"),
        ('[health]\nnvrx_python = ".venv-nvrx/bin/python"\n', "there is no such file"),
        ('[notify]\ncommand = ["./good"]\n[health]\ncommands = [["sh"]]\nnvrx_python = "good"\n', ""),
    ],
)
def test_a_program_that_the_settings_name_is_looked_for_beside_them(text, wrong, tmp_path):
    for name, mode in (("plain", 0o644), ("good", 0o755)):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    (tmp_path / "folder").mkdir()
    config = tmp_path / "relight.toml"
    config.write_text(text)
    seen = look_at_programs(machine.look_at_settings(str(config))[1], str(tmp_path))
    assert [one.trouble for one in seen if one.trouble] == ([wrong] if wrong else [])
    check = doctor.programs(replace(FIT, programs=seen))
    assert (check.state, wrong in check.seen) == ("bad" if wrong else "ok", True)


def test_secrets_that_are_not_there_are_named_with_what_would_be_right(tmp_path):
    config = tmp_path / "relight.toml"
    config.write_text('[notify]\nurls_file = "no-such-secret.toml"\n')
    assert machine.look_at_settings(str(config))[0].trouble == (
        "notify.urls_file = no-such-secret.toml: there is no such file. Make it, mode 0600, or leave urls_file out"
    )


def test_the_settings_of_the_readme_can_be_copied(tmp_path):
    """Nothing in them is missing on a machine that has only relight."""
    text = re.search(r"```toml\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)[1]
    config = tmp_path / "relight.toml"
    config.write_text(text)
    seen, settings = machine.look_at_settings(str(config))
    assert seen.trouble == ""
    assert [one for one in look_at_programs(settings, str(tmp_path)) if one.trouble] == []
    config.write_text(
        re.sub(r"(?m)^# (?=\w+ = )", "", text)
    )  # what is commented out is right too, once its files are there
    assert machine.look_at_settings(str(config))[0].trouble.startswith(
        "notify.urls_file = secret.toml: there is no such"
    )


# --- trials --------------------------------------------------------------------------------------------------------


def test_a_good_folder_holds_and_is_left_as_it_was(tmp_path):
    seen = machine.look_at_folder(str(tmp_path / "not" / "there"))
    assert (seen.trouble, seen.tried_in) == ("", str(tmp_path))
    assert seen.free_bytes > 0
    assert os.listdir(tmp_path) == []


def test_a_run_directory_that_is_a_file_is_not_ok(tmp_path):
    (tmp_path / "run").write_text("")
    assert "Not a directory" in machine.look_at_folder(str(tmp_path / "run")).trouble
    assert "Not a directory" in machine.look_at_folder(str(tmp_path / "run" / "deeper")).trouble


def test_links_that_exclude_nobody_are_found(tmp_path):
    def create(path, data):
        Path(path).write_bytes(data)
        return True

    assert "4 of 4 got the same name" in machine.look_at_folder(str(tmp_path), create=create).trouble


def test_a_link_that_shows_what_another_wrote_is_found(tmp_path):
    first = threading.Lock()

    def create(path, data):
        with first:
            there = os.path.exists(path)
            Path(path).write_bytes(b"" if there else data)
            return not there

    assert "holds what another wrote" in machine.look_at_folder(str(tmp_path), create=create).trouble


def test_a_replacement_in_place_is_found(tmp_path):
    def replaced(path, data):
        Path(path).write_bytes(data[: len(data) // 2])

    assert machine.try_rename(str(tmp_path), replaced) in {
        "a file changed under a reader that had it open",
        "a reader saw half of a file that was being replaced",
    }


@pytest.mark.timeout(30)
def test_a_replacement_that_shows_half_a_file_on_the_way_is_found(tmp_path):
    # A pipe stands in for the half-written file: its writer goes on only when the reader has opened it.
    calls = []

    def replaced(path, data):
        calls.append(path)
        if len(calls) == 2:
            os.mkfifo(f"{path}.half")
            os.rename(f"{path}.half", path)
            with open(path, "wb") as half:
                half.write(data[:100])
        Path(f"{path}.new").write_bytes(data)
        os.rename(f"{path}.new", path)

    assert machine.try_rename(str(tmp_path), replaced) == "a reader saw half of a file that was being replaced"


def test_a_folder_that_refuses_to_be_written_is_not_ok(tmp_path):
    def create(path, data):
        raise PermissionError(13, "Permission denied", path)

    assert "Permission denied" in machine.look_at_folder(str(tmp_path), create=create).trouble


def test_sockets_are_tried_where_they_would_lie(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere/at/all")
    assert "No such file" in machine.look_at_sockets(str(tmp_path), "n000").trouble
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    seen = machine.look_at_sockets(str(tmp_path), "n000")
    assert (seen.trouble, seen.limit) == ("", 107)
    assert machine.look_at_sockets(str(tmp_path), "n" * 90).longest > 107


def test_a_socket_directory_that_others_can_enter_is_not_ok(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp")
    folder = machine.look_at_sockets(str(tmp_path), "n000").folder
    os.mkdir(folder)
    try:
        os.chmod(folder, 0o755)  # noqa: S103 - the fault
        assert "not a directory of this user with mode 0700" in machine.look_at_sockets(str(tmp_path), "n000").trouble
        os.chmod(folder, 0o700)
        assert machine.look_at_sockets(str(tmp_path), "n000").trouble == ""
    finally:
        os.rmdir(folder)


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_py_spy_is_tried_for_real(tmp_path):
    assert machine.look_at_stacks(find_py_spy()).trouble == ""
    assert machine.look_at_stacks(None).trouble is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo 'Permission Denied: try again with sudo' >&2; exit 1", "Permission Denied: try again with sudo"),
        ("exit 3", "exit 3"),
        ("exit 0", "its dump shows no stack"),
    ],
)
def test_a_py_spy_that_reads_nothing_is_not_ok(tmp_path, text, said):
    assert machine.try_py_spy(script(tmp_path / "py-spy", text)) == said


def test_a_py_spy_that_is_not_there_is_not_ok(tmp_path):
    assert machine.try_py_spy(str(tmp_path / "py-spy")) == "No such file or directory"


def test_slurm_is_looked_for_in_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.look_at_slurm() == SlurmSeen(tuple((n, None) for n in machine.SLURM_COMMANDS), None)
    script(tmp_path / "srun", "echo slurm 24.05.3")
    seen = machine.look_at_slurm()
    assert (dict(seen.commands)["srun"], seen.version) == (str(tmp_path / "srun"), "slurm 24.05.3")
    assert (seen.usable, seen.alone) == (False, False)
    assert doctor.slurm(replace(FIT, slurm=seen)).seen == "missing: squeue, sinfo, scontrol, scancel, sbatch"


def test_slurm_commands_without_a_cluster_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    for name in machine.SLURM_COMMANDS:
        script(tmp_path / name, f"echo '{NO_CONF}' >&2; exit 1")
    seen = machine.look_at_slurm()
    assert (seen.alone, seen.usable, seen.version) == (True, False, None)


def test_pyslurm_is_imported_in_a_child_that_may_die_of_it(tmp_path):
    assert look_at_pyslurm(None) == PyslurmSeen(None, None)
    good = script(tmp_path / "good", "echo 'banner'; echo 'relight-doctor:imported'")
    assert look_at_pyslurm("25.11.1", good).trouble == ""
    ended = script(tmp_path / "ended", "echo 'python: fatal: no slurm.conf' >&2; exit 1")
    assert look_at_pyslurm("25.11.1", ended).trouble == "python: fatal: no slurm.conf (exit 1)"
    shot = script(tmp_path / "shot", "kill -SEGV $$")
    assert look_at_pyslurm("25.11.1", shot).trouble == "no word (SIGSEGV)"
    liar = script(tmp_path / "liar", "echo 'relight-doctor:imported'; exit 1")
    assert look_at_pyslurm("25.11.1", liar).trouble == "no word (exit 1)"
    hung = script(tmp_path / "hung", "exec sleep 100")
    assert look_at_pyslurm("25.11.1", hung, 0.2).trouble == "no answer after 0 s"


def test_nvrx_is_asked_in_the_python_that_the_settings_name(tmp_path):
    script(tmp_path / "python", "echo 'relight-doctor:0.7.0'")
    assert look_at_nvrx("python", str(tmp_path)) == NvrxSeen("0.7.0", str(tmp_path / "python"), "")
    assert look_at_nvrx("away", str(tmp_path)).trouble == "No such file or directory"
    assert (
        "PackageNotFoundError" in look_at_nvrx(sys.executable, "/").trouble or look_at_nvrx(sys.executable, "/").version
    )
    assert look_at_nvrx("", "/").python == ""


def test_settings_that_cannot_be_read_are_one_line(tmp_path):
    path = tmp_path / "relight.toml"
    path.write_text("[run]\nnam = 'x'\n")
    seen, settings = machine.look_at_settings(str(path))
    assert seen.trouble == f"{path}:2: run.nam: there is no such setting. Did you mean name?"
    assert settings.run.name == "run"
    path.write_text("[run]\nprofile = 'never'\n[layout]\ndp = 3\n[cluster]\nspares = 2\n")
    seen, _ = machine.look_at_settings(str(path))
    assert "profile never: not known" in seen.trouble
    assert seen.nodes == 5


# --- the command ---------------------------------------------------------------------------------------------------


def test_the_command_says_the_same_in_both_forms(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(command, ["--json"], standalone_mode=False)
    data = json.loads(told.output)
    assert (told.return_value == 0) is data["ok"]
    text = CliRunner().invoke(command, [], standalone_mode=False).output.splitlines()
    assert [line[9:23].strip() for line in text[:-1]] == [check["name"] for check in data["checks"]]
    assert [line[:7].strip() for line in text[:-1]] == [check["state"] for check in data["checks"]]
    assert os.listdir(tmp_path) == []


def test_notices_that_could_not_be_sent_are_one_line_without_the_secret(tmp_path):
    path = tmp_path / "relight.toml"
    path.write_text('[notify]\nurls = ["slak://t0ps3cret"]\n')
    path.chmod(0o644)
    assert "others can read it" in machine.look_at_settings(str(path))[0].trouble
    path.chmod(0o600)
    assert (
        machine.look_at_settings(str(path))[0].trouble == "notify: slak (urls 1): apprise does not understand this URL"
    )
    path.write_text('[notify]\nurls = ["json://t0ps3cret"]\n')
    assert machine.look_at_settings(str(path))[0].trouble == ""


def test_a_job_that_cannot_be_looked_into_is_not_passed_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    told = CliRunner().invoke(command, ["--json", "--job", "4711"], standalone_mode=False)
    check = json.loads(told.output)["checks"][-1]
    assert (check["name"], check["state"]) == ("job", "unknown")
    assert told.return_value in {1, 3}
    assert isinstance(CliRunner().invoke(command, ["--job", "n001"], standalone_mode=False).exception, UserError)


def test_bad_settings_make_the_exit_code_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("relight.toml").write_text("[layout]\ndp = 0\n")
    told = CliRunner().invoke(command, [], standalone_mode=False)
    assert told.return_value == 1
    assert "bad      settings        relight.toml:2: layout.dp = 0" in told.output
    assert told.output.splitlines()[-1].startswith("Bad: settings;")


def fresh(path, *args):
    """The command in an interpreter of its own, with `path` before everything else."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-m", "supervisor", "doctor", *args],
        cwd=path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_stranger_with_our_import_name_is_found(tmp_path):
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "__init__.py").write_text("")
    code, out, err = fresh(tmp_path)
    assert (code, err) == (1, "")
    assert f"slurm comes from {tmp_path / 'slurm'}" in out
    assert out.splitlines()[-1] == "Bad: packages; nothing is unknown; 0 warnings."


def test_a_distribution_that_claims_our_import_name_is_found(tmp_path):
    info = tmp_path / "supervisor-4.2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: supervisor\nVersion: 4.2.5\n")
    (info / "top_level.txt").write_text("supervisor\n")
    (info / "RECORD").write_text("supervisor/__init__.py,,\n")
    code, out, _ = fresh(tmp_path, "--json")
    check = json.loads(out)["checks"][0]
    assert (code, check["name"], check["state"]) == (1, "packages", "bad")
    assert "supervisor belongs to the distribution supervisor too" in check["seen"]


def test_looking_imports_no_torch(tmp_path):
    asked = "import sys; from supervisor.observe.machine import look; look('', ''); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
