"""Bearer tokens by role, in one file of mode 0600 that holds only their hashes.

A token is 256 random bits, so nobody can try them all: one SHA-256 is as safe as a slow hash, and a flood of wrong tokens
costs the console next to nothing. A slow hash is for secrets that people think up.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from hashlib import sha256
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from supervisor.durable import replace_whole
from supervisor.errors import UserError

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_TOKEN = re.compile(r"relight_([0-9a-f]{8})_([A-Za-z0-9_-]{43})\Z", re.ASCII)
FILE_MAX = 1_000_000
DAY_S = 86_400.0


class Role(StrEnum):
    """What a token may do: a viewer reads; an approver also files requests."""

    VIEWER = "viewer"
    APPROVER = "approver"


@dataclass(frozen=True, slots=True)
class Grant:
    """One token as it is kept. `expires` is wall seconds; None: not before it is removed."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
    name: Annotated[str, Field(pattern=NAME)]
    role: Role
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    added: float
    expires: float | None = None

    def may(self, role: Role) -> bool:
        """Is this role, or a stronger one, granted?"""
        return self.role is Role.APPROVER or role is self.role


_GRANTS = TypeAdapter(tuple[Grant, ...])


def default_path() -> str:
    """$RELIGHT_TOKENS, else relight/tokens.json below the configuration of this user."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.environ.get("RELIGHT_TOKENS") or os.path.join(home, "relight", "tokens.json")


def read_grants(path: str) -> tuple[Grant, ...]:
    """The tokens of a file; none when it is not there.

    UserError when others could read or write it, it is somebody else's, or cannot be understood.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
            raise UserError(f"{path}: must be a file of this user that nobody else may read (chmod 600)")
        try:
            return _GRANTS.validate_python(json.loads(file.read(FILE_MAX))["tokens"])
        except (ValueError, ValidationError, KeyError, TypeError, RecursionError):
            raise UserError(f"{path}: this is no file of tokens. Make one: relight token add NAME") from None


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Nobody else changes the file meanwhile. Raises UserError."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def _write(path: str, grants: tuple[Grant, ...]) -> None:
    data = json.dumps({"schema": 1, "tokens": [asdict(grant) for grant in grants]}, indent=1)
    replace_whole(os.path.abspath(path), data.encode() + b"\n", 0o600)


def add(path: str, name: str, role: Role, now: float, days: int = 0) -> str:
    """Make a token; it is shown this once. UserError when the name is taken or is none."""
    secret, identity = secrets.token_urlsafe(32), secrets.token_hex(4)
    token = f"relight_{identity}_{secret}"
    with _alone(path):
        grants = read_grants(path)
        if any(grant.name == name for grant in grants):
            raise UserError(f"{name} has a token already. Take it away first: relight token remove {name}")
        try:
            expires = now + days * DAY_S if days else None
            grant = Grant(identity, name, role, sha256(token.encode()).hexdigest(), now, expires)
        except ValidationError:
            raise UserError(f"{name!r}: a name is letters, digits, dot, dash and underscore, 64 at most") from None
        _write(path, (*grants, grant))
    return token


def remove(path: str, name: str) -> None:
    """Take a token away; a console that runs knows it within a second. UserError when nobody has that name."""
    with _alone(path):
        grants = read_grants(path)
        if all(grant.name != name for grant in grants):
            has = ", ".join(grant.name for grant in grants) or "nobody"
            raise UserError(f"{path}: there is no token of {name!r}; these have one: {has}")
        _write(path, tuple(grant for grant in grants if grant.name != name))


class Tokens:
    """The tokens of a file, read again when it changes. A file that cannot be believed lets nobody in."""

    def __init__(self, path: str, wall: Callable[[], float] = time.time) -> None:
        self._path, self._wall = path, wall
        self._looks: tuple[int, int, int] | None = None
        self._grants: dict[str, Grant] = {}

    def find(self, token: str) -> Grant | None:
        """Whose token this is; None: nobody's, or it has expired."""
        match = _TOKEN.match(token)
        if match is None:
            return None
        grant = self._now().get(match[1])
        digest = sha256(token.encode()).hexdigest()
        if grant is None or not hmac.compare_digest(grant.hash, digest) or self._over(grant):
            return None
        return grant

    def still(self, grant: Grant) -> bool:
        """Does this token hold yet? A stream asks now and then."""
        return self._now().get(grant.id) == grant and not self._over(grant)

    def _over(self, grant: Grant) -> bool:
        return grant.expires is not None and self._wall() >= grant.expires

    def _now(self) -> dict[str, Grant]:
        try:
            found = os.stat(self._path)
            looks = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
            if looks != self._looks:
                self._looks, self._grants = looks, {}
                self._grants = {grant.id: grant for grant in read_grants(self._path)}
        except (OSError, UserError):
            self._grants = {}
        return self._grants
