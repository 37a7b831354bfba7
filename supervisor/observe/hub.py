"""Where the agents connect: it hears where every rank is, and asks for evidence. It decides nothing and writes no file."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from policies.facts import UNKNOWN, AttemptView, CaptureView, Finding, StepRow, Unknown
from supervisor.observe import messages
from supervisor.observe.capturing import Capturing
from supervisor.observe.connection import Connection
from supervisor.observe.intake import Clock, Intake
from supervisor.observe.messages import Checked, Hello, Raw
from supervisor.observe.reads import Reads

_RECORD: Final = 4096
"""Bytes of an exit record that are read."""

_RECORD_NAME: Final = re.compile(r"rank_(\d{5,8})\.json")


@dataclass(frozen=True, slots=True)
class NodeAgent:
    """One connected agent. Times are the controller's clock; `offset` is that clock minus the node's, give or take
    `offset_bound`; no process of an attempt up to `gone_attempt` is left on the node.
    """

    since: float
    last_beat: float
    offset: float
    offset_bound: float
    gone_attempt: int
    told: bool
    """It has beaten since it connected, and so has told before what it had kept."""
    unhealthy: tuple[str, ...] = ()
    """What its checks found to be wrong, each with its text; `unchecked`: those that could not look, and why."""
    unchecked: tuple[str, ...] = ()
    checked: Checked | None = None
    """The last whole round of checks that it has told of since it connected."""


class Hub:
    """The server for the agents of one run.

    `clock` gives wall seconds. `on_event` is called (in the event loop's thread) whenever something has come that a
    decision may hang on; beats alone do not. An agent whose last beat is older than `silent_s` is listed as silent. `reads`
    hears what the agents say of the files that they read.
    """

    def __init__(
        self,
        run_dir: str,
        token: str,
        clock: Callable[[], float],
        on_event: Callable[[], None],
        beat_s: float,
        silent_s: float = 6.0,
        reads: Reads | None = None,
    ) -> None:
        self.token = token
        self._reads = reads or Reads()
        self._run_dir = run_dir
        self._clock = clock
        self._on_event = on_event
        self._beat_s = beat_s
        self._silent_s = silent_s
        self.changes = 0  # counts agents that come, go, or tell something of their node; beats alone do not
        self._server: asyncio.Server | None = None
        self._connections: dict[str, Connection] = {}
        self._met: set[str] = set()
        self._all: set[Connection] = set()
        self._gone: dict[str, int] = {}
        self._ending = 0  # up to here attempts are to be ended, the newest one too
        self._checked: dict[str, Checked] = {}
        self._epoch = 0
        self._attempt = 0
        self._nodes: frozenset[str] = frozenset()
        self._intake = Intake()
        self._capturing: Capturing | None = None
        self._read_exits: set[tuple[int, str]] = set()
        self.dropped: dict[str, int] = {}
        self._handlers: dict[str, Callable[[Connection, Raw], None]] = {
            "beat": self._beat,
            "rank": self._rank,
            "finding": self._finding,
            "health": self._health,
            "checked": self._is_checked,
            "captured": self._captured,
            "gone": self._is_gone,
            "read-part": self._read,
            "read-done": self._read,
        }

    # --- the server ------------------------------------------------------------------------------------------------

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; returns the port. Call set_attempt() first, so that agents learn the right epoch."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port, backlog=1024)
        self._reads.bind(self._ask, loop.call_soon_threadsafe)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and drop every agent."""
        if self._server is not None:
            self._reads.unbind()
            self._server.close()
            for connection in list(self._all):
                connection.close()
            await self._server.wait_closed()
            self._server = None

    def _accept(self) -> Connection:
        connection = Connection(self, self._clock)
        self._all.add(connection)
        return connection

    def greeted(self, connection: Connection, greeting: Hello) -> None:
        """Welcome an agent; one that was connected for the same node before is let go."""
        before = self._connections.get(greeting.node)
        self._connections[greeting.node] = connection
        self._met.add(greeting.node)
        # It may be another process, of a node that has booted since; what was checked it says again.
        self._checked.pop(greeting.node, None)
        self.changes += 1
        if before is not None:
            before.close()
            self._reads.lost(greeting.node)
        connection.send(
            {
                "type": "welcome",
                "epoch": self._epoch,
                "attempt": self._attempt,
                "beat_s": self._beat_s,
                "clock": self._clock(),
            }
        )
        self._on_event()

    def take(self, connection: Connection, message: Raw) -> None:
        """One message of an agent; what makes no sense is counted."""
        kind = message.get("type")
        handler = self._handlers.get(kind) if isinstance(kind, str) else None
        if handler is None:
            self.ignored()
        else:
            handler(connection, message)

    def ignored(self) -> None:
        """Count what made no sense."""
        self._intake.ignored += 1

    @property
    def ignored_count(self) -> int:
        """Messages that made no sense, or came from an attempt that is over."""
        return self._intake.ignored

    def lost(self, connection: Connection) -> None:
        """Forget a connection."""
        self._all.discard(connection)
        if connection.node and self._connections.get(connection.node) is connection:
            del self._connections[connection.node]
            self._reads.lost(connection.node)
            self.changes += 1
            if self._capturing is not None:
                self._capturing.answered(connection.node, {}, self._clock())
            self._on_event()

    # --- what the controller asks ----------------------------------------------------------------------------------

    def set_attempt(self, epoch: int, attempt: int, world: int, nodes: Iterable[str] = ()) -> None:
        """The newest attempt: agents end what is left of older ones and say so. `nodes` are those that hold slots.

        The same attempt again keeps what is known of it.
        """
        self._epoch = max(self._epoch, epoch)
        self._nodes = frozenset(nodes)
        self._intake.begin(attempt, world, self._nodes)
        self._attempt = max(self._attempt, attempt)
        self._tell({"type": "attempt", "epoch": self._epoch, "attempt": self._attempt, "clock": self._clock()})

    def set_reference(
        self, attempt: int, rows: Mapping[int, StepRow], tolerance: float = 0.0, window: int = 16
    ) -> None:
        """Lay this attempt over these rows (by step) of the earlier lineage. Call it before its first step comes."""
        if attempt in self._intake.attempts:
            self._intake.attempts[attempt].lay_over(rows, tolerance, window=window)

    def restore(self, attempt: int, rows: Iterable[StepRow]) -> None:
        """Take over rows that a controller before us has written: they count, but are not drained again."""
        for row in rows:
            if attempt in self._intake.attempts:
                self._intake.attempts[attempt].row(row, non_finite=row.loss is None, from_log=False)

    def watch(self, attempt: int, logs: Iterable[str]) -> None:
        """Have every agent read these files too (absolute paths)."""
        self._tell({"type": "watch", "epoch": self._epoch, "attempt": attempt, "logs": list(logs)})

    def end(self, attempt: int) -> None:
        """Have every agent kill what an attempt has left, and say when nothing is (`gone`)."""
        self._ending = max(self._ending, attempt)
        self._tell({"type": "end", "epoch": self._epoch, "attempt": attempt})

    def over(self) -> None:
        """Tell the agents that the run is over; they end."""
        self._tell({"type": "over", "epoch": self._epoch})

    def capture(self, incident: int, attempt: int, deadline_s: float = 30.0, *, stacks: bool = True) -> None:
        """Ask every agent for the evidence of its ranks. Who is silent, or does not answer in time, is unknown.

        Without `stacks` only for what is in the logs by now: the findings of each node come before its answer.
        """
        known = self._intake.attempts.get(attempt)
        now = self._clock()
        able = [node for node, one in self._connections.items() if not self._is_silent(one, now)]
        asked = Capturing(incident, attempt, known.world if known else 0, able, now + deadline_s)
        self._capturing = asked
        self._tell(
            {
                "type": "capture",
                "epoch": self._epoch,
                "incident": incident,
                "attempt": attempt,
                "deadline_s": deadline_s,
                "stacks": stacks,
                "clock": self._clock(),
            }
        )
        if self._server is not None:
            asyncio.get_running_loop().call_later(deadline_s, self._deadline, asked)

    def check(self, node: str, incident: int) -> None:
        """Ask one agent to look at its node anew. One that does not hear it is asked again by whoever waits for the answer."""
        self._ask(node, {"type": "check", "incident": incident})

    def when_captured(self, callback: Callable[[int], None]) -> None:
        """Call back once, with the number of ranks that are unknown, when the capture now under way is done."""
        if self._capturing is not None:
            self._capturing.call_back(callback, self._clock())

    def capture_state(self) -> CaptureView | None:
        """How far the newest capture is; None when there was none."""
        return None if self._capturing is None else self._capturing.state(self._clock())

    def connected(self) -> dict[str, NodeAgent]:
        """Every agent that is connected now."""
        told = self._intake.nodes.told
        return {
            node: NodeAgent(
                since=one.since,
                last_beat=one.last_beat,
                offset=one.offset,
                offset_bound=one.offset_bound,
                gone_attempt=self._gone.get(node, 0),
                told=one.told,
                unhealthy=told(node, "unhealthy"),
                unchecked=told(node, "unknown"),
                checked=self._checked.get(node),
            )
            for node, one in self._connections.items()
        }

    def away(self) -> frozenset[str]:
        """Nodes whose agent has left, or is not heard of any more. May be called from any thread."""
        now = self._clock()
        here = {node for node, one in list(self._connections.items()) if not self._is_silent(one, now)}
        return frozenset(list(self._met)) - here

    def drain_rows(self) -> list[StepRow]:
        """Step rows that have come since the last call, in order."""
        rows, self._intake.rows = self._intake.rows, []
        return rows

    def progress(self, attempt: int, now: float, running: bool | Unknown = UNKNOWN) -> AttemptView:
        """The attempt as it stands; `running` is what the cluster shows. An attempt never heard of is empty."""
        known = self._intake.attempts.get(attempt)
        if known is None:
            return AttemptView(attempt, running)
        silent = (n for n in self._nodes if n not in self._connections or self._is_silent(self._connections[n], now))
        return known.view(running, frozenset(silent), now)

    def findings(self, attempt: int) -> tuple[Finding, ...]:
        """What the agents have found in this attempt, as it came."""
        return self._intake.found.of(attempt)

    def scan_exits(self, attempt: int, ranks: Collection[int] | None = None) -> int:
        """Read exit records that no agent has told us of; returns how many ends are new. Blocks on the file system.

        `ranks`: only theirs, since thousands take a while.
        """
        known = self._intake.attempts.get(attempt)
        folder = os.path.join(self._run_dir, "attempts", f"{attempt:04d}", "exit")
        if known is None:
            return 0
        try:
            names = os.listdir(folder)
        except OSError:
            return 0
        before = len(known.exits())
        for name in names:
            rank = _RECORD_NAME.fullmatch(name)
            if rank is None or (attempt, name) in self._read_exits:
                continue
            if ranks is not None and int(rank[1]) not in ranks:
                continue
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    raw = json.loads(file.read(_RECORD))
            except OSError:
                continue  # it is tried again next time
            except (ValueError, RecursionError):
                raw = None
            self._read_exits.add((attempt, name))
            node = raw.get("node") if isinstance(raw, dict) else None
            writer = self._connections.get(node) if isinstance(node, str) else None
            clock = _clock(writer) if writer is not None else Clock(0.0, 0.0)
            if self._intake.exit(raw, int(rank[1]), attempt, clock) is None:
                self.ignored()
        return len(known.exits()) - before

    # --- what the agents say ---------------------------------------------------------------------------------------

    def _beat(self, connection: Connection, raw: Raw) -> None:
        now = self._clock()
        connection.last_beat = now
        if not connection.told:
            connection.told = True
            self.changes += 1
            self._on_event()
        wall = messages.number(raw.get("wall"))
        if wall is not None:
            connection.measure(wall, messages.number(raw.get("echo")))
        self.dropped[connection.node] = messages.count(raw.get("dropped")) or 0
        self._intake.beat(raw.get("ranks"), now)
        self._intake.saving(raw.get("saving"), now)

    def _rank(self, connection: Connection, raw: Raw) -> None:
        if self._intake.rank(raw.get("m"), connection.node, _clock(connection), self._clock()):
            self._on_event()

    def _finding(self, connection: Connection, raw: Raw) -> None:
        found = self._intake.finding(raw.get("finding"), connection.node, _clock(connection))
        if found is not None and found.role == "root":
            self._on_event()

    def _health(self, connection: Connection, raw: Raw) -> None:
        news = self._intake.health(raw.get("results"), connection.node, _clock(connection))
        self.changes += bool(news)
        if any(one.state != "unknown" for one in news):
            self._on_event()

    def _is_checked(self, connection: Connection, raw: Raw) -> None:
        said, before = messages.checked(raw, _clock(connection).offset), self._checked.get(connection.node)
        if said is None:
            self.ignored()
            return
        self._checked[connection.node] = said
        if before is None or said.incident > before.incident:  # that it is checked anew every minute is no news
            self.changes += 1
            self._on_event()

    def _captured(self, connection: Connection, raw: Raw) -> None:
        asked, ranks = self._capturing, raw.get("ranks")
        if asked is None or not isinstance(ranks, dict) or raw.get("incident") != asked.incident:
            self.ignored()
            return
        kept = {int(rank): said == "ok" for rank, said in ranks.items() if re.fullmatch(r"[0-9]{1,8}", rank)}
        stacks = messages.stacks(raw.get("stacks"), connection.node, asked.world)
        asked.answered(connection.node, kept, self._clock(), stacks)
        self._on_event()

    def _deadline(self, asked: Capturing) -> None:
        asked.settle(max(self._clock(), asked.until))
        self._on_event()

    def _is_gone(self, connection: Connection, raw: Raw) -> None:
        attempt = messages.count(raw.get("attempt"))
        if attempt is None or attempt > max(0, self._attempt - 1, self._ending):
            self.ignored()  # nothing of an attempt that is not to be ended can be said to be gone: it may be starting
            return
        self._gone[connection.node] = max(self._gone.get(connection.node, 0), attempt)
        self.changes += 1
        self._on_event()

    def _read(self, connection: Connection, raw: Raw) -> None:
        if not self._reads.heard(connection.node, raw):
            self.ignored()  # of a reading that is over, or that never was

    def _ask(self, node: str, message: Raw) -> bool:
        """Send one agent a message; False when there is none."""
        connection = self._connections.get(node)
        if connection is not None:
            connection.send({"epoch": self._epoch, **message})
        return connection is not None

    def _is_silent(self, connection: Connection, now: float) -> bool:
        return now - connection.last_beat > self._silent_s

    def _tell(self, message: Raw) -> None:
        for connection in list(self._connections.values()):
            connection.send(message)


def _clock(connection: Connection) -> Clock:
    """An offset that its own bound explains is none: on one machine the clocks are the same, and so stay the times."""
    offset, bound = connection.offset, connection.offset_bound
    return Clock(offset if abs(offset) > bound else 0.0, bound)
