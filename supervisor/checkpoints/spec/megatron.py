"""From Megatron-LM's arguments to the document of what its saves must hold: torch_dist, distributed Adam. Pure.

Names and shapes were laid beside real saves of Megatron Core 0.19.2. Two layouts of the optimizer are known:
`fully_reshardable` (and the older fully_sharded_model_space), a tensor for every weight and state, and `dp_reshardable`,
Megatron's default: flat buckets, where the number of elements is all that can be told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from supervisor.checkpoints.spec.document import Document, FlatGroup, Need, Origin, Plain, Role, TensorEntry
from supervisor.checkpoints.spec.megatron_arguments import USED, Arguments, Model, model_of

_KINDS: Final[tuple[tuple[Role, str], ...]] = (
    ("master", "param"),
    ("exp_avg", "exp_avg"),
    ("exp_avg_sq", "exp_avg_sq"),
)
_ALIGNED: Final = 64  # elements; megatron/core/optimizer/param_layout.py, pad_param_start
_SPLIT_MODULES: Final = ("mlp.linear_fc1", "mlp.linear_fc2", "self_attention.linear_proj", "self_attention.linear_qkv")
_CONFIGURED: Final = (
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels",
    "padded_vocab_size", "normalization", "swiglu", "untie_embeddings_and_output_weights", "position_embedding_type",
    "max_position_embeddings", "seq_length", "qk_layernorm", "transformer_impl", "bf16", "fp16", "seed",
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
    "virtual_pipeline_model_parallel_size", "global_batch_size", "micro_batch_size", "tokenizer_type",
    "tokenizer_model", "vocab_file", "merge_file", "data_path", "data_args_path", "split", "optimizer", "adam_beta1",
    "adam_beta2", "adam_eps", "weight_decay", "clip_grad",
)  # fmt: skip
"""Arguments that Megatron keeps in the common state as they were given; validate_args changes others (sequence_parallel)."""
_SCHEDULED: Final = {"lr": "max_lr", "min_lr": "min_lr", "lr_decay_style": "lr_decay_style"}
NEEDS: Final = (
    Need(question="how many samples were read", any_of=("counters.samples",)),
    Need(question="how many updates were applied", any_of=("counters.updates",)),
    Need(question="how many updates were skipped", any_of=("counters.skipped",)),
    Need(question="how large is the next step", any_of=("counters.lr",)),
    Need(question="where does the schedule stand", any_of=("schedule.num_steps",)),
    Need(question="which iteration", any_of=("counters.iteration",)),
    Need(
        question="which data, in which version",
        any_of=(
            "arguments.data_path",
            "arguments.train_data_path",
            "arguments.data_args_path",
            "arguments.per_split_data_args_path",
            "arguments.mock_data",
        ),
    ),
    Need(question="what is read next", any_of=("counters.samples",)),
    Need(question="in which order is it read", any_of=("arguments.seed",)),
    Need(question="which tokenizer", any_of=("arguments.tokenizer_type", "arguments.tokenizer_model")),
    Need(question="cut into how many", any_of=("arguments.tensor_model_parallel_size",)),
    Need(question="in how many stages", any_of=("arguments.pipeline_model_parallel_size",)),
    Need(question="which software wrote it", any_of=("common.checkpoint_version",)),
)
"""Read by Megatron's own way of keeping them: the sampler goes on from the samples read, and the seed orders them."""


@dataclass(frozen=True, slots=True)
class _Param:
    """A parameter of one layer, or outside of the layers. `split`: the dimension that tensor parallelism cuts."""

    name: str
    shape: tuple[int, ...]
    split: int | None
    place: str  # layer, first or last: which pipeline stage holds it


def document_of(arguments: Arguments, origin: Origin = "megatron-arguments") -> Document:
    """What a save of this training must hold. Raises UserError."""
    model = model_of(arguments)
    params = tuple(_params(model))
    weights = [_weight(model, param) for param in params]
    states: list[TensorEntry] = []
    if not model.flat:
        states = [
            TensorEntry(name=f"optimizer.state.{key}.{w.name}", dtype="float32", shape=w.shape, role=role, of=w.name)
            for role, key in _KINDS
            for w in weights
        ]
    cut = f"TP{model.tp} PP{model.pp}"
    layout = "dp_reshardable" if model.flat else "fully_reshardable"
    return Document(
        origin=origin,
        about={"framework": "Megatron Core torch_dist", "optimizer": layout, "cut": cut},
        tensors=(*weights, *states),
        flat=tuple(_flat(model, params)) if model.flat else (),
        objects=tuple(_objects(model)),
        optional=tuple(_optional(model)),
        needs=NEEDS,
        settings=_settings(arguments, model, layout),
        ignored=tuple(sorted(set(arguments) - USED - set(_CONFIGURED) - set(_SCHEDULED))),
    )


def _weight(model: Model, param: _Param) -> TensorEntry:
    # Layers of one kind are stored as one tensor, a layer an index of its first dimension.
    stacked = (model.layers, *param.shape) if param.place == "layer" else param.shape
    return TensorEntry(name=param.name, dtype=model.dtype, shape=stacked, role="weight")


def _params(model: Model) -> Iterator[_Param]:
    h, layer = model.hidden, "decoder.layers."
    attention, mlp = f"{layer}self_attention.", f"{layer}mlp."
    q = (model.heads + 2 * model.groups) * model.channels
    wide = model.ffn * (2 if model.gated else 1)
    yield _Param("embedding.word_embeddings.weight", (model.vocab, h), 0, "first")
    if model.positions is not None:
        yield _Param("embedding.position_embeddings.weight", (model.positions, h), None, "first")
    yield _Param(f"{attention}linear_proj.weight", (h, model.heads * model.channels), 1, "layer")
    yield _Param(f"{attention}linear_qkv.weight", (q, h), 0, "layer")
    yield _Param(f"{mlp}linear_fc1.weight", (wide, h), 0, "layer")
    yield _Param(f"{mlp}linear_fc2.weight", (h, model.ffn), 1, "layer")
    if model.bias:
        yield _Param(f"{attention}linear_proj.bias", (h,), None, "layer")
        yield _Param(f"{mlp}linear_fc1.bias", (wide,), 0, "layer")
        yield _Param(f"{mlp}linear_fc2.bias", (h,), None, "layer")
    if model.qkv_bias:
        yield _Param(f"{attention}linear_qkv.bias", (q,), 0, "layer")
    yield from _norm(model, f"{attention}linear_qkv.layer_norm_", h, "layer")
    yield from _norm(model, f"{mlp}linear_fc1.layer_norm_", h, "layer")
    if model.qk_norm:
        yield from _norm(model, f"{attention}q_layernorm.", model.channels, "layer")
        yield from _norm(model, f"{attention}k_layernorm.", model.channels, "layer")
    yield from _norm(model, "decoder.final_layernorm.", h, "last")
    if not model.tied:
        yield _Param("output_layer.weight", (model.vocab, h), 0, "last")


def _norm(model: Model, prefix: str, size: int, place: str) -> Iterator[_Param]:
    yield _Param(f"{prefix}weight", (size,), None, place)
    if not model.rms:
        yield _Param(f"{prefix}bias", (size,), None, place)


def _flat(model: Model, params: tuple[_Param, ...]) -> Iterator[FlatGroup]:
    """A group for each model-parallel rank; tensor parallelism runs fastest."""
    for stage in range(model.pp):
        sizes = [size for param in params for size in _local(model, param, stage)]
        for rank in range(model.tp):
            yield FlatGroup(
                prefix=f"optimizer.distributed.dp_group_idx_{stage * model.tp + rank}.",
                kinds=tuple(key for _, key in _KINDS),
                dtype="float32",
                least=sum(sizes),
                most=sum(-(-size // _ALIGNED) * _ALIGNED for size in sizes),
            )


def _local(model: Model, param: _Param, stage: int) -> list[int]:
    """Elements of each parameter of this name that a rank of this stage holds."""
    size = prod(param.shape) // (model.tp if param.split is not None else 1)
    last = stage == model.pp - 1
    if param.place == "layer":
        return [size] * (model.layers // model.pp)
    if param.place == "first":
        # With tied embeddings the last stage holds the word embeddings too, to read out with.
        twin = model.tied and last and param.name == "embedding.word_embeddings.weight"
        return [size] if stage == 0 or twin else []
    return [size] if last else []


def _objects(model: Model) -> Iterator[str]:
    yield "common_state/shard_0_1"
    for stage in range(model.pp):
        for rank in range(model.tp):
            yield f"rng_state/shard_{stage}.{rank}_{model.pp}.{model.tp}"
    if model.local:
        for module in _SPLIT_MODULES:
            for n in range(model.layers):
                yield f"decoder.layers.{module}._extra_state/shard_{n}_{model.layers}"
    if model.flat:
        for group in range(model.tp * model.pp):
            for what in ("optimizer", "per_bucket_numel", "per_bucket_numel_unpadded"):
                yield f"optimizer.distributed.dp_group_idx_{group}.{what}/shard_0_1"


def _optional(model: Model) -> Iterator[str]:
    yield "rerun_state_machine_state/shard_*"
    if not model.local:
        # Transformer Engine keeps scales of fp8 there; which of its modules do depends on its version.
        yield "decoder.layers.*._extra_state/shard_*"
        yield "decoder.final_layernorm._extra_state/shard_*"


def _settings(arguments: Arguments, model: Model, layout: str) -> dict[str, Plain]:
    given = {f"arguments.{name}": arguments[name] for name in _CONFIGURED if _is_plain(arguments.get(name))}
    if not arguments.get("group_query_attention"):
        given.pop("arguments.num_query_groups", None)  # Megatron puts the number of heads there
    given["arguments.tensor_model_parallel_size"] = model.tp
    given["arguments.pipeline_model_parallel_size"] = model.pp
    given |= {f"schedule.{kept}": arguments[n] for n, kept in _SCHEDULED.items() if _is_plain(arguments.get(n))}
    if model.flat:
        given["content.distrib_optim_sharding_type"] = layout
    return given


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, bool | int | float | str) for item in value)
    return isinstance(value, bool | int | float | str)
