"""A site's own command, as LBNL NHC is one: exit 0 is healthy, exit 1 with a line of text is not, anything else is unknown.

NHC prints `ERROR:  nhc:  Health check failed:  check_hw_ib:  ...` and ends with 1.
"""

from __future__ import annotations

import re
from typing import Final

from supervisor.agent.health.child import Ran
from supervisor.agent.health.results import Verdict, healthy, unhealthy, unknown

_ERROR: Final = re.compile(r"^\s*ERROR:\s+(?:\S+:\s+)?(?P<text>\S.*)$", re.MULTILINE)
_CRASH: Final = re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE)
_NOISE: Final = 0.1
"""Share of characters that are none, from which on an output is no text."""


def judge(ran: Ran) -> Verdict:
    """What the command says."""
    if ran.code is None:
        return unknown(ran.why)
    said = _ERROR.search(ran.output)
    if ran.code == 0:
        return unknown(f"exit 0, and yet: {said['text']}") if said else healthy("exit 0")
    if ran.code != 1:
        how = f"ended by signal {-ran.code}" if ran.code < 0 else f"exit {ran.code}"
        return unknown(f"{how} is neither yes (0) nor no (1): {ran.output.strip()[-200:]}")
    if _CRASH.search(ran.output):
        return unknown(f"the command itself failed: {_last(ran.output)}")
    if _is_noise(ran.output):
        return unknown("exit 1, and its output is no text")
    text = said["text"].strip() if said else _last(ran.output) or "exit 1, without a word"
    return unhealthy("site-check", text, mark=text)


def _last(output: str) -> str:
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")


def _is_noise(output: str) -> bool:
    odd = sum(1 for c in output if not (c.isprintable() or c in "\n\t\r\x1b") or c == "\ufffd")
    return odd > _NOISE * len(output)
