"""The lease: who is the controller of a run now. The claim of the next epoch is the fence; the lease only keeps a second one away.

A holder on this host is judged by its process; one on another host, or in a container of this one, by how long ago it renewed.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass

from slurm.processes import alive, look, pid_space
from supervisor.durable import replace_whole

STALE_S = 15.0
"""A lease of another host that was not renewed for so long may be taken over. It is renewed each third of this."""


class LeaseHeldError(Exception):
    """Another controller of this run is alive."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lease, as the file says."""

    epoch: int
    host: str
    pid: int
    start_ticks: int
    renewed: float
    space: str = ""


def read_holder(path: str) -> Holder | None:
    """The holder that the file names; None without a file, or when it is torn beyond reading."""
    try:
        with open(path, "rb") as file:
            raw = json.loads(file.read(4096))
        return Holder(
            int(raw["epoch"]),
            str(raw["host"]),
            int(raw["pid"]),
            int(raw["start_ticks"]),
            float(raw["renewed"]),
            str(raw.get("space", "")),
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def is_alive(holder: Holder, now: float) -> bool:
    """Is the holder still at work, as far as can be told from here?"""
    # In a container of this host processes have other numbers.
    if holder.host == socket.gethostname() and holder.space in {"", pid_space()}:
        return alive(holder.pid, holder.start_ticks)
    return now - holder.renewed < STALE_S


class Lease:
    """The lease of this process. Raises LeaseHeldError when another living controller holds it, OSError."""

    def __init__(self, path: str, now: float) -> None:
        holder = read_holder(path)
        mine = holder is not None and (holder.host, holder.pid) == (socket.gethostname(), os.getpid())
        if holder is not None and not mine and is_alive(holder, now):
            raise LeaseHeldError(
                f"controller {holder.pid} on {holder.host} (epoch {holder.epoch}) supervises this run already"
            )
        self._path = path
        self.renew(now, holder.epoch if holder else 0)

    def renew(self, now: float, epoch: int) -> None:
        """Write that we are alive. Raises OSError."""
        own = look(os.getpid())
        assert own is not None  # noqa: S101 - this process lives
        mine = {
            "schema": 1,
            "epoch": epoch,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "start_ticks": own.start_ticks,
            "renewed": now,
            "space": pid_space(),
        }
        replace_whole(self._path, json.dumps(mine).encode())
