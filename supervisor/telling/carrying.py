"""One try to carry a notice: a child process with its input in a file, a deadline, and its whole group killed at the end of it.

Nothing of a child can hold up its caller, and no secret stands on a command line or in an environment: a URL is given on stdin.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast
from urllib.parse import unquote

from supervisor.telling.notices import Notice
from supervisor.telling.say import clean, span

WHY_MAX = 500
TITLE_MAX = 250
"""Characters of a title: mail and most chats take so many."""
_PIECES = re.compile(r"[^A-Za-z0-9]+")
_PIECE_MIN = 3
OPEN_WORDS = frozenset({"http", "https", "com", "org", "net", "www", "mail", "smtp", "localhost"})
"""Pieces of a URL that are no secret wherever they stand."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one try ended. `why` is one line for people without anything of a URL; empty when all went well."""

    ok: bool
    why: str = ""


def environment(told: Notice, base: Mapping[str, str]) -> dict[str, str]:
    """`base` and RELIGHT_NOTICE_KEY, _WHAT, _RUN, _TITLE, _BODY: what the site's command can read of the notice."""
    own = {"KEY": told.key, "WHAT": told.what, "RUN": told.run, "TITLE": told.title, "BODY": told.body}
    return {**base, **{f"RELIGHT_NOTICE_{name}": value for name, value in own.items()}}


def by_command(argv: Sequence[str], told: Notice, story: str, deadline_s: float) -> Outcome:
    """Run the site's command: the story (the notice, where there is none) on its stdin. Never raises."""
    given = (story or told.text).encode("utf-8", "replace")
    try:
        ended = _run(list(argv), given, environment(told, os.environ), deadline_s)
    except Exception as error:  # noqa: BLE001 - whatever a notice does, the run goes on
        return Outcome(ok=False, why=clean(f"{type(error).__name__}: {error}", WHY_MAX))
    name = clean(argv[0])
    if ended.late:
        return Outcome(ok=False, why=f"{name}: no end after {span(deadline_s)}; killed")
    if ended.code == 0:
        return Outcome(ok=True)
    said = clean(ended.errors.decode("utf-8", "replace"), WHY_MAX)
    return Outcome(ok=False, why=f"{name}: {ended.how}{f': {said}' if said else ''}")


def by_url(url: str, told: Notice, deadline_s: float) -> Outcome:
    """Have apprise carry it, in a child (`supervisor.telling.carrier`). Never raises."""
    return _child({"do": "notify", "url": url, "title": told.title[:TITLE_MAX], "body": told.body}, url, deadline_s)


def fetch(url: str, deadline_s: float) -> Outcome:
    """GET a URL in a child and see that it answers with 2xx. Never raises."""
    return _child({"do": "fetch", "url": url, "deadline_s": deadline_s}, url, deadline_s)


def understood(url: str, deadline_s: float) -> Outcome:
    """Does apprise know what this URL means? Nothing is sent. Never raises."""
    return _child({"do": "check", "url": url}, url, deadline_s)


def hidden(text: str, url: str) -> str:
    """A text without the pieces of a URL: what a gateway or a library says of a failure may quote its tokens."""
    pieces = {
        p for form in (url, unquote(url)) for p in _PIECES.split(form.partition("://")[2]) if len(p) >= _PIECE_MIN
    }
    for piece in sorted(pieces - OPEN_WORDS, key=len, reverse=True):
        text = re.sub(re.escape(piece), "***", text, flags=re.IGNORECASE)
    return text


def _child(work: Mapping[str, object], url: str, deadline_s: float) -> Outcome:
    argv = [sys.executable, "-m", "supervisor.telling.carrier"]
    try:
        ended = _run(argv, json.dumps(work).encode(), os.environ, deadline_s, answers=True)
        if ended.late:
            return Outcome(ok=False, why=f"no end after {span(deadline_s)}; killed")
        if ended.code != 0:
            return Outcome(ok=False, why=f"the carrier ended with {ended.how}")
        answer = json.loads(ended.output)
        return Outcome(ok=answer["ok"] is True, why=clean(hidden(str(answer["why"]), url), WHY_MAX))
    except Exception as error:  # noqa: BLE001 - whatever a notice does, the run goes on
        return Outcome(ok=False, why=clean(hidden(f"{type(error).__name__}: {error}", url), WHY_MAX))


@dataclass(frozen=True, slots=True)
class _Ended:
    code: int
    late: bool
    output: bytes
    errors: bytes

    @property
    def how(self) -> str:
        return f"exit {self.code}" if self.code > 0 else f"signal {-self.code}"


def _run(argv: list[str], given: bytes, env: Mapping[str, str], deadline_s: float, *, answers: bool = False) -> _Ended:
    """Run a child to its end or its deadline. OSError, ValueError where it cannot be started."""
    # Files instead of pipes: nothing can block on a child that does not read, or on a grandchild that it has left behind. Those
    # that matter lie in memory: a full disk is one of the things that a person must be told of.
    with _in_memory() as stdin, _in_memory() if answers else _on_disk() as stdout, _on_disk() as stderr:
        stdin.write(given)
        stdin.seek(0)
        child = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, env=env, start_new_session=True)
        late = False
        try:
            child.wait(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(child.pid, signal.SIGKILL)  # its own session, so the pid is also the group's
            child.wait()
        stdout.seek(0)
        output = stdout.read(65_536)
        stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - WHY_MAX))
        return _Ended(child.returncode, late, output, stderr.read(WHY_MAX))


def _in_memory() -> BinaryIO:
    return open(os.memfd_create("relight-notice"), "w+b")


def _on_disk() -> BinaryIO:
    """For what may become long and can be missed; where no disk has room, nothing is kept."""
    try:
        return cast("BinaryIO", tempfile.TemporaryFile())
    except OSError:
        return open(os.devnull, "w+b")
