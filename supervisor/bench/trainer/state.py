"""All that a save holds, as tensors under logical names, and the digest that proves what was loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from supervisor.bench.trainer.gpt import Spec, Stage
from supervisor.bench.trainer.optimizer import Buffers


@dataclass(slots=True)
class Counters:
    """Both ledgers: samples read; updates applied, and those skipped, apart. `step` = updates + skipped."""

    step: int = 0
    samples: int = 0
    updates: int = 0
    skipped: int = 0


class Piece(torch.Tensor):
    """A tensor parallel part of one logical tensor, as torch's distributed checkpoint asks for it.

    It must be a Tensor, else the lookup of a part fails; `size()` is the global one, because a load compares it.
    """

    local: Any
    spec: Spec
    __torch_function__ = torch._C._disabled_torch_function_impl  # noqa: SLF001 - the documented way to a bare subclass

    @staticmethod
    def of(local: Any, spec: Spec) -> Piece:
        """Wrap this rank's part; memory is shared with `local`."""
        piece: Piece = local.detach().as_subclass(Piece)
        piece.local, piece.spec = local.detach(), spec
        return piece

    def size(self, dim: int | None = None) -> Any:
        """The size of the logical tensor."""
        whole = torch.Size(self.spec.shape)
        return whole if dim is None else whole[dim]

    def _chunk(self) -> Any:
        return ChunkStorageMetadata(offsets=torch.Size(self.spec.offsets), sizes=torch.Size(self.spec.local))

    def __create_write_items__(self, fqn: str, _: Any) -> list[Any]:
        chunk = self._chunk()
        data = TensorWriteData(
            chunk=chunk, properties=TensorProperties.create_from_tensor(self.local), size=torch.Size(self.spec.shape)
        )
        return [WriteItem(index=MetadataIndex(fqn, chunk.offsets), type=WriteItemType.SHARD, tensor_data=data)]

    def __create_chunk_list__(self) -> list[Any]:
        return [self._chunk()]

    def __get_tensor_shard__(self, _: Any) -> Any:
        return self.local


def as_state(
    b: Buffers, counters: Counters, position: int, stage: Stage, *, version: str, capability: str
) -> dict[str, Any]:
    """One rank's part of a save, by logical name. Buffers are shared, not copied; the rest is made anew.

    Random number states are named by place, so every place keeps its own; what replicas share is written once.
    """
    state: dict[str, Any] = {}
    for kind, buffer in (
        ("model", b.weights),
        ("master", b.master),
        ("exp_avg", b.exp_avg),
        ("exp_avg_sq", b.exp_avg_sq),
    ):
        for spec, view in zip(b.specs, b.views(buffer), strict=True):
            state[f"{kind}.{spec.name}"] = view if spec.split is None else Piece.of(view, spec)
    p = stage.place
    state["optimizer.step"] = b.step
    state[f"rng.shared.pp{p.pp}.dp{p.dp}"] = stage.shared.get_state()
    state[f"rng.own.pp{p.pp}.dp{p.dp}.tp{p.tp}"] = stage.own.get_state()
    numbers = {"step": counters.step, "samples": counters.samples, "skipped": counters.skipped, "position": position}
    state |= {f"ledger.{name}": torch.tensor(value, dtype=torch.int64) for name, value in numbers.items()}
    state["data.version"] = _text(version)
    state["machine.capability"] = _text(capability)
    return state


def take_back(state: dict[str, Any], stage: Stage) -> tuple[Counters, int]:
    """What a load has put into `state`, beyond the buffers: random numbers are set; counters and position returned."""
    p = stage.place
    stage.shared.set_state(state[f"rng.shared.pp{p.pp}.dp{p.dp}"])
    stage.own.set_state(state[f"rng.own.pp{p.pp}.dp{p.dp}.tp{p.tp}"])
    step, samples, skipped, position = (int(state[f"ledger.{n}"]) for n in ("step", "samples", "skipped", "position"))
    return Counters(step, samples, int(state["optimizer.step"]), skipped), position


def digest(state: dict[str, Any]) -> str:
    """xxh3_128 over this rank's own tensors: name, type, shape and bytes, in the order of the names."""
    total = xxhash.xxh3_128()
    for name in sorted(state):
        tensor = state[name]
        local = tensor.local if isinstance(tensor, Piece) else tensor
        total.update(f"{name} {local.dtype} {tuple(local.shape)}\n".encode())
        total.update(local.contiguous().reshape(-1).view(torch.uint8).numpy())
    return total.hexdigest()


def read_text(tensor: Any) -> str:
    """What `as_state` has put as text into a tensor of 32 bytes."""
    return bytes(tensor.tolist()).rstrip(b"\0").decode(errors="replace")


def _text(text: str) -> Any:
    return torch.tensor(list(text.encode()[:32].ljust(32, b"\0")), dtype=torch.uint8)
