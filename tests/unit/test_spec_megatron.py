"""From Megatron's arguments: shapes as real saves have them, and what is not known is refused in one line."""

import pytest
from speccases import BASE, LARGE, SMALL

from supervisor.checkpoints.spec.megatron import document_of
from supervisor.checkpoints.spec.megatron_arguments import of_save, parse
from supervisor.errors import UserError


def shapes(arguments):
    return {entry.name: entry.shape for entry in document_of(arguments).tensors if entry.role == "weight"}


def test_the_command_line_is_read_as_argparse_reads_it():
    words = "--num-layers 4 --bf16 --lr=1e-3 --data-path a b --min-lr -1 --disable-bias-linear --tokenizer-type X"
    assert parse(words.split()) == {
        "num_layers": 4,
        "bf16": True,
        "lr": 0.001,
        "data_path": ["a", "b"],
        "min_lr": -1,
        "add_bias_linear": False,
        "tokenizer_type": "X",
    }
    assert parse(["--data-path", "0.3", "a", "0.7", "b"]) == {"data_path": ["0.3", "a", "0.7", "b"]}
    assert parse(["--data-path", "a"]) == {"data_path": ["a"]}
    with pytest.raises(UserError, match=r"'pretrain\.py' belongs to no argument"):
        parse(["pretrain.py", "--bf16"])


def test_gated_grouped_and_normed_as_a_real_save_of_core_0_19_2_has_it():
    # Made on CPU with megatron-core 0.19.2, TP2: 2 layers of 32, 4 heads in 2 groups, ffn 48, no biases, RMSNorm.
    arguments = {
        **BASE,
        "num_layers": 2,
        "hidden_size": 32,
        "ffn_hidden_size": 48,
        "padded_vocab_size": 96,
        "group_query_attention": True,
        "num_query_groups": 2,
        "swiglu": True,
        "normalization": "RMSNorm",
        "add_bias_linear": False,
        "qk_layernorm": True,
        "tensor_model_parallel_size": 2,
    }
    assert shapes(arguments) == {
        "decoder.final_layernorm.weight": (32,),
        "decoder.layers.mlp.linear_fc1.layer_norm_weight": (2, 32),
        "decoder.layers.mlp.linear_fc1.weight": (2, 96, 32),
        "decoder.layers.mlp.linear_fc2.weight": (2, 32, 48),
        "decoder.layers.self_attention.k_layernorm.weight": (2, 8),
        "decoder.layers.self_attention.linear_proj.weight": (2, 32, 32),
        "decoder.layers.self_attention.linear_qkv.layer_norm_weight": (2, 32),
        "decoder.layers.self_attention.linear_qkv.weight": (2, 64, 32),
        "decoder.layers.self_attention.q_layernorm.weight": (2, 8),
        "embedding.word_embeddings.weight": (96, 32),
        "output_layer.weight": (96, 32),
    }
    # Its flat optimizer has 11,328 elements a rank.
    assert [(group.least, group.most) for group in document_of(arguments).flat] == [(10944, 11328)] * 2


def test_tied_with_learned_positions_as_a_real_save_of_core_0_19_2_has_it():
    arguments = {
        **BASE,
        "num_layers": 2,
        "hidden_size": 16,
        "padded_vocab_size": 40,
        "max_position_embeddings": 32,
        "untie_embeddings_and_output_weights": False,
        "position_embedding_type": "learned_absolute",
        "add_bias_linear": False,
        "add_qkv_bias": True,
        "tensor_model_parallel_size": 2,
    }
    found = shapes(arguments)
    assert found["embedding.position_embeddings.weight"] == (32, 16)
    assert found["decoder.layers.self_attention.linear_qkv.bias"] == (2, 48)
    assert "output_layer.weight" not in found
    assert "decoder.layers.mlp.linear_fc1.bias" not in found
    assert [(group.least, group.most) for group in document_of(arguments).flat] == [(4112, 4672)] * 2
    # With two stages the last one has the word embeddings too.
    first, last = (
        g for g in document_of({**arguments, "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 2}).flat
    )
    assert first.least - last.least == 32 * 16 - 32


def test_the_reference_of_500b():
    arguments = {
        **BASE,
        "num_layers": 104,
        "hidden_size": 18432,
        "num_attention_heads": 144,
        "group_query_attention": True,
        "num_query_groups": 8,
        "swiglu": True,
        "ffn_hidden_size": 65536,
        "normalization": "RMSNorm",
        "add_bias_linear": False,
        "vocab_size": 151_643,
        "tensor_model_parallel_size": 8,
        "pipeline_model_parallel_size": 8,
        "transformer_impl": "transformer_engine",
    }
    document = document_of(arguments)
    assert shapes(arguments)["embedding.word_embeddings.weight"] == (152_576, 18432)  # padded to 128 x 8
    assert len(document.flat) == 64
    # Every parameter is a multiple of 64, so the flat totals have no play.
    assert all(group.least == group.most for group in document.flat)
    import math

    norms = 18432 * (2 * 104 + 1)  # not cut, so each of the eight tensor-parallel ranks holds them
    assert sum(g.least for g in document.flat) == sum(math.prod(s) for s in shapes(arguments).values()) + 7 * norms


def test_the_middle_size_is_megatrons_own():
    assert shapes(SMALL)["decoder.layers.mlp.linear_fc1.weight"] == (1, 32, 8)
    gated = shapes({**LARGE, "hidden_size": 96, "swiglu": True})
    assert gated["decoder.layers.mlp.linear_fc2.weight"] == (4, 96, 256)


def test_layouts_of_the_optimizer():
    full, flat = document_of(LARGE), document_of({**LARGE, "dist_ckpt_optim_fully_reshardable": False})
    assert len(full.tensors) == 4 * len(flat.tensors)
    assert not full.flat
    assert len(flat.flat) == 4
    assert "optimizer.distributed.dp_group_idx_3.per_bucket_numel/shard_0_1" in flat.objects
    assert "rng_state/shard_1.1_2.2" in full.objects


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"num_experts": 8}, "--num-experts: mixture of experts"),
        ({"multi_latent_attention": True}, "--multi-latent-attention"),
        ({"optimizer": "sgd"}, "--optimizer sgd"),
        ({"ckpt_format": "torch"}, "--ckpt-format torch"),
        ({"bf16": False}, "neither --bf16 nor --fp16"),
        ({"use_distributed_optimizer": False}, "--use-distributed-optimizer is missing"),
        ({"num_layers": None}, "--num-layers is needed"),
        ({"num_layers": "four"}, "--num-layers four: it must be a whole number"),
        ({"num_layers": True}, "whole number"),
        ({"padded_vocab_size": None}, "--padded-vocab-size is needed"),
        ({"hidden_size": 9}, "no multiple of --num-attention-heads"),
        ({"tensor_model_parallel_size": 3}, "can't be split over --tensor-model-parallel-size 3"),
        ({"pipeline_model_parallel_size": 2}, "1 layers can't be split"),
        ({"decoder_first_pipeline_num_layers": 1}, "--decoder-first-pipeline-num-layers"),
        ({"position_embedding_type": "relative"}, "--position-embedding-type relative"),
        ({"no_save_optim": True}, "without its optimizer"),
        ({"group_query_attention": True, "num_query_groups": 3}, "no multiple of 3 query groups"),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(change, why):
    with pytest.raises(UserError, match=why) as refused:
        document_of({**SMALL, **change})
    assert "\n" not in str(refused.value)


def test_what_plays_no_part_is_named():
    assert document_of({**SMALL, "log_interval": 10, "timing_log_level": 2}).ignored == (
        "log_interval",
        "timing_log_level",
    )


def test_arguments_in_a_save_and_how_it_was_stored():
    stated = {f"arguments.{name}": value for name, value in SMALL.items()}
    assert of_save({**stated, "content.distrib_optim_sharding_type": "fully_reshardable"})[
        "dist_ckpt_optim_fully_reshardable"
    ]
    with pytest.raises(UserError, match="holds no arguments"):
        of_save({})


def test_stages_and_ranks_of_a_flat_optimizer_as_a_real_save_of_core_0_19_2_has_them():
    # Made with megatron-core 0.19.2 at TP2 x PP2: 15,360 elements on both ranks of the first stage, 15,456 on the last's.
    groups = document_of({**LARGE, "dist_ckpt_optim_fully_reshardable": False}).flat
    assert [(group.least, group.most) for group in groups] == [(14944, 15360)] * 2 + [(15008, 15488)] * 2
