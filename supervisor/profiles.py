"""Profiles: which thresholds are in force. One ships by name; a site's own is a TOML file and may extend one that ships."""

from __future__ import annotations

import os
from importlib import resources
from typing import Any

from pydantic import ValidationError

from policies.history import History
from policies.rules import Rules
from supervisor.errors import UserError
from supervisor.toml_files import check, read_toml

_DEPTH_LIMIT = 5


def shipped() -> list[str]:
    """The names of the profiles that ship."""
    folder = resources.files("policies") / "profiles"
    return sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))


def _merged(low: dict[str, Any], high: dict[str, Any]) -> dict[str, Any]:
    out = dict(low)
    for key, value in high.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merged(out[key], value) if both else value
    return out


def _table(name: str, depth: int) -> tuple[dict[str, Any], str, str]:
    if depth > _DEPTH_LIMIT:
        raise UserError(f"profile {name}: extends more than {_DEPTH_LIMIT} others, one after the other")
    if os.sep in name or name.endswith(".toml"):
        path = name
    elif name in shipped():
        path = str(resources.files("policies") / "profiles" / f"{name}.toml")
    else:
        raise UserError(
            f"profile {name}: not known; these ship: {', '.join(shipped())}; or give a path to a .toml file"
        )
    table, text = read_toml(path)
    base = table.pop("extends", None)
    if base is not None:
        if not isinstance(base, str):
            raise UserError(f"{path}: extends: must be the name of a profile or a path")
        table = _merged(_table(base, depth + 1)[0], table)
    return table, path, text


def load_profile(name: str) -> Rules:
    """The rules of a profile, by name or path. Raises UserError."""
    table, path, text = _table(name, 0)
    return check(Rules, table, path, text)


def in_force(history: History, name: str) -> Rules:
    """The rules of the run's last controller, as its journal has them; else those of the profile `name`. Raises UserError.

    For who takes a run over with nothing said of a profile: the run may have been started with one in mode auto, and its later
    jobs with one that asks. Where another version of relight has written what can't be read here, the mode at least is kept.
    """
    try:
        if history.rules:
            return Rules.model_validate_json(history.rules)
    except ValidationError:
        return load_profile(name).model_copy(update={"mode": history.mode})
    return load_profile(name)
