"""The walls between the rooms stand, and a hole in one is seen."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import supervisor

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("supervisor", "slurm", "policies")
LINT = "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports; sys.exit(lint_imports(config_filename=sys.argv[1], no_cache=True))"


def contracts() -> list[dict[str, Any]]:
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"])


def lint(folder: Path, config: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT, config],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_the_rules_of_import_are_kept() -> None:
    done = lint(ROOT, "pyproject.toml")
    assert done.returncode == 0, done.stdout
    assert f"Contracts: {len(contracts())} kept, 0 broken" in done.stdout


def copy_of_the_rules(folder: Path) -> None:
    """The same contracts over small rooms of their own: one empty module for each that a contract names."""
    keys = ("modules", "source_modules", "forbidden_modules", "ancestors")
    named = {m for c in contracts() for key in keys for m in c.get(key, []) if m.split(".")[0] in ROOMS} | set(ROOMS)
    lines = [
        "[importlinter]",
        "root_packages =",
        *(f"    {room}" for room in ROOMS),
        "include_external_packages = True",
    ]
    for number, contract in enumerate(contracts()):
        lines += [f"[importlinter:contract:{number}]", f"name = {contract['name']}", f"type = {contract['type']}"]
        for key in keys:
            lines += [f"{key} =", *(f"    {m}" for m in contract[key])] if key in contract else []
        lines += ["allow_indirect_imports = True"] if contract.get("allow_indirect_imports") else []
        lines += [f"depth = {contract['depth']}"] if "depth" in contract else []
    (folder / "rules.ini").write_text("\n".join(lines))
    for module in named | {"supervisor.fold"}:
        package = folder.joinpath(*module.split("."))
        package.mkdir(parents=True, exist_ok=True)
    for package in folder.rglob("*"):
        if package.is_dir():
            (package / "__init__.py").touch()


PLANTED = [
    ("policies", "import slurm", "policies and slurm stand alone"),
    ("slurm", "import policies", "policies and slurm stand alone"),
    ("policies", "import supervisor", "nothing below imports the supervisor"),
    ("slurm", "import supervisor.fold", "nothing below imports the supervisor"),
    ("policies", "import time", "policies are pure"),
    ("policies", "import random", "policies are pure"),
    ("supervisor.training", "import torch", "standard library only"),
    ("supervisor.training", "import pydantic", "standard library only"),
    ("supervisor.agent", "import torch", "never import torch"),
    ("supervisor.cli", "import numpy", "never import torch"),
    ("supervisor.journal", "import torch", "never import torch"),
    ("supervisor.controller", "import supervisor.console", "the console stands apart"),
    ("supervisor.guard", "import supervisor.controller", "the guard needs nothing of the controller"),
    ("supervisor.bench.world", "import policies.diagnose", "the simulated world diagnoses nothing"),
]


@pytest.mark.parametrize(("room", "line", "rule"), PLANTED, ids=[f"{p[0]} {p[1]}" for p in PLANTED])
def test_a_hole_in_a_wall_is_seen(room: str, line: str, rule: str, tmp_path: Path) -> None:
    copy_of_the_rules(tmp_path)
    (tmp_path.joinpath(*room.split(".")) / "__init__.py").write_text(f"{line}\n")
    done = lint(tmp_path, "rules.ini")
    assert done.returncode == 1, done.stdout
    broken = [one for one in done.stdout.splitlines() if one.endswith("BROKEN")]
    assert broken
    assert all(any(c["name"] in one for c in contracts()) for one in broken)
    assert any(rule in one for one in broken), done.stdout


def test_a_circle_of_rooms_is_seen(tmp_path: Path) -> None:
    copy_of_the_rules(tmp_path)
    rooms = ("agent", "journal", "observe")
    for room, following in zip(rooms, (*rooms[1:], rooms[0]), strict=True):
        (tmp_path / "supervisor" / room / "__init__.py").write_text(f"import supervisor.{following}\n")
    done = lint(tmp_path, "rules.ini")
    assert done.returncode == 1, done.stdout
    assert "not even by way of others BROKEN" in done.stdout


def test_without_a_hole_the_copy_is_clean(tmp_path: Path) -> None:
    copy_of_the_rules(tmp_path)
    done = lint(tmp_path, "rules.ini")
    assert done.returncode == 0, done.stdout


def modules() -> list[Path]:
    return [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]


def test_no_module_is_a_drawer_for_everything() -> None:
    assert len(modules()) > 50
    drawers = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
    assert [p for p in modules() if drawers & {p.stem, p.parent.name}] == []


def test_our_supervisor_is_the_one_that_is_imported() -> None:
    """PyPI has another package of that name (Supervisord)."""
    assert Path(supervisor.__file__ or "").resolve() == ROOT / "supervisor" / "__init__.py"
    code = "import supervisor, slurm, policies; print(*(m.__file__ for m in (supervisor, slurm, policies)), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd="/", stdout=subprocess.PIPE, text=True, check=True)
    assert [Path(p).parent.parent for p in done.stdout.splitlines()] == [ROOT] * 3


def test_nothing_unpickles_and_nothing_runs_a_shell() -> None:
    """What is read is hostile until checked; torch.load too would unpickle. One module may, in a process of its own."""
    forbidden = ("import pickle", "from pickle", "marshal.loads", "shell=True", "os.system(", "yaml.load(", "eval(")
    found = [(p.name, word) for p in modules() for word in forbidden if word in p.read_text()]
    assert found == [("unpickling.py", "import pickle")]
