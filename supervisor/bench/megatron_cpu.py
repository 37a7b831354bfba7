"""What Megatron Core 0.19.2 takes from CUDA without asking, given on the CPU: for saves of tiny models over gloo.

`pretend()` must come before the first import of Megatron. Nothing here touches what is written to disk.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any, Final, Self

_MAKERS: Final = ("tensor", "zeros", "ones", "empty", "full", "arange", "rand", "randn")
_TRITON: Final = "megatron.core.transformer.moe.ops.paged_stash"
"""The one module that needs triton (1 GB), which is imported whether there are experts or not."""


class _Stream:
    """A stream that is always done."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def wait_stream(self, _: object) -> None:
        """Nothing runs on."""

    def synchronize(self) -> None:
        """Nothing runs on."""


def pretend() -> None:
    """Put the CPU where Megatron expects a GPU."""
    import torch  # noqa: PLC0415 - only where Megatron runs

    cuda: Any = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    cuda.synchronize = lambda *_a, **_k: None
    cuda.get_rng_state = lambda *_a, **_k: torch.get_rng_state()
    cuda.Stream = lambda *_a, **_k: _Stream()
    cuda.current_stream = lambda *_a, **_k: _Stream()
    cuda.stream = lambda given: given
    for name in _MAKERS:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    named = torch.Tensor.type

    def of_cuda(self: Any, *args: Any, **kwargs: Any) -> Any:
        told = named(self, *args, **kwargs)
        # Megatron's buffers sort gradients by such names, and know only those of CUDA.
        return f"torch.cuda.{told.removeprefix('torch.')}" if isinstance(told, str) and ".cuda." not in told else told

    torch.Tensor.type = of_cuda
    stash = types.ModuleType(_TRITON)
    stash.__file__ = __file__
    stash.__getattr__ = _never_called  # type: ignore[method-assign]
    sys.modules.setdefault(_TRITON, stash)


def _on_cpu(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return make(*args, **kwargs)

    return made


def _never_called(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(*_a: Any, **_k: Any) -> Any:
        raise RuntimeError(f"{_TRITON}.{name} is called without experts")

    return refuse
