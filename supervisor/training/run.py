"""One rank's side of the conversation: where it is, what it has loaded, each step, each save."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from supervisor.training.fence import is_fenced, is_stop_asked
from supervisor.training.hook import remove
from supervisor.training.sidecar import write_sidecar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervisor.training.channel import Channel

BatchTuple: TypeAlias = tuple[int, int, str]
"""Position of the first sample, how many, a hash over their ids."""

_TEXT: Final = 2048
"""Bytes of an error's text that are sent; more would not fit beside the rest in one datagram."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where this rank runs, as its environment says. Unattached: all empty."""

    rank: int = 0
    attempt: int = 0
    run_dir: str = ""
    save_dir: str = ""
    load_dir: str = ""
    checkpoint: str = ""
    reporter: bool = False


def _not_finite(loss: object) -> bool:
    try:
        return loss is not None and not math.isfinite(loss)  # type: ignore[arg-type]  # a tensor of one element will do
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return False


class Run:
    """What connect() gives. No call blocks or raises, but describe_save(), which may raise OSError.

    `attached` is False outside relight; then nothing is sent. `save_dir` is where this attempt saves, `load_dir` where
    it loads from, `checkpoint` the id of what it starts from ("" = from nothing), `attempt` its number.
    """

    def __init__(self, place: Place, channel: Channel | None) -> None:
        self._place = place
        self._channel = channel
        self._phase = "start-up"
        self.attached: bool = channel is not None
        self.rank: int = place.rank
        self.attempt: int = place.attempt
        self.save_dir: str = place.save_dir
        self.load_dir: str = place.load_dir
        self.checkpoint: str = place.checkpoint
        self.reporter: bool = place.reporter

    @property
    def dropped(self) -> int:
        """Messages that could not be sent since the last one that was."""
        return self._channel.dropped if self._channel is not None else 0

    def hello(self, *, pid: int, tp: int | None, pp: int | None, dp: int | None, capability: str) -> None:
        """Say who and where this rank believes to be; connect() does it."""
        self._send("hello", {"pid": pid, "tp": tp, "pp": pp, "dp": dp, "capability": capability})

    def phase(self, name: str) -> None:
        """Say what comes next: start-up, load, step, save, evaluation or shutdown. Each has its own stall limit."""
        self._phase = name
        self._send("phase", {})

    def loaded(
        self,
        *,
        checkpoint: str | None = None,
        step: int = 0,
        samples: int = 0,
        updates: int = 0,
        skipped: int = 0,
        lr: float | None = None,
        digest: str | None = None,
        next_batch: BatchTuple | None = None,
        tp: int | None = None,
        pp: int | None = None,
        dp: int | None = None,
    ) -> None:
        """Say what was loaded, after the load and before the first step. `checkpoint` None: the one it was given.

        `tp`, `pp` and `dp` are needed here too: a rank that does not tell its place is not accepted.
        """
        self._send(
            "loaded",
            {
                "checkpoint": self.checkpoint if checkpoint is None else checkpoint,
                "step": step,
                "samples": samples,
                "updates": updates,
                "skipped": skipped,
                "lr": lr,
                "digest": digest,
                "next": next_batch,
                "tp": tp,
                "pp": pp,
                "dp": dp,
            },
        )

    def step(
        self,
        step: int,
        *,
        samples: int = 0,
        updates: int = 0,
        skipped: int = 0,
        loss: float | None = None,
        lr: float | None = None,
        grad_norm: float | None = None,
        seconds: float = 0.0,
        batch: BatchTuple | None = None,
    ) -> None:
        """Say that `step` is finished. The reporter sends the whole row; the others only the number."""
        self._phase = "step"
        if not self.reporter:
            self._send("step", {"step": step}, keep=False)
            return
        row: dict[str, Any] = {
            "step": step,
            "samples": samples,
            "updates": updates,
            "skipped": skipped,
            "loss": loss,
            "lr": lr,
            "grad_norm": grad_norm,
            "seconds": seconds,
            "batch": batch,
        }
        if _not_finite(loss):
            row["loss"] = None
            row["non_finite"] = True
        self._send("step", row, keep=False)

    def save_began(self, step: int, directory: str, *, asynchronous: bool = False) -> None:
        """Say that a save begins, before its first byte. `directory` is relative to save_dir."""
        self._phase = "save"
        self._send("save", {"state": "begin", "step": step, "dir": directory, "asynchronous": asynchronous})

    def save_blocked(self, step: int, *, seconds: float = 0.0) -> None:
        """Say that training goes on after `seconds`; the save may still be written in the background."""
        self._phase = "step"
        self._send("save", {"state": "blocked", "step": step, "seconds": seconds})

    def save_written(self, step: int, *, seconds: float = 0.0, bytes: int = 0) -> None:  # noqa: A002  # the contract's word
        """Say that the framework has published the save; the coordinator alone says it."""
        self._send("save", {"state": "written", "step": step, "seconds": seconds, "bytes": bytes})

    def save_failed(self, step: int, text: str) -> None:
        """Say that a save came to nothing, and why. Training goes on unless the script ends."""
        self._phase = "step"
        self._send("save", {"state": "failed", "step": step, "text": str(text)[:_TEXT]})

    def describe_save(
        self,
        directory: str,
        *,
        step: int,
        samples: int,
        updates: int,
        skipped: int = 0,
        lr: float | None = None,
        digest: str | None = None,
        next_batch: BatchTuple | None = None,
        tp: int | None = None,
        pp: int | None = None,
        dp: int | None = None,
        files: Mapping[str, int] | None = None,
        data_version: str = "",
    ) -> str | None:
        """Write this rank's sidecar into the save's `directory` and return its path; None outside relight.

        `directory` is a path, not relative to save_dir as in save_began(). `files` are the names (relative to
        `directory`) and sizes in bytes of what this rank wrote. Raises OSError.
        """
        if not self.attached:
            return None
        record = {
            "schema": 1,
            "rank": self.rank,
            "attempt": self.attempt,
            "tp": tp,
            "pp": pp,
            "dp": dp,
            "step": step,
            "samples": samples,
            "updates": updates,
            "skipped": skipped,
            "lr": lr,
            "digest": digest,
            "next": next_batch,
            "files": dict(files or {}),
            "data_version": data_version,
            "wall": time.time(),
        }
        return write_sidecar(directory, self.rank, record)

    def fenced(self) -> bool:
        """May this attempt not publish any more? Ask before a save's first byte and before it is finished."""
        return self.attached and is_fenced(self._place.run_dir, self.attempt)

    def should_stop(self) -> bool:
        """Has a planned stop been asked for? Then save, and end with exit 0."""
        return self.attached and is_stop_asked(self._place.run_dir, self.attempt)

    def exception(self, kind: str, text: str, where: str) -> None:
        """Report an uncaught exception; the hook that connect() installs does it."""
        if self._channel is not None:
            # 1,200 characters stay below the datagram limit even when each takes six bytes in JSON.
            short = str(text)[:_TEXT] if str(text).isascii() else str(text)[:1200]
            self._channel.last_word("exception", {"type": kind, "text": short, "where": where, "phase": self._phase})

    def done(self) -> None:
        """Say that training has reached its end. Waits up to 0.2 s for an agent whose queue is full."""
        self._phase = "shutdown"
        if self._channel is not None:
            self._channel.last_word("done", {"phase": self._phase})

    def close(self) -> None:
        """Detach: nothing is sent any more. A script that runs to its end need not call it."""
        remove(self)
        if self._channel is not None:
            self._channel.close()

    def _send(self, kind: str, fields: dict[str, Any], *, keep: bool = True) -> None:
        if self._channel is not None:
            fields["phase"] = self._phase
            self._channel.send(kind, fields, keep=keep)
