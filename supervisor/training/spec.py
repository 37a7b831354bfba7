"""What a save must hold, written by the training script itself from its named tensors and the optimizer's groups.

    spec = SaveSpec()
    spec.weights(model.named_parameters(), "model.{}")
    spec.adam(optimizer.param_groups, {"exp_avg": "optim.{}.exp_avg", "exp_avg_sq": "optim.{}.exp_avg_sq"})
    spec.tensor("rng", "uint8", (5056,))
    spec.objects("step", "lr")
    spec.need("how many samples were read", "counters.samples")
    spec.write("spec.json")  # one rank; before the first save

    relight verify --spec spec.json /ckpt/iter_0000100
    [checkpoints] spec = "spec.json" in relight.toml: each save of the run must hold it (written before the first start)

A name may hold `{}` for the weight's own name. Shapes are those of the logical tensor, so a DTensor fits and a local shard
does not. Standard library only: a tensor is anything with a shape and a dtype.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

_ROLES = ("master", "exp_avg", "exp_avg_sq")


class Tensor(Protocol):
    """Anything with a shape and a dtype."""

    @property
    def shape(self) -> Sequence[int]:
        """Of the logical tensor."""
        ...

    @property
    def dtype(self) -> Any:
        """`torch.bfloat16`, or its name."""
        ...


class SaveSpec:
    """Collects what a save must hold. Raises ValueError for what can't be: a name twice, a weight without its moments."""

    def __init__(self, **about: str) -> None:
        self._about = about
        self._tensors: dict[str, dict[str, Any]] = {}
        self._weights: dict[int, tuple[str, str, Tensor]] = {}
        self._objects: list[str] = []
        self._optional: list[str] = []
        self._needs: list[dict[str, Any]] = []
        self._settings: dict[str, Any] = {}

    def weights(self, named: Iterable[tuple[str, Tensor]], name: str = "{}") -> None:
        """The weights by name; `name` is what stands in the save for it."""
        for own, tensor in named:
            full = name.format(own)
            self.tensor(full, tensor.dtype, tensor.shape, role="weight")
            self._weights[id(tensor)] = (own, full, tensor)  # the tensor too: an id is only its own while it lives

    def adam(self, groups: Iterable[Mapping[str, Any]], names: Mapping[str, str], dtype: Any = "float32") -> None:
        """What Adam holds for each parameter of its groups. `names`: exp_avg, exp_avg_sq, and master where there is one,
        each with the name in the save; other keys (`step`) are a number a parameter.

        Raises ValueError when a parameter is no weight that was named, or when one of those is in no group and wants to
        be trained: it would stay as it is, and its moments would be missed by nobody.
        """
        missing = {"exp_avg", "exp_avg_sq"} - set(names)
        if missing:
            raise ValueError(f"Adam holds {' and '.join(sorted(missing))} too: say under which name")
        left = {key for key, (_, _, tensor) in self._weights.items() if getattr(tensor, "requires_grad", True)}
        for group in groups:
            for tensor in group["params"]:
                if id(tensor) not in self._weights:
                    raise ValueError(
                        f"a parameter of shape {tuple(tensor.shape)} is in a group, and is no named weight"
                    )
                left.discard(id(tensor))
                self._states(self._weights[id(tensor)], names, dtype)
        if left:
            raise ValueError(f"{self._weights[min(left)][0]} is in no group of the optimizer")

    def _states(self, weight: tuple[str, str, Tensor], names: Mapping[str, str], dtype: Any) -> None:
        own, full, tensor = weight
        for key, name in names.items():
            if key in _ROLES:
                self.tensor(name.format(own), dtype, tensor.shape, role=key, of=full)
            else:
                self.tensor(name.format(own), dtype, ())

    def tensor(
        self, name: str, dtype: Any, shape: Sequence[int], *, role: str = "state", of: str | None = None
    ) -> None:
        """One more tensor of the save."""
        if name in self._tensors or name in self._objects:
            raise ValueError(f"{name} is named twice")
        short = str(dtype).removeprefix("torch.")
        sizes = [int(n) for n in shape]
        self._tensors[name] = {"name": name, "dtype": short, "shape": sizes, "role": role, "of": of}

    def objects(self, *names: str) -> None:
        """Objects of the save that are no tensors."""
        for name in names:
            if name in self._tensors or name in self._objects:
                raise ValueError(f"{name} is named twice")
            self._objects.append(name)

    def optional(self, *patterns: str) -> None:
        """Names that may be there and need not; `*` stands for anything."""
        self._optional += patterns

    def need(self, question: str, *any_of: str) -> None:
        """A question that the save must answer, at one of these places: `counters.samples`, `counters.lr`, `object:NAME`,
        `tensor:NAME`.
        """
        if not any_of:
            raise ValueError(f"{question}: say where the answer stands")
        self._needs.append({"question": question, "any_of": list(any_of)})

    def setting(self, place: str, value: bool | float | str) -> None:
        """A value that the save must state, by place."""
        self._settings[place] = value

    def write(self, path: str) -> None:
        """Write the document, whole or not at all. Raises OSError; ValueError when no weight was named."""
        if not self._weights:
            raise ValueError("no weights were named: every save would do")
        document = {
            "schema": 1,
            "kind": "relight-spec",
            "origin": "training-script",
            "about": self._about,
            "tensors": list(self._tensors.values()),
            "objects": self._objects,
            "optional": self._optional,
            "needs": self._needs,
            "settings": self._settings,
        }
        temporary = f"{path}.tmp{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(document, file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
