"""Who is told: `[notify]` of relight.toml with its secrets, and the file in the run directory from which they are read later.

A URL of a mail server, a chat or a pager holds a secret. So those URLs stand in files that nobody else can read (mode 0600),
in the memory of the processes that need them, and nowhere else: not in settings.json, a log, the journal or an error.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr

from supervisor.durable import replace_whole
from supervisor.errors import UserError
from supervisor.settings import NotifySettings
from supervisor.telling import carrying
from supervisor.telling.carrier import NO_APPRISE, UNKNOWN_URL
from supervisor.toml_files import check, read_toml

FILE = "notify.json"
"""In the run directory, 0600: written by `relight run`, read by the controllers and the guard."""
FILE_MAX = 1_000_000
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,20})://.")


@dataclass(frozen=True, slots=True)
class Targets:
    """Everybody who is told, and the dead man's switches. What is secret does not show in a repr."""

    command: tuple[str, ...] = ()
    urls: tuple[str, ...] = field(default=(), repr=False)
    escalate_urls: tuple[str, ...] = field(default=(), repr=False)
    link: str = ""
    deadline_s: float = 20.0
    heartbeat_url: str = field(default="", repr=False)
    guard_heartbeat_url: str = field(default="", repr=False)
    heartbeat_s: float = 60.0

    @property
    def any(self) -> bool:
        """Is there anybody to be told, or a switch that waits for beats?"""
        return bool(self.command or self.urls or self.escalate_urls or self.heartbeat_url or self.guard_heartbeat_url)

    def named(self, *, escalates: bool) -> dict[str, str]:
        """Name -> URL ("" for the command). A name has the kind and the place in the list, and nothing secret."""
        found = {"command": ""} if self.command else {}
        found |= {f"{_kind(url)} (urls {n})": url for n, url in enumerate(self.urls, 1)}
        if escalates:
            found |= {f"{_kind(url)} (escalate_urls {n})": url for n, url in enumerate(self.escalate_urls, 1)}
        return found


def _kind(url: str) -> str:
    match = SCHEME.match(url)
    return match[1].lower() if match else "unknown"


class _Secrets(BaseModel):
    """What `urls_file` may hold: TOML with the same names as in `[notify]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    urls: tuple[SecretStr, ...] = ()
    escalate_urls: tuple[SecretStr, ...] = ()
    heartbeat_url: SecretStr = SecretStr("")
    guard_heartbeat_url: SecretStr = SecretStr("")


def gather(settings: NotifySettings, config: str | None) -> Targets:
    """The targets of these settings, read from `config`, and of the `urls_file` that they name.

    Raises UserError where a file with secrets can be read by others, or a value is no URL; never with the value.
    """
    own = _Secrets(
        urls=settings.urls,
        escalate_urls=settings.escalate_urls,
        heartbeat_url=settings.heartbeat_url,
        guard_heartbeat_url=settings.guard_heartbeat_url,
    )
    places = dict.fromkeys(_Secrets.model_fields, "relight.toml")
    if own != _Secrets() and config:
        _must_be_private(
            config, "it holds URLs of [notify]; or put those into a file of their own ([notify] urls_file)"
        )
    values = {name: _plain(getattr(own, name)) for name in _Secrets.model_fields}
    if settings.urls_file:
        path = settings.urls_file
        if not os.path.exists(path):
            raise UserError(
                f"notify.urls_file = {path}: there is no such file. Make it, mode 0600, or leave urls_file out"
            )
        _must_be_private(path, "it holds URLs")
        table, text = read_toml(path)
        beside = check(_Secrets, table, path, text)
        for name in _Secrets.model_fields:
            if found := _plain(getattr(beside, name)):
                values[name], places[name] = found, path
    for name, value in values.items():
        _must_be_urls(name, value, places[name])
    return Targets(command=settings.command, link=settings.link, deadline_s=settings.deadline_s,
                   heartbeat_s=settings.heartbeat_s, **values)  # fmt: skip


def _plain(value: SecretStr | tuple[SecretStr, ...]) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else tuple(v.get_secret_value() for v in value)


def _must_be_urls(name: str, value: str | tuple[str, ...], place: str) -> None:
    """Raises UserError with the place and never the value."""
    if isinstance(value, str):
        if value and not re.match(r"https?://[^\s/]", value):
            raise UserError(f"{place}: notify.{name}: must be an http or https URL")
        return
    for number, url in enumerate(value, 1):
        if not SCHEME.match(url):
            raise UserError(
                f"{place}: notify.{name}, number {number}: no URL as apprise has them, such as mailtos://..."
            )


def _must_be_private(path: str, why: str) -> None:
    """Raises UserError where somebody else owns a file or can read it."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if found.st_uid not in {os.geteuid(), 0} or stat.S_IMODE(found.st_mode) & 0o077:
        raise UserError(f"{path}: others can read it, and {why}: chmod 600 {path}")


def must_be_understood(targets: Targets) -> None:
    """Ask apprise, in a child, what it makes of each URL; nothing is sent. Raises UserError. A child that fails refuses nothing."""
    for name, url in targets.named(escalates=True).items():
        why = carrying.understood(url, targets.deadline_s).why if url else ""
        if why in {UNKNOWN_URL, NO_APPRISE}:
            raise UserError(f"notify: {name}: {why}")


def leave(run_root: str, targets: Targets) -> None:
    """Write the targets for this run's processes, 0600. Raises OSError."""
    shown: dict[str, Any] = {"schema": 1, **{name: getattr(targets, name) for name in Targets.__slots__}}
    replace_whole(os.path.join(run_root, FILE), json.dumps(shown).encode(), 0o600)


def read(run_root: str) -> Targets | None:
    """The targets of a run; None where none were left, or the file is not to be believed."""
    path = os.path.join(run_root, FILE)
    try:
        _must_be_private(path, "it holds URLs")
        with open(path, "rb") as file:
            raw = json.loads(file.read(FILE_MAX))
        return Targets(
            command=tuple(str(one) for one in raw["command"]),
            urls=tuple(str(one) for one in raw["urls"]),
            escalate_urls=tuple(str(one) for one in raw["escalate_urls"]),
            link=str(raw["link"]),
            deadline_s=float(raw["deadline_s"]),
            heartbeat_url=str(raw["heartbeat_url"]),
            guard_heartbeat_url=str(raw["guard_heartbeat_url"]),
            heartbeat_s=float(raw["heartbeat_s"]),
        )
    except (UserError, OSError, ValueError, KeyError, TypeError):
        return None
