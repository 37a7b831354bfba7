"""The crew that reads saves: which agents may, who has which, and what they say, checked before anybody hears it.

Readings run in worker threads, the agents' lines in the event loop; this stands between. See `checkpoints/readers_said.py`.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from supervisor.checkpoints.readers_said import CLAIMS, Gone, Mailbox, Nonsense, Part, Said, Unable
from supervisor.checkpoints.reading.findings import Finding
from supervisor.observe.messages import LARGEST, Raw, text

DISTRUST_S: Final = 3600.0
"""Seconds for which a node that was caught, or does not see the store, is not asked again."""

_Count = Annotated[int, Field(strict=True, ge=0, lt=LARGEST)]
_Name = Annotated[str, Field(min_length=1, max_length=255)]


class _Part(BaseModel):
    """`read-part`: a file was read, or `fault` says why it could not be."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    path: _Name
    fault: str | None = None
    size: _Count | None = None
    xxh3: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    items: _Count | None = None
    findings: Annotated[list[tuple[str, str, str]], Field(max_length=64)] = []


def said_of(node: str, raw: Raw) -> Said:
    """A `read-part` or `read-done`, checked; what makes no sense is Nonsense."""
    if raw.get("type") == "read-done":
        return Gone(node, text(raw.get("why"), 200) or "it has ended", raw.get("away") is True)
    try:
        part = _Part.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        return Nonsense(node, f"{'.'.join(map(str, first['loc']))[:80]}: {first['msg'][:120]}")
    if part.fault is not None:
        return Unable(node, part.path, text(part.fault, 300) or "")
    if part.size is None:
        return Nonsense(node, "size: it is missing")
    findings = []
    for code, path, detail in part.findings:
        if code not in CLAIMS:
            return Nonsense(node, f"no reading gives {text(code, 40)!r}")
        findings.append(Finding(code, text(path, 400) or "", text(detail, 400) or ""))
    return Part(node, part.path, part.size, part.xxh3, part.items, tuple(findings))


class Reads:
    """See `Crew`. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._send: Callable[[str, Raw], None] | None = None
        self._allowed: frozenset[str] = frozenset()
        self._readings: dict[str, tuple[Mailbox, bool]] = {}  # by name; True: an incident waits for it
        self._has: dict[str, str] = {}  # node -> the reading that has it
        self._distrusted: dict[str, float] = {}
        self._count = 0
        self._run = secrets.token_hex(4)  # names are used once, also over controllers

    # --- from the event loop ---------------------------------------------------------------------------------------

    def bind(self, send: Callable[[str, Raw], bool], call: Callable[..., object]) -> None:
        """The way to the agents: `call(f, ...)` has `f` called where `send` may be; False from it: there is no such agent."""

        def deliver(node: str, message: Raw) -> None:
            if not send(node, message) and message["type"] == "read":
                self.lost(node)

        def ask(node: str, message: Raw) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is over, and with it whoever reads
                call(deliver, node, message)

        with self._lock:
            self._send = ask

    def unbind(self) -> None:
        """There is no way any more: every node is gone."""
        with self._lock:
            self._send = None
        self.allow(frozenset())

    def allow(self, nodes: frozenset[str]) -> None:
        """These may read from now on, and no others."""
        with self._lock:
            self._allowed = nodes
            for node in self._has.keys() - nodes:
                self._tell(node, Gone(node, "it may not read any more"))

    def heard(self, node: str, raw: Raw) -> bool:
        """A `read-part` or `read-done` of an agent; False when no reading has asked it for anything."""
        with self._lock:
            if self._has.get(node) != raw.get("id"):
                return False
            self._tell(node, said_of(node, raw))
            return True

    def lost(self, node: str) -> None:
        """The agent of this node is gone, or another one has come in its place."""
        with self._lock:
            self._tell(node, Gone(node, "its agent is gone"))

    # --- from the readings -----------------------------------------------------------------------------------------

    def begin(self, mailbox: Mailbox) -> str:
        """See Crew."""
        with self._lock:
            self._count += 1
            name = f"{self._run}-{self._count}"
            self._readings[name] = (mailbox, False)
            return name

    def claim(self, reading: str, *, first: bool, but: frozenset[str]) -> frozenset[str]:
        """See Crew."""
        with self._lock:
            mailbox, _ = self._readings[reading]
            self._readings[reading] = (mailbox, first)
            now = self._clock()
            found = set()
            for node in self._allowed - but if self._send is not None else ():
                other = self._has.get(node)
                if other == reading or self._distrusted.get(node, now) > now:
                    continue
                if other is not None and (not first or self._readings[other][1]):
                    continue
                self._tell(node, Gone(node, "an incident waits for another reading"))
                self._has[node] = reading
                found.add(node)
            return frozenset(found)

    def ask(self, reading: str, node: str, message: dict[str, Any]) -> None:
        """See Crew."""
        with self._lock:
            if self._send is None or self._has.get(node) != reading:
                self._readings[reading][0].put(Gone(node, "it is not there"))
                return
            self._send(node, {"type": "read", "id": reading, **message})

    def release(self, reading: str, node: str, distrust: str = "") -> None:
        """See Crew."""
        with self._lock:
            if distrust:
                self._distrusted[node] = self._clock() + DISTRUST_S
            self._let_go(reading, node)

    def end(self, reading: str) -> None:
        """See Crew."""
        with self._lock:
            for node in [node for node, has in self._has.items() if has == reading]:
                self._let_go(reading, node)
            del self._readings[reading]

    # --- inside ----------------------------------------------------------------------------------------------------

    def _let_go(self, reading: str, node: str) -> None:
        if self._has.get(node) == reading:
            del self._has[node]
            if self._send is not None:
                self._send(node, {"type": "read-stop", "id": reading})

    def _tell(self, node: str, said: Said) -> None:
        has = self._has.get(node)
        if has is not None:
            self._readings[has][0].put(said)
