"""The child that carries one notice: `python -m supervisor.telling.carrier`, its work as JSON on stdin, its answer on stdout.

`{"do":"notify","url","title","body"}` through apprise; `{"do":"check","url"}` asks apprise what it makes of a URL and sends
nothing; `{"do":"fetch","url","deadline_s"}` is a beat for a dead man's switch. The answer is `{"ok":bool,"why":"..."}`. Who has
started it kills it, with its group, at a deadline.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

INPUT_MAX = 1_000_000
UNKNOWN_URL = "apprise does not understand this URL"
NO_APPRISE = "apprise is not installed: pip install 'relight[notify]'"


def main() -> int:
    """Do what stdin says; the answer, in one line, on stdout."""
    work = json.loads(sys.stdin.buffer.read(INPUT_MAX))
    why = {"notify": _notify, "check": _check, "fetch": _fetch}[work["do"]](work)
    sys.stdout.write(json.dumps({"ok": not why, "why": why}))
    return 0


def _gateway(url: str) -> Any:
    """What apprise makes of a URL; None when it does not know it. ImportError without apprise."""
    import apprise  # noqa: PLC0415 - a beat for a dead man's switch need not wait for it

    gateway = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False, app_id="relight", app_desc="relight"))
    return gateway if gateway.add(url) and len(gateway) == 1 else None


def _check(work: dict[str, Any]) -> str:
    try:
        return "" if _gateway(work["url"]) is not None else UNKNOWN_URL
    except ImportError:
        return NO_APPRISE


def _notify(work: dict[str, Any]) -> str:
    """Why it was not delivered; empty when it was."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setLevel(logging.WARNING)
    logging.getLogger("apprise").addHandler(handler)
    try:
        gateway = _gateway(work["url"])
    except ImportError:
        return NO_APPRISE
    if gateway is None:
        return UNKNOWN_URL
    # As text: where a gateway wants HTML or Markdown, apprise escapes it, and what a log said is no markup there.
    if gateway.notify(body=work["body"], title=work["title"], notify_type="warning", body_format="text"):
        return ""
    lines = [line.strip() for line in said.getvalue().splitlines() if line.strip()]
    return "; ".join(lines[-3:]) or "apprise could not deliver it and does not say why"


def _fetch(work: dict[str, Any]) -> str:
    """Why there was no good answer; empty when there was."""
    url = str(work["url"])
    if urlsplit(url).scheme not in {"http", "https"}:
        return "not an http or https URL"
    opener = OpenerDirector()  # these handlers and no others: no file, no ftp, and a redirect is not followed
    for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    try:
        with opener.open(Request(url, headers={"user-agent": "relight"}), timeout=float(work["deadline_s"])) as answer:  # noqa: S310
            status = int(answer.status)
    except (OSError, HTTPException, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "" if 200 <= status < 300 else f"HTTP {status}"


if __name__ == "__main__":
    sys.exit(main())
