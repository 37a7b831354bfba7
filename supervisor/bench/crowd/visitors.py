"""Those who look at a console, and those who should not: 20 pages that stay open, and a flood of bad requests.

`python -m supervisor.bench.crowd.visitors PORT RUN VIEWERS FLOOD`, the tokens one a line on stdin, prints "looking" as soon as a
page was told of a change, goes on until stdin ends and prints what it got. `FLOOD`: so many connections send nonsense, as fast as
they are answered.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from itertools import cycle

LOOK_S = 5.0
"""How often a page reads its wall of nodes anew."""
BAD = (
    "GET /api/runs HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /api/runs/crowd/plan HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n\r\n",
    "POST /api/runs/crowd/halt HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n" + '{"why": "now"',
    "GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    "DELETE /api/runs/" + "a" * 4000 + " HTTP/1.1\r\nHost: x\r\n\r\n",
    "nonsense\r\n\r\n",
)


class Visitors:
    """`got`: answers by status. `events`: changes that the pages were told."""

    def __init__(self, port: int, run: str) -> None:
        self._port, self._run = port, run
        self.got: Counter[str] = Counter()
        self.events = 0

    async def view(self, token: str) -> None:
        """A page: its stream of events, and the nodes now and then. Raises OSError when the console is gone."""
        await asyncio.gather(self._stream(token), self._looks(token))

    async def _stream(self, token: str) -> None:
        while True:
            reader, writer = await self._ask(f"/api/runs/{self._run}/events", token)
            while line := await reader.readline():
                if line.startswith(b"event: change"):
                    if not self.events:
                        print("looking", flush=True)
                    self.events += 1
            writer.close()

    async def _looks(self, token: str) -> None:
        for what in cycle(("nodes", "plan", "incidents", "losses")):
            reader, writer = await self._ask(f"/api/runs/{self._run}/{what}", token)
            await reader.read()
            writer.close()
            await asyncio.sleep(LOOK_S)

    async def _ask(self, path: str, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(head.encode())
        self._count(await reader.readline())
        return reader, writer

    async def flood(self, first: int) -> None:
        """Bad requests without end, each on a connection of its own."""
        for bad in cycle(BAD[first:] + BAD[:first]):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.write(bad.encode())
                async with asyncio.timeout(5):
                    self._count(await reader.readline())
                writer.close()
            except (OSError, TimeoutError) as error:
                self.got[type(error).__name__] += 1

    def _count(self, line: bytes) -> None:
        self.got[line[9:12].decode("ascii", "replace") or "closed"] += 1


async def _main(port: int, run: str, viewers: int, floods: int) -> None:
    tokens = [sys.stdin.readline().strip() for _ in range(viewers)]
    all_of = Visitors(port, run)
    work = [asyncio.create_task(all_of.view(token)) for token in tokens]
    work += [asyncio.create_task(all_of.flood(i % len(BAD))) for i in range(floods)]
    told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    done, _ = await asyncio.wait((*work, told), return_when=asyncio.FIRST_COMPLETED)
    for one in done - {told}:
        one.result()
    print(json.dumps({"got": dict(all_of.got), "events": all_of.events}), flush=True)
    for one in work:
        one.cancel()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
