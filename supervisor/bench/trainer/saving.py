"""Sharded saves, in the foreground or the background, and the load. Nothing is published once the attempt is fenced."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.api import CheckpointException

from supervisor.training import Run


class FencedError(RuntimeError):
    """This attempt may not publish any more: a newer one has begun, or its end was decided."""


class StoreError(RuntimeError):
    """A save or a load came to nothing. torch's own CheckpointException is no Exception, so most code would miss it."""


@dataclass(frozen=True, slots=True)
class Slow:
    """A store that is slow on purpose: rank r of `world` begins to write after `seconds` x (r + 1) / world."""

    seconds: float
    rank: int
    world: int

    def wait(self) -> None:
        """Wait as long as this rank's turn takes."""
        time.sleep(self.seconds * (self.rank + 1) / self.world)


class FencedWriter(FileSystemWriter):
    """Asks before its shard and before `.metadata` whether it may still write, and leaves a sidecar between the two.

    `describe(files)` is called when this rank's files ({name: bytes}) are written; torch publishes `.metadata`
    only when that has returned on every rank. `written` on the coordinator is the size of all of them, once published.
    """

    def __init__(self, path: str, run: Run, describe: Callable[[dict[str, int]], Any], slow: Slow | None) -> None:
        super().__init__(path, overwrite=False)
        self.run = run
        self.describe = describe
        self.slow = slow
        self.written: int | None = None

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Write this rank's shard and sidecar. Raises FencedError, OSError."""
        if self.slow:
            self.slow.wait()
        self._ask()
        future = super().write_data(plan, planner)
        names = sorted({result.storage_data.relative_path for result in future.wait()})
        self._ask()
        self.describe({name: os.stat(os.path.join(self.path, name)).st_size for name in names})
        return future

    def finish(self, metadata: Any, results: Any) -> None:
        """Publish `.metadata`, on the coordinator. Raises FencedError, OSError."""
        self._ask()
        super().finish(metadata, results)
        self.written = sum(result.size_in_bytes for of_rank in results for result in of_rank)

    def _ask(self) -> None:
        if self.run.fenced():
            raise FencedError(f"this attempt is fenced; nothing more is written to {self.path}")


class _AsItIs:
    """torch's stager, for a state that has been copied already."""

    should_synchronize_after_execute = False

    def stage(self, state: Any) -> Any:
        """Give the state back."""
        return state

    def synchronize_staging(self) -> None:
        """Nothing runs on."""

    def close(self) -> None:
        """Nothing is open."""


class Saver:
    """Saves of one rank, one at a time. What they report goes to `run`."""

    def __init__(self, run: Run, directory: str, group: Any, *, tracker: bool) -> None:
        self.run = run
        self.directory = directory
        self.group = group
        self.tracker = tracker
        self._open: tuple[int, Any, FencedWriter, float] | None = None
        self.newest: int | None = None  # step of the newest save that was begun

    def save(
        self,
        step: int,
        state: dict[str, Any],
        describe: Callable[[str, dict[str, int]], Any],
        slow: Slow | None,
        *,
        wait: bool,
    ) -> None:
        """Save `state` under iter_%07d. With `wait` False `state` must be a copy, and the writing goes on behind.

        Raises StoreError, on every rank, when this save or the one before could not be written.
        """
        self.finish()
        began = time.monotonic()
        name = f"iter_{step:07d}"
        path = os.path.join(self.directory, name)
        self.newest = step
        self.run.save_began(step, name, asynchronous=not wait)
        writer = FencedWriter(path, self.run, lambda files: describe(path, files), slow)
        if wait:
            self._settle(step, lambda: dcp.save(state, storage_writer=writer, process_group=self.group), writer, began)
        else:
            future = dcp.async_save(state, storage_writer=writer, process_group=self.group, async_stager=_AsItIs())
            self._open = (step, future, writer, began)
        self.run.save_blocked(step, seconds=time.monotonic() - began)

    def poll(self) -> None:
        """Report the save in the background if it has ended. Raises StoreError."""
        if self._open and self._open[1].done():
            self.finish()

    def finish(self) -> None:
        """Wait for the save in the background and report it. Raises StoreError."""
        if self._open:
            step, future, writer, began = self._open
            self._open = None
            self._settle(step, future.result, writer, began)

    def _settle(self, step: int, end: Callable[[], Any], writer: FencedWriter, began: float) -> None:
        try:
            end()
        except (Exception, CheckpointException) as error:
            self.run.save_failed(step, str(error))
            raise StoreError(f"the save of step {step} failed: {error}") from error
        if writer.written is not None:  # only the coordinator has published
            self.run.save_written(step, seconds=time.monotonic() - began, bytes=writer.written)
            if self.tracker:
                _note(self.directory, step)


def _note(directory: str, step: int) -> None:
    """Note the newest save as Megatron does, but atomically. Under relight its own view takes this place."""
    path = os.path.join(directory, "latest_checkpointed_iteration.txt")
    with open(f"{path}.tmp", "w", encoding="ascii") as file:
        file.write(str(step))
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.tmp", path)


def chosen(directory: str, checkpoint: str) -> str | None:
    """The save to load, by the tracker in `directory`; None: start from nothing.

    Raises ValueError when `checkpoint` (an id such as a0002-i0000040) asks for a load and there is none, or another.
    """
    try:
        with open(os.path.join(directory, "latest_checkpointed_iteration.txt"), encoding="ascii") as file:
            text = file.read(64).strip()
    except FileNotFoundError:
        if checkpoint:
            raise ValueError(f"{checkpoint} is to be loaded, but {directory} names no save") from None
        return None
    if not text.isdecimal():
        raise ValueError(f"{directory}: the tracker says {text!r}, which is no step")
    if checkpoint and not checkpoint.endswith(f"-i{int(text):07d}"):
        raise ValueError(f"{checkpoint} is to be loaded, but {directory} names step {text}")
    return os.path.join(directory, f"iter_{int(text):07d}")


def load(path: str, state: dict[str, Any], group: Any) -> None:
    """Fill `state` in place from a save. Raises StoreError: unreadable, or a tensor is missing or has another shape."""
    try:
        dcp.load(state, storage_reader=FileSystemReader(path), process_group=group)
    except (Exception, CheckpointException) as error:
        raise StoreError(f"{path} can't be loaded: {error}") from error
