"""Ranks that train a tiny GPT with Megatron Core itself and save and load it by its own calls; run by the environment of
`megatron_env`, forked by `megatron_nursery`, held at the same windows as those of `megatron_order`.

An order: `do` (save, load), `arguments` (Megatron's, of which the spec is made too), `digests` (a folder: each rank writes
what it holds, as one hash a tensor, into `rank.json`); to save also `folder`, `step`, `background`, `without`; to load `path`.
"""

from __future__ import annotations

import functools
import json
import os
import random
import sys
import time
import zlib
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import xxhash

from supervisor.bench.megatron_cpu import pretend
from supervisor.bench.megatron_nursery import (
    JSON,
    METADATA,
    RENAME,
    SHARDS,
    TORN,
    TRACKER,
    UNBEGUN,
    Nursery,
    Rank,
    farm,
)

POLL_S = 0.02
ARGUMENTS: Final[Mapping[str, Any]] = {
    "num_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "padded_vocab_size": 64, "bf16": True,
    "transformer_impl": "local", "untie_embeddings_and_output_weights": True, "position_embedding_type": "rope",
    "use_distributed_optimizer": True, "lr": 0.001, "min_lr": 1e-5, "lr_decay_style": "cosine", "global_batch_size": 8,
    "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1, "seed": 1234, "tokenizer_type": "GPT2BPETokenizer",
    "data_path": ["corpus-v3"],
}  # fmt: skip
"""Of a training that is just large enough to be cut: TP2, over as many ranks as there are."""
CORE = (
    "parallel_state", "dist_checkpointing", "dist_checkpointing.mapping", "dist_checkpointing.dict_utils",
    "dist_checkpointing.serialization", "dist_checkpointing.strategies.torch", "dist_checkpointing.strategies.async_utils",
    "dist_checkpointing.strategies.fully_parallel", "dist_checkpointing.strategies.filesystem_async",
    "transformer.transformer_config", "models.gpt.gpt_model", "models.gpt.gpt_layer_specs", "distributed", "optimizer",
    "optimizer_param_scheduler",
)  # fmt: skip


def start(python: str, world: int, log: str) -> Nursery:
    """The warm process of `world` ranks. `python`: the interpreter of an environment that has Megatron Core."""
    return Nursery([python, "-W", "ignore", "-m", "supervisor.bench.megatron_ranks"], world, log)


def core(name: str) -> Any:
    """A module of Megatron Core. By name, since it is not there where this is checked."""
    return import_module(f"megatron.core.{name}")


@dataclass(frozen=True, slots=True)
class Training:
    """A model with its optimizer and schedule, on one rank."""

    arguments: dict[str, Any]
    model: Any
    ddp: Any
    optimizer: Any
    schedule: Any

    def step(self, number: int) -> None:
        """One update, with gradients drawn from the number of the step, the weight's name, and the part that this rank has."""
        import torch  # noqa: PLC0415

        mpu = core("parallel_state")
        self.ddp.zero_grad_buffer()
        for name, weight in self.model.named_parameters():
            # What is no part of a whole stands on every rank of its group, and stays the same there.
            part = mpu.get_tensor_model_parallel_rank() if getattr(weight, "tensor_model_parallel", False) else 0
            seed = zlib.crc32(f"{number} {name} {part}".encode())
            weight.main_grad.normal_(generator=torch.Generator().manual_seed(seed))
        self.optimizer.step()
        self.schedule.step(self.arguments["global_batch_size"])

    def digests(self) -> dict[str, str]:
        """One hash for each weight, master and moment that this rank holds."""
        held = {name: tensor for name, tensor in self.model.named_parameters()}  # noqa: C416 - an iterator of pairs
        for one in getattr(self.optimizer, "chained_optimizers", [self.optimizer]):
            masters = [p for group in one.optimizer.param_groups for p in group["params"]]
            for number, master in enumerate(masters):
                held[f"master {number}"] = master
                for kind in ("exp_avg", "exp_avg_sq"):
                    held[f"{kind} {number}"] = one.optimizer.state[master][kind]
        return {name: _sum(tensor) for name, tensor in held.items()}


def _sum(tensor: Any) -> str:
    import torch  # noqa: PLC0415

    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return f"{tuple(tensor.shape)} {xxhash.xxh3_64_hexdigest(data)}"


def build(a: dict[str, Any], seed: int) -> Training:
    """A model as these arguments of Megatron's have it, begun from `seed`."""
    import torch  # noqa: PLC0415

    mpu = core("parallel_state")
    mpu.initialize_model_parallel(a["tensor_model_parallel_size"], a["pipeline_model_parallel_size"])
    random.seed(seed)
    torch.manual_seed(seed + 100 * mpu.get_pipeline_model_parallel_rank())
    off = dict.fromkeys(
        ("gradient_accumulation_fusion", "bias_activation_fusion", "masked_softmax_fusion", "bias_dropout_fusion"),
        False,
    )
    config = core("transformer.transformer_config").TransformerConfig(
        num_layers=a["num_layers"],
        hidden_size=a["hidden_size"],
        num_attention_heads=a["num_attention_heads"],
        tensor_model_parallel_size=a["tensor_model_parallel_size"],
        pipeline_model_parallel_size=a["pipeline_model_parallel_size"],
        use_cpu_initialization=True,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        **off,
    )
    model = (
        core("models.gpt.gpt_model")
        .GPTModel(
            config,
            core("models.gpt.gpt_layer_specs").get_gpt_layer_local_spec(),
            vocab_size=a["padded_vocab_size"],
            max_sequence_length=32,
            pre_process=mpu.is_pipeline_first_stage(),
            post_process=mpu.is_pipeline_last_stage(),
            share_embeddings_and_output_weights=False,
            position_embedding_type="rope",
        )
        .to(torch.bfloat16)
    )
    distributed = core("distributed")
    options = distributed.DistributedDataParallelConfig(
        use_distributed_optimizer=True, overlap_grad_reduce=False, grad_reduce_in_fp32=True
    )
    ddp = distributed.DistributedDataParallel(config, options, model)
    optimizers = core("optimizer")
    optimizer = optimizers.get_megatron_optimizer(
        optimizers.OptimizerConfig(
            optimizer="adam",
            lr=a["lr"],
            weight_decay=0.1,
            bf16=True,
            params_dtype=torch.bfloat16,
            use_distributed_optimizer=True,
            clip_grad=0.0,
        ),
        [ddp],
    )
    schedule = core("optimizer_param_scheduler").OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=a["lr"],
        min_lr=a["min_lr"],
        lr_warmup_steps=80,
        lr_decay_steps=8000,
        lr_decay_style=a["lr_decay_style"],
        start_wd=0.1,
        end_wd=0.1,
        wd_incr_steps=8000,
        wd_incr_style="constant",
    )
    return Training(a, model, ddp, optimizer, schedule)


def state_of(training: Training, step: int, *, loading: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sharded state as Megatron's training loop makes it, and the description of its content."""
    import numpy  # noqa: PLC0415, ICN001
    import torch  # noqa: PLC0415

    a, mpu = training.arguments, core("parallel_state")
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    full = bool(a.get("dist_ckpt_optim_fully_reshardable"))
    content = {
        "distrib_optim_sharding_type": "fully_reshardable" if full else "dp_reshardable",
        "singleton_local_shards": False,
        "chained_optim_avoid_prefix": True,
        **({"distrib_optim_fully_reshardable_mem_efficient": True} if full else {}),
    }
    asked = {**content, "dp_cp_group": group}
    counted = {
        "iteration": step,
        "consumed_train_samples": step * a["global_batch_size"],
        "skipped_train_samples": 0,
        "async_save": False,
    }
    state: dict[str, Any] = {"args": Namespace(**a, **counted), "checkpoint_version": 3.0, "iteration": step}
    state["model"] = training.model.sharded_state_dict(metadata=asked)
    state["optimizer"] = training.optimizer.sharded_state_dict(state, is_loading=loading, metadata=asked)
    state["opt_param_scheduler"] = training.schedule.state_dict()
    state["num_floating_point_operations_so_far"] = step * 1e9
    now = {
        "random_rng_state": random.getstate(),
        "np_rng_state": numpy.random.get_state(),  # noqa: NPY002 - what Megatron keeps
        "torch_rng_state": torch.get_rng_state(),
        "cuda_rng_state": torch.get_rng_state(),
        "rng_tracker_states": {},
    }
    pp, tp = a["pipeline_model_parallel_size"], a["tensor_model_parallel_size"]
    place = mpu.get_pipeline_model_parallel_rank(), mpu.get_tensor_model_parallel_rank()
    copy = mpu.get_data_parallel_rank(with_context_parallel=True)
    state["rng_state"] = core("dist_checkpointing.mapping").ShardedObject(
        "rng_state", [now], (pp, tp), place, replica_id=copy
    )
    return state, content


def save(rank: Rank, order: dict[str, Any]) -> None:
    """Train up to a step and save it as Megatron does, in the foreground or behind."""
    import torch.distributed as dist  # noqa: PLC0415

    training = build(order["arguments"], order["arguments"]["seed"])
    for number in range(1, order["step"] + 1):
        training.step(number)
    path = os.path.join(order["folder"], f"iter_{order['step']:07d}")
    if rank.number == 0:
        os.makedirs(path, exist_ok=True)
    dist.barrier()
    state, content = state_of(training, order["step"], loading=False)
    if order.get("without"):
        state = _without(state, order["without"])
    strategy = core("dist_checkpointing.strategies.fully_parallel").FullyParallelSaveStrategyWrapper(
        core("dist_checkpointing.strategies.torch").TorchDistSaveShardedStrategy(thread_count=2),
        core("parallel_state").get_data_parallel_group(with_context_parallel=True),
    )
    _listen(rank)
    write = core("dist_checkpointing").save
    if order.get("background"):
        request = write(
            state, path, strategy, content_metadata=content, async_sharded_save=True, async_strategy="mcore"
        )
        request.add_finalize_fn(lambda: _note(rank, order))
        queue = core("dist_checkpointing.strategies.async_utils").AsyncCallsQueue(persistent=False)
        queue.schedule_async_request(request)
        while not queue.maybe_finalize_async_calls(blocking=False):
            time.sleep(POLL_S)  # as often as a step of training would ask
        queue.close()
    else:
        write(state, path, strategy, content_metadata=content)
        dist.barrier()
        _note(rank, order)
    _tell(rank, order, training)


def _note(rank: Rank, order: dict[str, Any]) -> None:
    """The tracker, in place, as Megatron's training loop writes it."""
    if rank.number == 0:
        with open(os.path.join(order["folder"], TRACKER), "w", encoding="ascii") as file:
            rank.hold_at(TORN)
            file.write(str(order["step"]))


def load(rank: Rank, order: dict[str, Any]) -> None:
    """Load by Megatron's own call into a model that was begun from another seed and has gone another way."""
    training = build(order["arguments"], order["arguments"]["seed"] + 1)
    training.step(1000)  # without Apex its optimizer has nothing to load into before a step
    state, _ = state_of(training, 0, loading=True)
    _bear_torch_adam()
    loaded = core("dist_checkpointing").load(state, order["path"])
    training.model.load_state_dict(loaded["model"])
    training.optimizer.load_state_dict(loaded["optimizer"])
    training.schedule.load_state_dict(loaded["opt_param_scheduler"])
    if rank.number == 0:
        rank.say(f"loaded iteration {loaded['iteration']}")
    _tell(rank, order, training)


def _bear_torch_adam() -> None:
    """Megatron's load of fully reshardable states, made for Apex's Adam, asks for a `step` of each weight that torch's keeps."""
    optimizer = core("optimizer.distrib_optimizer").DistributedOptimizer
    put = optimizer._set_main_param_and_optimizer_states  # noqa: SLF001 - there is no other way in

    def with_step(self: Any, weight: Any, tensors: dict[str, Any]) -> None:
        put(self, weight, {"step": None, **tensors})  # what is no tensor is passed over there

    optimizer._set_main_param_and_optimizer_states = with_step  # noqa: SLF001


def _tell(rank: Rank, order: dict[str, Any], training: Training) -> None:
    path = os.path.join(order["digests"], f"{rank.number}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(training.digests(), file)


def _without(state: dict[str, Any], kind: str) -> dict[str, Any]:
    """The state with no tensor of a kind, as a save that has lost it."""
    tensor = core("dist_checkpointing.mapping").ShardedTensor

    def lost(item: Any) -> bool:
        return isinstance(item, tensor) and (item.key.endswith(f".{kind}") or f".{kind}." in item.key)

    _, kept = core("dist_checkpointing.dict_utils").extract_matching_values(state, lost)
    return dict(kept)


def _listen(rank: Rank) -> None:
    """Put ears at the windows of Megatron's own writer."""
    from torch.distributed.checkpoint import filesystem  # noqa: PLC0415

    ours = core("dist_checkpointing.strategies.filesystem_async")
    serialization = core("dist_checkpointing.serialization")

    def before(window: str, call: Any) -> Any:
        @functools.wraps(call)  # Megatron looks at the signature
        def held(*args: Any, **kwargs: Any) -> Any:
            rank.hold_at(window)
            return call(*args, **kwargs)

        return held

    whole = ours.FileSystemWriterAsync.write_preloaded_data_multithread

    def write(*args: Any, **kwargs: Any) -> Any:
        rank.hold_at(UNBEGUN)
        done = whole(*args, **kwargs)
        rank.say("wrote")
        return done

    ours.FileSystemWriterAsync.write_preloaded_data_multithread = staticmethod(write)
    ours._write_item = before(SHARDS, ours._write_item)  # noqa: SLF001 - the file is open and empty there
    writer: Any = filesystem._FileSystemWriter  # noqa: SLF001 - Megatron's own writer ends with it
    writer.finish = before(METADATA, writer.finish)
    filesystem.FileSystem.rename = before(RENAME, filesystem.FileSystem.rename)
    serialization.save_config = before(JSON, serialization.save_config)


def work(rank: Rank, order: dict[str, Any]) -> None:
    """Do one order."""
    {"save": save, "load": load}[order.pop("do")](rank, order)


def main() -> None:
    """Load Megatron, and fork ranks."""
    pretend()
    for name in CORE:
        core(name)
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    farm(int(sys.argv[1]), work)


if __name__ == "__main__":  # Megatron's writer starts a process that imports this file again
    main()
