"""A save in the order in which Megatron writes one, by real ranks with torch's own writer, that can be held at any window.

Shards at their final names, `.metadata.tmp`, the old `.metadata` away, the rename, metadata.json, the tracker rewritten in
place (facts measured on Megatron Core 0.19.2). A rank that comes to the window says so and waits there to be killed, so
that whoever kills needs no clock. Ranks are forked from one warm process: `Nursery` starts it, and this file is what it runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import zlib
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import IO, Any, Final, NoReturn

TRACKER: Final = "latest_checkpointed_iteration.txt"
METADATA_JSON: Final = '{"sharded_backend": "torch_dist", "sharded_backend_version": 1}'
SHARDS, UNBEGUN, METADATA, RENAME, JSON, TORN, NONE = (
    "shards", "unbegun", "metadata", "rename", "metadata.json", "tracker", "",
)  # fmt: skip
"""Where the last rank, or the coordinator, is held: its shard opened; its shard not touched; all shards there and no
`.metadata`; between the removal of the old one and the rename; before metadata.json; the tracker cut to nothing."""
WINDOWS: Final = (SHARDS, UNBEGUN, METADATA, RENAME, JSON, TORN)
BATCH: Final = 8


@dataclass
class Held:
    """Ranks that are held at a window, or have ended. `said`: what each of them said."""

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
        """SIGKILL for all of them, as a node or a job dies; their exit codes."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> list[int]:
        """Their exit codes, once they have all ended."""
        self.nursery.tell({"wait": self.pids})
        while (line := self.nursery.hear()).startswith("rank "):
            self.said.append(line)
        return [int(code) for code in line.split()[1:]]


class Nursery:
    """The warm process. `world` ranks write each save."""

    def __init__(self, world: int) -> None:
        self.world = world
        env = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", os.path.abspath(__file__), str(world)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip

    def save(self, folder: str, step: int, *, word: str = "", window: str = NONE) -> Held:
        """Begin a save of `step` below `folder`. `word` makes its content another one than that of the same step elsewhere."""
        self.tell({"folder": folder, "step": step, "word": word, "window": window})
        said: list[str] = []
        while not (line := self.hear()).startswith("pids "):
            said.append(line)
        return Held(self, [int(pid) for pid in line.split()[1:]], said)

    def whole(self, folder: str, step: int, *, word: str = "") -> None:
        """Write a save to its end. Raises RuntimeError."""
        held = self.save(folder, step, word=word)
        codes = held.wait()
        if any(codes):
            raise RuntimeError(f"the ranks ended with {codes}: {held.said}")

    def held_at(self, folder: str, step: int, window: str, *, word: str = "") -> Held:
        """Begin a save, and return when it is held at the window and the other ranks have nothing left to write."""
        held = self.save(folder, step, word=word, window=window)
        last = self.world - 1
        if window in {SHARDS, UNBEGUN}:
            held.until(*(f"rank {rank} wrote" for rank in range(last)), f"rank {last} at {window}")
        else:
            held.until(f"rank 0 at {window}")
        return held

    def tell(self, order: Mapping[str, object]) -> None:
        """Give the warm process an order."""
        pipe = self._pipe(self._process.stdin)
        pipe.write(json.dumps(order) + "\n")
        pipe.flush()

    def hear(self) -> str:
        """The next line of it or of its ranks. Raises RuntimeError when it is gone."""
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"the warm process ended with {self._process.wait()}")
        return line.rstrip("\n")

    def close(self) -> None:
        """End it."""
        self._pipe(self._process.stdin).close()
        self._process.wait()
        self._pipe(self._process.stdout).close()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None  # noqa: S101 - asked for above
        return pipe


# --- in the warm process -----------------------------------------------------------------------------------------------


def _farm(world: int) -> None:
    """Fork the ranks of a save for each order, or wait for those of one. Ends when nobody gives orders any more."""
    import torch.distributed.checkpoint  # noqa: F401, PLC0415 - here, so that no rank has to

    import supervisor.bench.trainer.state  # noqa: F401, PLC0415

    living, ours = os.pipe()
    with tempfile.TemporaryDirectory(prefix="relight-meet-") as meet:
        for number, line in enumerate(sys.stdin):
            order = json.loads(line)
            if "wait" in order:
                codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in order["wait"]]
                _say(f"codes {' '.join(map(str, codes))}")
                continue
            pids = []
            for rank in range(world):
                pid = os.fork()
                if pid == 0:
                    os.close(ours)
                    _be_rank(Rank(rank, world, living, **order), os.path.join(meet, str(number)))
                pids.append(pid)
            _say(f"pids {' '.join(map(str, pids))}")


def _be_rank(rank: Rank, meet: str) -> NoReturn:
    code = 1
    try:
        rank.save_all(meet)
        code = 0
    except BaseException:  # noqa: BLE001 - it must not go on as the warm process
        traceback.print_exc()
    _say(f"rank {rank.rank} ended")
    os._exit(code)


def _say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # one write: lines of several ranks never mix


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank and its order. `living`: a pipe that ends with the warm process, so that nobody who is held outlives it."""

    rank: int
    world: int
    living: int
    folder: str
    step: int
    word: str
    window: str

    def save_all(self, meet: str) -> None:
        """Meet the others, write, publish. Raises what torch raises."""
        import torch.distributed as dist  # noqa: PLC0415
        import torch.distributed.checkpoint as dcp  # noqa: PLC0415

        dist.init_process_group(
            "gloo",
            init_method=f"file://{meet}",
            rank=self.rank,
            world_size=self.world,
            timeout=timedelta(seconds=120),
        )
        path = os.path.join(self.folder, f"iter_{self.step:07d}")
        if self.rank == 0:
            os.makedirs(path, exist_ok=True)
        dist.barrier()
        # Not flattened: Megatron's common state is one object, and so it must stay.
        planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
        dcp.save(self._state(), storage_writer=_writer(path, self), planner=planner)
        if self.rank == 0:
            self.hold_at(JSON)
            with open(os.path.join(path, "metadata.json"), "w", encoding="ascii") as file:
                file.write(METADATA_JSON)
        dist.barrier()
        if self.rank == 0:
            with open(os.path.join(self.folder, TRACKER), "w", encoding="ascii") as file:
                self.hold_at(TORN)
                file.write(str(self.step))
        dist.barrier()
        dist.destroy_process_group()

    def hold_at(self, window: str) -> None:
        """Say so and wait for the kill, when this is the window of the order."""
        last = self.world - 1 if self.window in {SHARDS, UNBEGUN} else 0
        if (window, self.rank) == (self.window, last):
            _say(f"rank {self.rank} at {window}")
            os.read(self.living, 1)
            os._exit(1)

    def _state(self) -> dict[str, Any]:
        """A weight cut over all ranks in three kinds, and Megatron's common state; equal in size for every step and word."""
        import torch  # noqa: PLC0415

        from supervisor.bench.trainer.gpt import Spec  # noqa: PLC0415
        from supervisor.bench.trainer.state import Piece  # noqa: PLC0415

        state: dict[str, Any] = {}
        for kind in ("decoder.weight", "optimizer.state.exp_avg.weight", "optimizer.state.exp_avg_sq.weight"):
            spec = Spec(kind, (64 * self.world, 32), 0, 0.02, True, self.world, self.rank)
            seed = zlib.crc32(f"{kind} {self.rank} {self.step} {self.word}".encode())
            state[kind] = Piece.of(torch.rand(spec.local, generator=torch.Generator().manual_seed(seed)), spec)
        args = Namespace(iteration=self.step, consumed_train_samples=BATCH * self.step, skipped_train_samples=0)
        schedule = {"num_steps": BATCH * self.step, "max_lr": 1e-3}
        common = {"args": args, "iteration": self.step, "checkpoint_version": 3.0, "opt_param_scheduler": schedule}
        if self.rank == 0:
            state["common_state/shard_0_1"] = [common]
        return state


def _writer(path: str, rank: Rank) -> Any:
    """The writer and the file system of torch, with ears at the windows that lie within them."""
    from torch.distributed.checkpoint import FileSystemWriter  # noqa: PLC0415
    from torch.distributed.checkpoint.filesystem import FileSystem  # noqa: PLC0415

    class Files(FileSystem):  # type: ignore[misc]
        @contextmanager
        def create_stream(self, name: Any, mode: str) -> Iterator[Any]:
            with super().create_stream(name, mode) as stream:
                if str(name).endswith(".distcp"):
                    rank.hold_at(SHARDS)
                yield stream

        def rename(self, name: Any, new: Any) -> None:
            rank.hold_at(RENAME)
            super().rename(name, new)

    class Writer(FileSystemWriter):  # type: ignore[misc]
        def write_data(self, plan: Any, planner: Any) -> Any:
            rank.hold_at(UNBEGUN)
            done = super().write_data(plan, planner)
            done.wait()
            _say(f"rank {rank.rank} wrote")
            return done

        def finish(self, metadata: Any, results: Any) -> None:
            rank.hold_at(METADATA)
            super().finish(metadata, results)

    writer = Writer(path)
    writer.fs = Files()
    return writer


if __name__ == "__main__":
    _farm(int(sys.argv[1]))
