"""Arguments of small Megatron trainings, and saves made from a spec without torch."""

import random
from itertools import pairwise
from math import prod

from supervisor.bench import fake_saves
from supervisor.checkpoints.spec.held import Held

BASE = {
    "bf16": True,
    "use_distributed_optimizer": True,
    "transformer_impl": "local",
    "untie_embeddings_and_output_weights": True,
    "position_embedding_type": "rope",
    "num_attention_heads": 4,
    "seed": 1234,
    "tokenizer_type": "GPT2BPETokenizer",
    "data_path": ["corpus-v3"],
    "lr": 0.001,
    "min_lr": 1e-5,
    "lr_decay_style": "cosine",
}
SMALL = {**BASE, "num_layers": 1, "hidden_size": 8, "padded_vocab_size": 16}
"""Of the samples of two ranks; the figures stand in tools/make_megatron_checkpoint.py and in their common state."""
LARGE = {
    **BASE,
    "num_layers": 4,
    "hidden_size": 32,
    "padded_vocab_size": 128,
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 2,
    "dist_ckpt_optim_fully_reshardable": True,
}
"""Of the sample of eight ranks."""


def arguments(choose: random.Random) -> dict:
    """A training of any small shape that is known."""
    tp, pp, heads = choose.choice([1, 2]), choose.choice([1, 2, 3]), choose.choice([2, 4])
    given = {
        **BASE,
        "num_layers": pp * choose.randrange(1, 3),
        "hidden_size": heads * choose.choice([2, 4]),
        "num_attention_heads": heads,
        "padded_vocab_size": tp * choose.randrange(3, 12),
        "ffn_hidden_size": tp * choose.randrange(2, 9),
        "tensor_model_parallel_size": tp,
        "pipeline_model_parallel_size": pp,
        "max_position_embeddings": choose.randrange(2, 9),
        "transformer_impl": choose.choice(["local", "transformer_engine"]),
        "normalization": choose.choice(["LayerNorm", "RMSNorm"]),
        "position_embedding_type": choose.choice(["rope", "learned_absolute", "none"]),
        "group_query_attention": choose.random() < 0.5,
        "num_query_groups": 2,
    }
    for flag in (
        "swiglu",
        "add_bias_linear",
        "add_qkv_bias",
        "qk_layernorm",
        "dist_ckpt_optim_fully_reshardable",
        "untie_embeddings_and_output_weights",
    ):
        given[flag] = choose.random() < 0.5
    return given


def buckets(document, choose: random.Random) -> dict:
    """Flat tensors that a document allows: each group's elements in one bucket or more."""
    made = {}
    for group in document.flat:
        total = choose.randint(group.least, group.most)
        cuts = sorted({0, total, *(choose.randrange(1, total) for _ in range(choose.randrange(3)))})
        for number, (begin, end) in enumerate(pairwise(cuts)):
            for kind in group.kinds:
                name = f"{group.prefix}gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_{number}.{kind}"
                made[name] = (group.dtype, (end - begin,))
    return made


def facts(document) -> dict:
    """What a save that has all that is asked says of itself."""
    counters = {"counters.iteration": 40, "counters.samples": 320, "counters.updates": 38, "counters.skipped": 2}
    rest = {"counters.lr": 0.001, "schedule.num_steps": 304, "common.checkpoint_version": 3.0}
    return {**counters, **rest, **document.settings}


def whole(document, choose: random.Random) -> Held:
    """Everything that a document asks, and nothing else."""
    tensors = {entry.name: (entry.dtype, entry.shape) for entry in document.tensors} | buckets(document, choose)
    return Held(tensors, frozenset(document.objects), facts(document))


def common_state(stated: dict) -> bytes:
    """Megatron's common state that says all this, by place."""

    def of(kind: str) -> dict:
        return {k.partition(".")[2]: v for k, v in stated.items() if k.startswith(f"{kind}.")}

    counted = of("counters")
    args = of("arguments") | {"consumed_train_samples": counted["samples"], "skipped_train_samples": 0}
    state = {
        "args": fake_saves.instance("argparse", "Namespace", args),
        "checkpoint_version": 3.0,
        "iteration": counted["iteration"],
        "opt_param_scheduler": of("schedule"),
        "content_metadata": of("content"),
        "optimizer": {"optimizer": {"param_groups": [{"step": counted["updates"], "lr": counted["lr"]}]}},
    }
    return fake_saves.whole(fake_saves.value([state]))


def write(folder: str, held: Held, state: bytes | None = None) -> None:
    """The save on disk; `state`: another common state than the one that says its facts."""
    items: list = []
    for name, (dtype, shape) in held.tensors.items():
        data = b"\x01" * (prod(shape) * fake_saves.WIDTHS[dtype])
        items.append(
            fake_saves.Chunk(name, dtype, shape, (0,) * len(shape), shape, f"__{len(items) % 3}_0.distcp", data)
        )
    for name in sorted(held.objects):
        common = name.startswith("common_state")
        pickled = (state or common_state(held.facts)) if common else fake_saves.whole(fake_saves.value({}))
        items.append(fake_saves.Object(name, "__0_0.distcp", pickled))
    fake_saves.write(folder, items, iteration=40, megatron=True)
