"""What one proof is given, and what it leaves: lines as it goes on, checks that must hold, figures that were measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click


class SkippedError(Exception):
    """A proof that cannot be done on this machine; the message says what is missing."""


def tell(text: str) -> None:
    """One line for people."""
    click.echo(text)


@dataclass
class Work:
    """One proof at work. Its runs lie below `folder`; what it draws at random is drawn from `seed`."""

    name: str
    folder: str
    seed: int = 1
    tell: Callable[[str], None] = tell
    checks: dict[str, bool] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def ok(self) -> bool:
        """Everything that was checked held, and something was."""
        return bool(self.checks) and all(self.checks.values())

    @property
    def seconds(self) -> float:
        """How long it has been at work."""
        return time.monotonic() - self.began

    def say(self, text: str) -> None:
        """One line of progress."""
        self.tell(f"{self.name} {self.seconds:6.1f} s  {text}")

    def check(self, what: str, *, ok: bool) -> bool:
        """One thing that must hold; said twice, it must hold twice. Answers `ok`."""
        self.checks[what] = ok and self.checks.get(what, True)
        self.say(f"{'ok  ' if ok else 'FAIL'}  {what}")
        return ok

    def path(self, *parts: str) -> str:
        """A path below this proof's folder."""
        return os.path.join(self.folder, *parts)
