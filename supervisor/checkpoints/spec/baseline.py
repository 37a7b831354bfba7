"""A document taken from a save itself: a baseline for later saves, and nothing that could show what the first one lacked."""

from __future__ import annotations

from typing import Final

from supervisor.checkpoints.spec.document import Document, Need, Role, TensorEntry
from supervisor.checkpoints.spec.held import Held

_ROLES: Final[tuple[tuple[str, Role], ...]] = (
    ("optimizer.state.param.", "master"),
    ("optimizer.state.fp32_param.", "master"),
    ("optimizer.state.exp_avg.", "exp_avg"),
    ("optimizer.state.exp_avg_sq.", "exp_avg_sq"),
)
_STEADY: Final = frozenset({
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "padded_vocab_size",
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "tokenizer_type", "tokenizer_model", "seed",
    "global_batch_size", "data_path", "distrib_optim_sharding_type", "max_lr", "min_lr", "lr_decay_style",
})  # fmt: skip
"""Settings that don't change from save to save of one run."""


def baseline_of(held: Held, about: dict[str, str]) -> Document:
    """All that this save holds, as what later ones must hold."""
    weights = {of for name in held.tensors for of in [_of(name)[1]] if of in held.tensors}
    entries = []
    for name, (dtype, shape) in sorted(held.tensors.items()):
        role, of = _of(name)
        fits = of in held.tensors and held.tensors[of][1] == shape
        if name in weights:
            entries.append(TensorEntry(name=name, dtype=dtype, shape=shape, role="weight"))
        elif fits:
            entries.append(TensorEntry(name=name, dtype=dtype, shape=shape, role=role, of=of))
        else:
            entries.append(TensorEntry(name=name, dtype=dtype, shape=shape))
    facts = held.facts or {}
    counted = sorted(place for place in facts if place.startswith("counters."))
    return Document(
        origin="baseline",
        about=about,
        tensors=tuple(entries),
        objects=tuple(sorted(held.objects)),
        needs=tuple(Need(question=place, any_of=(place,)) for place in counted),
        settings={place: facts[place] for place in sorted(facts) if place.rpartition(".")[2] in _STEADY},
    )


def _of(name: str) -> tuple[Role, str]:
    """The role that a name tells, and the weight that it belongs to."""
    for prefix, role in _ROLES:
        if name.startswith(prefix):
            return role, name.removeprefix(prefix)
    return "state", ""
