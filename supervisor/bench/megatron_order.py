"""A save in the order in which Megatron writes one, by real ranks with torch's own writer, that can be held at any window.

Shards at their final names, `.metadata.tmp`, the old `.metadata` away, the rename, metadata.json, the tracker rewritten in
place (facts measured on Megatron Core 0.19.2). A rank that comes to the window says so and waits there to be killed, so
that whoever kills needs no clock. `start(world)` gives the nursery; an order is a folder, a step and a word: the same
step with another word has another content of the same size.
"""

from __future__ import annotations

import os
import sys
import zlib
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from supervisor.bench.megatron_nursery import (
    JSON,
    METADATA,
    RENAME,
    SHARDS,
    TORN,
    TRACKER,
    UNBEGUN,
    Nursery,
    Rank,
    farm,
)

METADATA_JSON: Final = '{"sharded_backend": "torch_dist", "sharded_backend_version": 1}'
KINDS: Final = ("decoder.weight", "optimizer.state.exp_avg.weight", "optimizer.state.exp_avg_sq.weight")
ROWS, COLUMNS = 64, 32
"""Of each kind; rows are those of one rank."""
BATCH: Final = 8


def start(world: int, log: str | None = None) -> Nursery:
    """The warm process of `world` ranks."""
    return Nursery([sys.executable, "-W", "ignore", "-m", "supervisor.bench.megatron_order"], world, log)


def save(rank: Rank, order: dict[str, Any]) -> None:
    """Write, publish, note. Raises what torch raises."""
    import torch.distributed as dist  # noqa: PLC0415
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415

    folder, step = order["folder"], order["step"]
    path = os.path.join(folder, f"iter_{step:07d}")
    if rank.number == 0:
        os.makedirs(path, exist_ok=True)
    dist.barrier()
    # Not flattened: Megatron's common state is one object, and so it must stay.
    planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
    dcp.save(_state(rank, step, order["word"]), storage_writer=_writer(path, rank), planner=planner)
    if rank.number == 0:
        rank.hold_at(JSON)
        with open(os.path.join(path, "metadata.json"), "w", encoding="ascii") as file:
            file.write(METADATA_JSON)
    dist.barrier()
    if rank.number == 0:
        with open(os.path.join(folder, TRACKER), "w", encoding="ascii") as file:
            rank.hold_at(TORN)
            file.write(str(step))


def _state(rank: Rank, step: int, word: str) -> dict[str, Any]:
    """A weight cut over all ranks in three kinds, and Megatron's common state; equal in size for every step and word."""
    import torch  # noqa: PLC0415

    from supervisor.bench.trainer.gpt import Spec  # noqa: PLC0415
    from supervisor.bench.trainer.state import Piece  # noqa: PLC0415

    state: dict[str, Any] = {}
    for kind in KINDS:
        spec = Spec(kind, (ROWS * rank.world, COLUMNS), 0, 0.02, True, rank.world, rank.number)
        seed = zlib.crc32(f"{kind} {rank.number} {step} {word}".encode())
        state[kind] = Piece.of(torch.rand(spec.local, generator=torch.Generator().manual_seed(seed)), spec)
    args = Namespace(iteration=step, consumed_train_samples=BATCH * step, skipped_train_samples=0)
    schedule = {"num_steps": BATCH * step, "max_lr": 1e-3}
    common = {"args": args, "iteration": step, "checkpoint_version": 3.0, "opt_param_scheduler": schedule}
    if rank.number == 0:
        state["common_state/shard_0_1"] = [common]
    return state


def _writer(path: str, rank: Rank) -> Any:
    """The writer and file system of torch, with ears at the windows that lie within them."""
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
            rank.say("wrote")
            return done

        def finish(self, metadata: Any, results: Any) -> None:
            rank.hold_at(METADATA)
            super().finish(metadata, results)

    writer = Writer(path)
    writer.fs = Files()
    return writer


def main() -> None:
    """Load what all ranks need, and fork them."""
    import torch.distributed.checkpoint  # noqa: F401, PLC0415

    import supervisor.bench.trainer.state  # noqa: F401, PLC0415

    farm(int(sys.argv[1]), save)


if __name__ == "__main__":
    main()
