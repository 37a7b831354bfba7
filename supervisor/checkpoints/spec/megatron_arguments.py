"""Megatron-LM's arguments, as its command line or a dump of them has it, and the model that they describe. Pure.

Names and defaults are those of Megatron-LM as packed with megatron-core 0.19.2 (megatron/training/arguments.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from supervisor.errors import UserError

Arguments = Mapping[str, Any]
REFUSED: Final[Mapping[str, str]] = {
    "num_experts": "mixture of experts",
    "multi_latent_attention": "multi-latent attention",
    "mtp_num_layers": "multi-token prediction",
    "experimental_attention_variant": "an experimental attention",
    "linear_attention_freq": "linear attention",
    "attention_output_gate": "a gate on the attention's output",
    "heterogeneous_layers_config_path": "layers that differ",
    "heterogeneous_layers_config_encoded_json": "layers that differ",
    "hetereogenous_dist_checkpoint": "layers that are stored one by one",
    "hybrid_layer_pattern": "a hybrid model",
    "hybrid_override_pattern": "a hybrid model",
    "is_hybrid_model": "a hybrid model",
    "spec": "a layer spec of your own",
    "fp8_param_gather": "parameters in fp8",
    "fp4_param_gather": "parameters in fp4",
    "use_precision_aware_optimizer": "moments in other precisions",
    "use_megatron_fsdp": "Megatron FSDP",
    "use_torch_fsdp2": "torch FSDP2",
    "use_layer_wise_distributed_optimizer": "a layer-wise optimizer",
    "optimizer_cpu_offload": "an optimizer on the host",
    "no_save_optim": "a save without its optimizer, from which nothing can go on",
    "no_save_rng": "a save without its random state, from which nothing can go on",
}
"""What would put other tensors into a save than are known here."""
UNEVEN: Final = (
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "pipeline_model_parallel_layout",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)
POSITIONS: Final = frozenset({"learned_absolute", "rope", "yarn", "none"})
USED: Final = frozenset({
    *REFUSED, *UNEVEN, "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "group_query_attention",
    "num_query_groups", "kv_channels", "padded_vocab_size", "vocab_size", "make_vocab_size_divisible_by", "pad_vocab_size",
    "position_embedding_type", "use_rotary_position_embeddings", "max_position_embeddings", "swiglu", "normalization",
    "untie_embeddings_and_output_weights", "add_bias_linear", "add_qkv_bias", "qk_layernorm", "transformer_impl", "bf16",
    "fp16", "tensor_model_parallel_size", "pipeline_model_parallel_size", "optimizer", "use_distributed_optimizer",
    "dist_ckpt_optim_fully_reshardable", "ckpt_format", "softmax_type",
})  # fmt: skip

_TEXTS: Final = frozenset({
    "data_path", "train_data_path", "data_args_path", "split", "tokenizer_type", "tokenizer_model", "vocab_file", "merge_file",
})  # fmt: skip
"""Arguments that stay text where they look like a number: the weights of a blend of data do."""


@dataclass(frozen=True, slots=True)
class Model:
    """The shape of a GPT and of how it is cut. `positions`: rows of learned positions; `flat`: dp_reshardable."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    groups: int
    channels: int
    vocab: int
    positions: int | None
    gated: bool
    tied: bool
    rms: bool
    bias: bool
    qkv_bias: bool
    qk_norm: bool
    local: bool
    dtype: str
    tp: int
    pp: int
    flat: bool


def parse(words: Sequence[str]) -> dict[str, Any]:
    """A command line of Megatron's by name: `--num-layers 4 --bf16` is {"num_layers": 4, "bf16": True}.

    Raises UserError for a word that belongs to no argument.
    """
    found: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            flag, equals, value = word[2:].partition("=")
            name = flag.replace("-", "_")
            found[name] = [_value(name, value)] if equals else []
        elif name:
            found[name].append(_value(name, word))
        else:
            raise UserError(f"{word[:80]!r} belongs to no argument: Megatron's arguments begin with --")
    given = {name: True if not values else values[0] if len(values) == 1 else values for name, values in found.items()}
    if given.pop("disable_bias_linear", False):
        given["add_bias_linear"] = False
    if given.get("data_path") is not None and not isinstance(given["data_path"], list):
        given["data_path"] = [given["data_path"]]  # as argparse has it: one or more
    return given


def _value(name: str, word: str) -> int | float | str:
    for kind in () if name in _TEXTS else (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        return number if math.isfinite(number) else word
    return word


def model_of(arguments: Arguments) -> Model:
    """The model that arguments describe. Raises UserError for what is missing, impossible or not known here."""
    _refuse(arguments)
    hidden, heads = _whole(arguments, "hidden_size"), _whole(arguments, "num_attention_heads")
    layers = _whole(arguments, "num_layers")
    tp, pp = _whole(arguments, "tensor_model_parallel_size", 1), _whole(arguments, "pipeline_model_parallel_size", 1)
    gated = bool(arguments.get("swiglu"))
    if arguments.get("kv_channels") is None and hidden % heads:
        raise UserError(f"--hidden-size {hidden} is no multiple of --num-attention-heads {heads}")
    usual = hidden * 8 // 3 // 64 * 64 if gated else 4 * hidden
    bias = arguments.get("add_bias_linear") is not False
    flat = not arguments.get("dist_ckpt_optim_fully_reshardable")
    model = Model(
        layers=layers,
        hidden=hidden,
        ffn=_whole(arguments, "ffn_hidden_size", usual),
        heads=heads,
        groups=_whole(arguments, "num_query_groups", 1) if arguments.get("group_query_attention") else heads,
        channels=_whole(arguments, "kv_channels", max(hidden // heads, 1)),
        vocab=_vocab(arguments, tp),
        positions=_positions(arguments),
        gated=gated,
        tied=not arguments.get("untie_embeddings_and_output_weights"),
        rms=arguments.get("normalization") == "RMSNorm",
        bias=bias,
        qkv_bias=bias or bool(arguments.get("add_qkv_bias")),
        qk_norm=bool(arguments.get("qk_layernorm")),
        local=arguments.get("transformer_impl") == "local",
        dtype="bfloat16" if arguments.get("bf16") else "float16",
        tp=tp,
        pp=pp,
        flat=flat,
    )
    _fits(model, arguments)
    return model


def _refuse(arguments: Arguments) -> None:
    for name, what in REFUSED.items():
        if arguments.get(name):
            raise UserError(f"{_option(name)}: {what}; what its saves hold is not known here")
    for name, known in (
        ("optimizer", {"adam"}),
        ("ckpt_format", {"torch_dist"}),
        ("normalization", {"LayerNorm", "RMSNorm"}),
        ("transformer_impl", {"local", "transformer_engine"}),
        ("softmax_type", {"vanilla", "off-by-one"}),
    ):
        if arguments.get(name) not in {None, *known}:
            raise UserError(f"{_option(name)} {arguments[name]}: only {' and '.join(sorted(known))} are known here")
    if not arguments.get("bf16") and not arguments.get("fp16"):
        raise UserError("neither --bf16 nor --fp16: weights without FP32 masters beside them are not known here")
    if not arguments.get("use_distributed_optimizer"):
        raise UserError("--use-distributed-optimizer is missing: how other optimizers are stored is not known here")


def _fits(model: Model, arguments: Arguments) -> None:
    """What Megatron itself would refuse, and what the flat optimizer's totals need."""
    split = {"ffn": model.ffn, "heads": model.heads, "query groups": model.groups, "padded vocabulary": model.vocab}
    for what, size in split.items():
        if size % model.tp:
            raise UserError(f"{size} {what} can't be split over --tensor-model-parallel-size {model.tp}")
    if model.heads % model.groups:
        raise UserError(f"{model.heads} heads are no multiple of {model.groups} query groups")
    if not model.flat:
        return
    uneven = next((name for name in UNEVEN if arguments.get(name)), None)
    if uneven is not None:
        raise UserError(
            f"{_option(uneven)}: which stage holds what is not known here, and a flat optimizer depends on it"
        )
    if model.layers % model.pp:
        raise UserError(f"{model.layers} layers can't be split over --pipeline-model-parallel-size {model.pp}")


def _vocab(arguments: Arguments, tp: int) -> int:
    """Rows of the embedding. Megatron pads the tokenizer's vocabulary (calculate_padded_vocab_size)."""
    if arguments.get("padded_vocab_size") is not None:
        return _whole(arguments, "padded_vocab_size")
    if arguments.get("vocab_size") is None:
        raise UserError(
            "--padded-vocab-size is needed (or --vocab-size): the tokenizer is not read here. "
            "Megatron prints it as `padded vocab (size: ...)` when it starts"
        )
    size = _whole(arguments, "vocab_size")
    if arguments.get("pad_vocab_size") is False:
        return size
    multiple = _whole(arguments, "make_vocab_size_divisible_by", 128) * tp
    return -(-size // multiple) * multiple


def _positions(arguments: Arguments) -> int | None:
    kind = arguments.get("position_embedding_type", "learned_absolute")
    if arguments.get("use_rotary_position_embeddings"):
        kind = "rope"
    if kind not in POSITIONS:
        raise UserError(f"--position-embedding-type {kind}: only {', '.join(sorted(POSITIONS))} are known here")
    return _whole(arguments, "max_position_embeddings") if kind == "learned_absolute" else None


def _whole(arguments: Arguments, name: str, usual: int | None = None) -> int:
    value = arguments.get(name)
    value = usual if value is None else value
    if value is None:
        raise UserError(f"{_option(name)} is needed")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
        raise UserError(f"{_option(name)} {str(value)[:40]}: it must be a whole number above 0")
    return value


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def of_save(stated: Arguments) -> dict[str, Any]:
    """The arguments in what a save says of itself (places of Held). Raises UserError when it holds none."""
    found = {place.removeprefix("arguments."): v for place, v in stated.items() if place.startswith("arguments.")}
    if not found:
        raise UserError("this save holds no arguments of Megatron's")
    sharding = stated.get("content.distrib_optim_sharding_type")
    if sharding is not None:
        # How it was saved is surer than what was asked for.
        found["use_distributed_optimizer"] = True
        found["dist_ckpt_optim_fully_reshardable"] = sharding != "dp_reshardable"
    return found
