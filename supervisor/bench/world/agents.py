"""The agents of the nodes: they pass on what ranks say and what logs hold, as raw messages, to the product's own hub."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Protocol

from supervisor.agent.board import Board
from supervisor.bench.world.machines import Node, Power
from supervisor.bench.world.timeline import Timeline
from supervisor.evidence.scan import Match, scan
from supervisor.observe.connection import Connection
from supervisor.observe.hub import Hub

Message = dict[str, Any]
_FOUND = 200
LOOK_S = 0.4
LOOK_EVERY_S = 60.0
"""A round of checks takes so long, and there is one each minute. Of those in which nothing is new nothing is said."""
_BOOTED_S = 86_400.0
"""A node's monotonic clock has run for a day when the story begins; by node name it differs a little."""


class Ranks(Protocol):
    """What an agent can see of the ranks on its node."""

    def rows(self, node: str) -> list[list[Any]]:
        """[rank, attempt, phase, step, idle seconds] each."""
        ...

    def kill_older(self, node: str, attempt: int) -> None:
        """End what is left here of attempts before this one."""
        ...

    def ranks_on(self, node: str, attempt: int) -> Iterable[int]:
        """The ranks that an attempt's map places here."""
        ...


class _Wire:
    """The transport below a connection: what the hub writes reaches the agent at once."""

    def __init__(self, hear: Callable[[Message], None]) -> None:
        self._hear = hear
        self._open = True
        self.link: Link

    def is_closing(self) -> bool:
        return not self._open

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        for line in data.splitlines():
            self._hear(json.loads(line))

    def abort(self) -> None:
        if self._open:
            self._open = False
            self.link.connection_lost(None)


class Link(Connection):
    """A connection of the product over a simulated wire."""

    def __init__(self, hub: Hub, clock: Callable[[], float], wire: _Wire) -> None:
        super().__init__(hub, clock)
        wire.link = self
        self._transport = wire  # type: ignore[assignment]  # as much of a transport as is used


@lru_cache(maxsize=4096)
def _scanned(line: str) -> Match | None:
    """5,112 ranks print the same line: what it means is found once."""
    return scan(line)


class Agent:
    """The agent of one node. What it hears while nobody listens is told again to the next controller."""

    def __init__(self, node: Node, time: Timeline, ranks: Ranks) -> None:
        self.node = node
        self.lag_s: dict[str, float] = {}  # kind of message -> how late it is told
        self._time = time
        self._ranks = ranks
        self._board = Board()
        self._found: deque[Message] = deque(maxlen=_FOUND)
        self._link: Link | None = None
        self._hub: Hub | None = None
        self._owner: object = None
        self._held: list[Message] = []  # while the node is frozen
        self._unheard: list[Message] = []
        self._attempt = 0
        self._rest: dict[int, bytes] = {}  # rank -> the beginning of a line that is not whole yet
        self._lines: dict[int, int] = {}
        self._sent: set[tuple[int, str]] = set()
        self._beat_of: list[list[Any]] = []
        self.looked_for = 0  # the newest incident for which it has looked at its node anew
        self.found = ""  # what that look has found to be wrong

    # --- the controller ---------------------------------------------------------------------------------------------

    def connect(self, hub: Hub, clock: Callable[[], float], token: str, owner: object = None) -> None:
        """Greet a controller (`owner`); the one before is left."""
        self.disconnect()
        self._owner = owner
        if self.node.power is not Power.UP or not self.node.agent:
            return
        wire = _Wire(self._hear)
        self._hub, self._link = hub, Link(hub, clock, wire)
        self._beat_of = []
        hello = {
            "type": "hello",
            "token": token,
            "node": self.node.name,
            "pid": 77,
            "start_ticks": 1,
            "wall": self.wall(),
        }
        self._link.data_received(json.dumps({**hello, "monotonic": self.monotonic()}).encode() + b"\n")

    def serves(self, owner: object) -> bool:
        """Is it connected to this controller?"""
        return self._link is not None and self._owner is owner

    def disconnect(self) -> None:
        """The connection breaks."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def die(self) -> None:
        """The machine is gone, and what the agent knew with it."""
        self._board = Board()
        self._found.clear()
        self._held, self._unheard = [], []
        self.looked_for, self.found = 0, self.node.fault  # whoever is started there next looks at it first
        self.disconnect()

    def begin(self) -> None:
        """An agent is started here, and looks at its node first."""
        self.found = self.node.fault

    def thaw(self) -> None:
        """The machine goes on where it stood."""
        unheard, self._unheard = self._unheard, []
        held, self._held = self._held, []
        for message in held:
            self.tell(message)
        for message in unheard:
            self._hear(message)

    def wall(self) -> float:
        """This node's clock."""
        return self._time.now + self.node.skew_s

    def monotonic(self) -> float:
        """Seconds since it booted."""
        return self._time.now % _BOOTED_S + _BOOTED_S

    def _hear(self, message: Message) -> None:
        if self.node.power is Power.FROZEN:
            self._unheard.append(message)
            return
        kind = message.get("type")
        if kind == "welcome":
            self._newer(int(message["attempt"]))
            for told in self._board.again(self._attempt):
                self._send({"type": "rank", "node": self.node.name, "m": told})
            for found in self._found:
                self._send(found)
            self._tell_checks(self.wall() // LOOK_EVERY_S * LOOK_EVERY_S)
            self._time.after(0.002, lambda: self.beat(message.get("clock")))
        elif kind == "attempt":
            self._newer(int(message["attempt"]))
        elif kind == "check":
            number = int(message["incident"])
            self._time.after(LOOK_S, lambda: self._look(number))
        elif kind == "capture":
            incident, attempt = message["incident"], message["attempt"]
            self._time.after(1.0 if message["stacks"] else 0.02, lambda: self._captured(incident, attempt))

    def _look(self, incident: int) -> None:
        """A whole round of checks, because somebody has asked for it; it may find what is wrong here, or never end."""
        if not self.node.hangs and self.node.power is not Power.DEAD:
            self.looked_for, self.found = max(self.looked_for, incident), self.node.fault
            self._tell_checks(self.wall())

    def _tell_checks(self, ended: float) -> None:
        """The results, if anything is wrong, then that the round is over."""
        if self.found:
            now = {"when": ended, "took_s": LOOK_S, "since": ended, "before": None, "attempt": self._attempt}
            found = {"name": "gpus", "state": "unhealthy", "kind": "gpu-lost", "text": self.found, **now}
            self.tell({"type": "health", "node": self.node.name, "results": [found]})
        told = {"ended": ended, "took_s": LOOK_S, "checks": 9, "for": self.looked_for}
        self.tell({"type": "checked", "node": self.node.name, **told})

    def _captured(self, incident: int, attempt: int) -> None:
        ranks = {str(rank): "ok" for rank in self._ranks.ranks_on(self.node.name, attempt)}
        self.tell(
            {"type": "captured", "node": self.node.name, "incident": incident, "attempt": attempt, "ranks": ranks}
        )

    def _newer(self, attempt: int) -> None:
        if attempt < max(1, self._attempt):
            return
        if attempt > self._attempt:
            self._found.clear()
            self._rest.clear()
            self._lines.clear()
            self._sent.clear()
        self._attempt = attempt
        self._time.after(0.05, lambda: self._sweep(attempt))

    def _sweep(self, attempt: int) -> None:
        if self.node.power is Power.UP:
            self._ranks.kill_older(self.node.name, attempt)
            self._send({"type": "gone", "node": self.node.name, "attempt": attempt - 1})

    # --- the ranks --------------------------------------------------------------------------------------------------

    def heard(self, message: Message) -> None:
        """A rank of this node has said something."""
        message["t"], message["m"] = self.wall(), self.monotonic()
        if self._board.take(message, message["m"]):
            self.tell({"type": "rank", "node": self.node.name, "m": message})

    def heard_at(self, message: Message, at: float) -> None:
        """The same, said at a moment that has passed already."""
        message["t"], message["m"] = at + self.node.skew_s, self.monotonic() - (self._time.now - at)
        if self._board.take(message, message["m"]):
            self.tell({"type": "rank", "node": self.node.name, "m": message})

    def read(self, rank: int, attempt: int, data: bytes) -> None:
        """The log of a rank has grown; a line that is not whole waits for its end."""
        if attempt != self._attempt:
            return
        *lines, self._rest[rank] = (self._rest.get(rank, b"") + data).split(b"\n")
        for line in lines:
            number = self._lines[rank] = self._lines.get(rank, 0) + 1
            match = _scanned(line.decode("utf-8", "replace"))
            if (
                match is None
                or match.role == "benign"
                or (match.role == "cascade" and (rank, match.kind) in self._sent)
            ):
                continue
            self._sent.add((rank, match.kind))
            told = {
                "attempt": attempt,
                "cycle": 0,
                "rank": rank,
                "node": self.node.name,
                "file": f"attempts/{attempt:04d}/logs/rank_{rank:05d}.log",
                "line": number,
                "wall": self.wall(),
                "monotonic": self.monotonic(),
                "offset_bound": 0.05,
                "kind": match.kind,
                "role": match.role,
                "category": match.category,
                "blames": match.blames,
                "text": match.text,
            }
            self._found.append({"type": "finding", "node": self.node.name, "finding": told})
            self.tell(self._found[-1])

    def still_here(self) -> None:
        """A beat in which nothing is new: all that it shows is that the agent lives."""
        if self._link is not None and self.node.power is Power.UP:
            self._link.last_beat = self._time.now

    def beat(self, echo: object = None) -> None:
        """Where the ranks of this node are; those of a node where nothing has changed need not be said again."""
        if self._link is None or self.node.power is not Power.UP:
            return
        rows = self._ranks.rows(self.node.name)
        same = [row[:4] for row in rows] == self._beat_of
        self._beat_of = [row[:4] for row in rows]
        beat: Message = {
            "type": "beat",
            "node": self.node.name,
            "wall": self.wall(),
            "dropped": 0,
            "ranks": [] if same else rows,
        }
        if isinstance(echo, int | float):
            beat["echo"] = echo
        self._send(beat)

    def tell(self, message: Message) -> None:
        """Tell the controller, at once or as late as the network is."""
        if self.node.power is Power.FROZEN:
            self._held.append(message)
            return
        kind = message["m"].get("k") if message["type"] == "rank" else message["type"]
        lag = self.lag_s.get(kind, 0.0) if self.lag_s else 0.0
        if lag > 0:
            self._time.after(lag, lambda: self._send(message))
        else:
            self._send(message)

    def shout(self, message: Message) -> None:
        """Send over the wire, as bytes: what is not greeted is not heard."""
        if self._link is not None:
            self._link.data_received(json.dumps(message).encode() + b"\n")

    def _send(self, message: Message) -> None:
        if self._link is not None and self._hub is not None and self.node.power is Power.UP:
            self._hub.take(self._link, message)
