"""Ranks that are forked from one warm process, held at a window of a save, and killed there: the side that drives them.

`Nursery` starts the process and gives it orders; `farm` is what it does. Lines go through its pipes: an order in, and back
`pids ...`, what the ranks say (`rank 1 at metadata`), and `codes ...` once it was asked to wait for them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import IO, Any, Final, NoReturn, Self

TRACKER: Final = "latest_checkpointed_iteration.txt"
SHARDS, UNBEGUN, METADATA, RENAME, JSON, TORN, NONE = (
    "shards", "unbegun", "metadata", "rename", "metadata.json", "tracker", "",
)  # fmt: skip
"""Where the last rank, or the coordinator, is held: its shard opened; its shard not touched; all shards there and no
`.metadata`; between the removal of the old one and the rename; before metadata.json; the tracker cut to nothing."""
MEETING_S: Final = 120


@dataclass
class Held:
    """Ranks that are at work, are held at a window, or have ended. `said`: what they said."""

    nursery: Nursery
    pids: list[int]
    said: list[str]

    def until(self, *lines: str) -> None:
        """Wait until each of these was said. Raises RuntimeError when a rank ends before."""
        while left := set(lines) - set(self.said):
            if any(line.endswith(" ended") for line in self.said):
                raise RuntimeError(f"{sorted(left)} was not said, but {self.said}")
            self.said.append(self.nursery.hear())

    def kill(self) -> list[int]:
        """SIGKILL for all of them and what they have started, as a node dies; the exit codes of the ranks."""
        for pid in self.pids:
            os.killpg(pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> list[int]:
        """Their exit codes, once they have all ended."""
        self.nursery.tell({"wait": self.pids})
        while not (line := self.nursery.hear()).startswith("codes "):
            self.said.append(line)
        return [int(code) for code in line.split()[1:]]


class Nursery:
    """The warm process, begun with `command`. `world` ranks meet for each order. `log`: where all of them complain."""

    def __init__(self, command: Sequence[str], world: int, log: str | None = None) -> None:
        self.world = world
        env = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        with open(log, "ab") if log is not None else nullcontext() as errors:
            self._process = subprocess.Popen(
                [*command, str(world)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=env,
            )

    def begin(self, **order: Any) -> Held:
        """Fork ranks for an order."""
        self.tell(order)
        said: list[str] = []
        while not (line := self.hear()).startswith("pids "):
            said.append(line)
        return Held(self, [int(pid) for pid in line.split()[1:]], said)

    def whole(self, **order: Any) -> Held:
        """Have an order done to its end. Raises RuntimeError when a rank fails."""
        held = self.begin(window=NONE, **order)
        codes = held.wait()
        if any(codes):
            raise RuntimeError(f"the ranks ended with {codes}: {held.said}")
        return held

    def held_at(self, window: str, **order: Any) -> Held:
        """Begin a save, and return when it is held at the window and the other ranks have nothing left to write."""
        held = self.begin(window=window, **order)
        last = self.world - 1
        if window in {SHARDS, UNBEGUN}:
            held.until(*(f"rank {rank} wrote" for rank in range(last)), f"rank {last} at {window}")
        else:
            held.until(f"rank 0 at {window}")
        return held

    def tell(self, order: Mapping[str, object]) -> None:
        """Give the warm process an order."""
        pipe = _open(self._process.stdin)
        pipe.write(json.dumps(order) + "\n")
        pipe.flush()

    def hear(self) -> str:
        """The next line of it or of its ranks. Raises RuntimeError when it is gone."""
        line = _open(self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"the warm process ended with {self._process.wait()}")
        return line.rstrip("\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and with it whoever is still held."""
        _open(self._process.stdin).close()
        self._process.wait()
        _open(self._process.stdout).close()


def _open(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None  # noqa: S101 - asked for above
    return pipe


# --- in the warm process -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank. `living`: a pipe that ends with the warm process, so that nobody who is held outlives it."""

    number: int
    world: int
    window: str
    living: int

    def hold_at(self, window: str) -> None:
        """Say so and wait for the kill, when this is the window of the order."""
        last = self.world - 1 if self.window in {SHARDS, UNBEGUN} else 0
        if (window, self.number) == (self.window, last):
            self.say(f"at {window}")
            os.read(self.living, 1)
            os._exit(1)

    def say(self, text: str) -> None:
        """One line for whoever drives."""
        say(f"rank {self.number} {text}")


def say(text: str) -> None:
    """One line, in one write: those of several ranks never mix."""
    os.write(1, f"{text}\n".encode())


def farm(world: int, work: Callable[[Rank, dict[str, Any]], None]) -> None:
    """Fork `world` ranks for each order and have them meet and `work`. Ends when nobody gives orders any more."""
    living, ours = os.pipe()
    with tempfile.TemporaryDirectory(prefix="relight-meet-") as meet:
        for number, line in enumerate(sys.stdin):
            order = json.loads(line)
            if "wait" in order:
                say(f"codes {' '.join(str(_reap(pid)) for pid in order['wait'])}")
                continue
            window, pids = order.pop("window"), []
            for rank in range(world):
                pid = os.fork()
                if pid == 0:
                    os.close(ours)
                    os.setpgid(0, 0)
                    _be_rank(Rank(rank, world, window, living), os.path.join(meet, str(number)), order, work)
                with suppress(OSError):  # the child was quicker
                    os.setpgid(pid, pid)
                pids.append(pid)
            say(f"pids {' '.join(map(str, pids))}")


def _reap(pid: int) -> int:
    """The exit code of a rank; what it has started goes with it."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return code


def _be_rank(rank: Rank, meet: str, order: dict[str, Any], work: Callable[[Rank, dict[str, Any]], None]) -> NoReturn:
    code = 1
    try:
        import torch.distributed as dist  # noqa: PLC0415 - whoever drives needs no torch

        dist.init_process_group(
            "gloo",
            init_method=f"file://{meet}",
            rank=rank.number,
            world_size=rank.world,
            timeout=timedelta(seconds=MEETING_S),
        )
        work(rank, order)
        dist.barrier()
        code = 0
    except BaseException:  # noqa: BLE001 - it must not go on as the warm process
        traceback.print_exc()
    rank.say("ended")
    os._exit(code)
