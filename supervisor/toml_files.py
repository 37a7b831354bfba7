"""Reading a TOML file into a checked model, with errors that name the line and what would be right."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from supervisor.errors import UserError

M = TypeVar("M", bound=BaseModel)
_SIZE_LIMIT = 1_000_000


def read_toml(path: str) -> tuple[dict[str, Any], str]:
    """The table and the text of a TOML file. Raises UserError."""
    try:
        with open(path, "rb") as file:
            text = file.read(_SIZE_LIMIT).decode()
        return tomllib.loads(text), text
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: {error}") from None


def line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """The line on which a key stands; the section's line when the key itself is not found."""
    section, best = "", None
    wanted_section, wanted_key = ".".join(keys[:-1]), keys[-1]
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*([A-Za-z0-9_.-]+)\s*\]", line)
        if header:
            section = header[1]
            if section == wanted_section:
                best = number
            if section == ".".join(keys):
                return number
        elif section == wanted_section and re.match(rf"\s*{re.escape(wanted_key)}\s*=", line):
            return number
    return best


def _known_keys(model: type[BaseModel], keys: tuple[str, ...]) -> list[str]:
    here: Any = model
    for key in keys:
        field = getattr(here, "model_fields", {}).get(key)
        here = field.annotation if field else None
    return list(getattr(here, "model_fields", {}))


def _is_secret(model: type[BaseModel], keys: tuple[str, ...]) -> bool:
    """Does a mistake lie in a value that must not be shown?"""
    here: Any = model
    for key in keys:
        field = getattr(here, "model_fields", {}).get(key)
        here = field.annotation if field else None
        if "SecretStr" in repr(here):
            return True
    return False


def check(model: type[M], table: Mapping[str, Any], path: str, text: str) -> M:
    """The table as a model. Raises UserError naming the first mistake: file, line, key, value, what would be right."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        keys = tuple(str(k) for k in first["loc"])
        line = line_of(text, keys) if keys else None
        where = f"{path}:{line}" if line else path
        name = ".".join(keys)
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(keys[-1], _known_keys(model, keys[:-1]), 1)
            hint = f" Did you mean {near[0]}?" if near else f" Known here: {', '.join(_known_keys(model, keys[:-1]))}."
            raise UserError(f"{where}: {name}: there is no such setting.{hint}") from None
        value = None if _is_secret(model, keys) else first.get("input")
        shown = f" = {value!r}" if isinstance(value, str | int | float | bool) else ""
        raise UserError(f"{where}: {name}{shown}: {first['msg'].removeprefix('Value error, ')}") from None
