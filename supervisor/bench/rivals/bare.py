"""The least that a restart can be: notice a death, kill the rest, start the same commands again.

`python -m supervisor.bench.rivals.bare WORLD LOGS -- CMD...` starts WORLD ranks and waits on their pidfds. It keeps no
evidence, checks nothing and knows no nodes: what relight takes beyond it is what relight's care costs.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Sequence


def start(world: int, logs: str, command: Sequence[str]) -> list[subprocess.Popen[bytes]]:
    """Start every rank with what `env://` needs, on a port that is free now. Raises OSError."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    same = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
    same |= {"MASTER_PORT": str(port), "PYTHONUNBUFFERED": "1"}
    ranks = []
    for rank in range(world):
        with open(os.path.join(logs, f"rank_{rank:05d}.log"), "ab") as log:
            env = os.environ | same | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            ranks.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env))
    return ranks


def stand_by(ranks: Sequence[subprocess.Popen[bytes]]) -> bool:
    """Wait until all have ended with 0 (True), or one has not: then kill and reap the others (False)."""
    waiting = {os.pidfd_open(rank.pid): rank for rank in ranks}
    poll = select.poll()
    for handle in waiting:
        poll.register(handle, select.POLLIN)
    good = True
    while waiting and good:
        for handle, _ in poll.poll():
            poll.unregister(handle)
            good = waiting.pop(handle).wait() == 0 and good
            os.close(handle)
    for rank in waiting.values():
        rank.kill()
    for handle, rank in waiting.items():
        rank.wait()
        os.close(handle)
    return good


def main(argv: Sequence[str]) -> int:
    """`WORLD LOGS -- CMD...`: start until it ends well."""
    world, logs, _, *command = argv
    while not stand_by(start(int(world), logs, command)):
        continue
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
