"""What is checked on a node: `health.json` of the run directory, written anew at every start of the run. Read with care."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Final

FILE: Final = "health.json"
_BYTES: Final = 1 << 20
_MOST: Final = 16
"""Paths, and commands, that are looked at; more would no longer fit a calm round."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`every_s` seconds between two rounds, 0: no checks. `kernel_log`: "" finds it, "none" leaves it, else a path."""

    every_s: float = 60.0
    deadline_s: float = 20.0
    paths: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    kernel_log: str = ""
    nvrx_python: str = ""


def read_plan(run_dir: str) -> Plan | str:
    """The plan, or why there is none. Blocks on the file system."""
    path = os.path.join(run_dir, FILE)
    try:
        with open(path, "rb") as file:
            raw = json.loads(file.read(_BYTES))
    except OSError as error:
        return f"{FILE}: {error.strerror}"
    except (ValueError, RecursionError):
        return f"{FILE}: no JSON"
    plan = _plan(raw) if isinstance(raw, dict) else None
    return f"{FILE}: made no sense of it" if plan is None else plan


def _plan(raw: dict[str, Any]) -> Plan | None:
    every_s, deadline_s = _seconds(raw.get("every_s")), _seconds(raw.get("deadline_s"))
    paths, commands = _texts(raw.get("paths")), raw.get("commands")
    kernel_log, nvrx_python = raw.get("kernel_log"), raw.get("nvrx_python")
    if every_s is None or not deadline_s or paths is None or not isinstance(commands, list) or len(commands) > _MOST:
        return None
    argvs = [argv for argv in map(_texts, commands) if argv]
    if len(argvs) != len(commands) or not isinstance(kernel_log, str) or not isinstance(nvrx_python, str):
        return None
    return Plan(every_s, deadline_s, paths, tuple(argvs), kernel_log, nvrx_python)


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= 86400 else None


def _texts(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list) or len(value) > 4 * _MOST:
        return None
    return tuple(value) if all(isinstance(word, str) and "\0" not in word for word in value) else None
