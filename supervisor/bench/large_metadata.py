"""Metadata of a save by thousands of writers, written by torch itself: `python -m supervisor.bench.large_metadata DIR`.

The shape is that of 500B parameters over TP8 x PP8 x DP80 with Megatron's distributed optimizer: each of 64 groups keeps
41 buckets as flat tensors of three kinds, cut between 80 ranks and at the borders of parameters. With the plans that
Megatron leaves in it, 655,000 chunks and 190 MB. There is no data beside it. It takes a minute or two.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

KINDS: Final = ("param", "exp_avg", "exp_avg_sq")
BUCKETS: Final = 41
BUCKET: Final = 190_000_000
"""Elements; a bucket ends with the parameter that fills it, so most are larger than the 80 M that are asked for."""
LAYERS: Final = 104
WIDTH: Final = 18_432


def borders(choose: random.Random, size: int, shards: int) -> list[int]:
    """Where a flat bucket is cut: between the ranks, and where a parameter ends."""
    cuts = {size * shard // shards for shard in range(shards + 1)}
    cuts |= {choose.randrange(1, size) // 64 * 64 for _ in range(3)}
    return sorted(cuts - {0} | {0, size})


def chunks(
    tp: int, pp: int, dp: int
) -> Iterator[tuple[int, str, tuple[int, ...], tuple[int, ...], tuple[int, ...], str]]:
    """(rank, name, shape, offset, size, dtype name) of every chunk."""
    choose = random.Random(20)
    for layer in range(LAYERS):
        for part in range(tp):
            rank = (layer * pp // LAYERS) * tp * dp + (layer % dp) * tp + part
            for name, rows in (("mlp.linear_fc1.weight", 8 * WIDTH), ("self_attention.linear_qkv.weight", WIDTH)):
                shape, size = (LAYERS, rows, WIDTH), (1, rows // tp, WIDTH)
                yield rank, f"decoder.layers.{name}", shape, (layer, part * (rows // tp), 0), size, "bfloat16"
    for group in range(tp * pp):
        for bucket in range(BUCKETS):
            cuts = borders(choose, BUCKET, dp)
            for kind in KINDS:
                name = (
                    f"optimizer.distributed.dp_group_idx_{group}.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32)"
                    f".bucket_idx_{bucket}.{kind}"
                )
                for begin, end in pairwise(cuts):
                    shard = min(begin * dp // BUCKET, dp - 1)
                    rank = (group // tp) * tp * dp + shard * tp + group % tp
                    yield rank, name, (BUCKET,), (begin,), (end - begin,), "float32"


def write(folder: str, tp: int, pp: int, dp: int) -> int:
    """Write `.metadata` into the folder; how many chunks it has."""
    import torch  # noqa: PLC0415 - a wrong argument is told without the second that torch takes
    from torch.distributed.checkpoint import FileSystemWriter, Metadata  # noqa: PLC0415
    from torch.distributed.checkpoint.filesystem import _StorageInfo  # noqa: PLC0415
    from torch.distributed.checkpoint.metadata import (  # noqa: PLC0415
        ChunkStorageMetadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )
    from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType  # noqa: PLC0415
    from torch.distributed.checkpoint.storage import WriteResult  # noqa: PLC0415

    tensors: dict[str, Any] = {}
    plans: list[list[Any]] = [[] for _ in range(tp * pp * dp)]
    results: list[list[Any]] = [[] for _ in plans]
    ends = [0] * len(plans)
    for rank, name, shape, offset, size, kind in chunks(tp, pp, dp):
        dtype = getattr(torch, kind)
        if name not in tensors:
            tensors[name] = TensorStorageMetadata(TensorProperties(dtype=dtype), torch.Size(shape), [])
        chunk = ChunkStorageMetadata(torch.Size(offset), torch.Size(size))
        tensors[name].chunks.append(chunk)
        data = TensorWriteData(chunk, TensorProperties(dtype=dtype), torch.Size(shape))
        plans[rank].append(WriteItem(MetadataIndex(name, offset), WriteItemType.SHARD, tensor_data=data))
        length = dtype.itemsize * torch.Size(size).numel() + 1400
        info = _StorageInfo(f"__{rank}_0.distcp", ends[rank], length)
        results[rank].append(WriteResult(MetadataIndex(name, offset, 0), length, info))
        ends[rank] += length
    metadata = Metadata(tensors)
    metadata.all_local_plans = [SavePlan(items) for items in plans]
    writer = FileSystemWriter(folder)
    writer.reset(folder)
    writer.finish(metadata, results)
    return sum(map(len, plans))


def main(argv: list[str]) -> int:
    """Write it, and print how many chunks and bytes."""
    parser = argparse.ArgumentParser(prog="supervisor.bench.large_metadata")
    parser.add_argument("folder")
    parser.add_argument("--dp", type=int, default=80)
    given = parser.parse_args(argv)
    count = write(given.folder, 8, 8, given.dp)
    print(count, os.path.getsize(os.path.join(given.folder, ".metadata")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
