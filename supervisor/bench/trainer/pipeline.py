"""The pipeline: one forward, one backward, once it is full (1F1B). Sends are never waited for before the end.

The memory of a stage is bounded by the number of stages behind it, as in large runs, and both directions overlap.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
import torch.distributed as dist

from supervisor.bench.trainer.gpt import Stage
from supervisor.bench.trainer.places import Groups


class Pipeline:
    """Runs one stage over micro-batches, with the stages before and behind it."""

    def __init__(self, stage: Stage, groups: Groups, shape: tuple[int, int, int], dtype: Any) -> None:
        self.stage = stage
        self.groups = groups
        self.shape = shape  # of the activations: (micro, seq, dim)
        self.dtype = dtype
        self._sends: list[Any] = []

    def train(self, micros: list[tuple[Any, Any]], collect: Any) -> float:
        """Forward and backward of all micro-batches of (tokens, counts); `collect()` after each backward.

        Returns their mean loss on the last stage, 0.0 elsewhere.
        """
        count = len(micros)
        ahead = min(self.groups.layout.pp - self.groups.place.pp - 1, count)
        kept: deque[tuple[Any, Any]] = deque()
        loss = 0.0
        for index in range(count + ahead):
            if index < count:
                kept.append(self._forward(*micros[index]))
            if index >= ahead:
                loss += self._backward(*kept.popleft(), count)
                collect()
        for _, send in self._sends:
            send.wait()
        self._sends.clear()
        return loss

    def evaluate(self, micros: list[tuple[Any, Any]]) -> float:
        """Forward alone, without dropout. Returns the mean loss on the last stage, 0.0 elsewhere."""
        self.stage.training = False
        with torch.no_grad():
            outputs = [self._forward(*micro)[1] for micro in micros]
        self.stage.training = True
        for _, send in self._sends:
            send.wait()
        self._sends.clear()
        return sum(out.item() for out in outputs) / len(micros) if self.stage.last else 0.0

    def _forward(self, tokens: Any, counts: Any) -> tuple[Any, Any]:
        given = None
        if not self.stage.first:
            given = self._receive(self.groups.previous).requires_grad_()
        out = self.stage.forward(given, tokens, counts)
        if not self.stage.last:
            self._send(out.detach(), self.groups.following)
        return given, out

    def _backward(self, given: Any, out: Any, count: int) -> float:
        loss = 0.0
        if self.stage.last:
            out = out / count
            loss = out.item()
            out.backward()
        else:
            out.backward(self._receive(self.groups.following))
        if not self.stage.first:
            self._send(given.grad, self.groups.previous)
        return loss

    def _receive(self, source: int | None) -> Any:
        room = torch.empty(self.shape, dtype=self.dtype)
        dist.irecv(room, source, group=self.groups.pp).wait()
        return room

    def _send(self, tensor: Any, to: int | None) -> None:
        tensor = tensor.contiguous()
        self._sends.append((tensor, dist.isend(tensor, to, group=self.groups.pp)))  # the tensor must outlive its send
