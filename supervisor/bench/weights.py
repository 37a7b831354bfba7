"""One hash over everything that a save holds: `python -m supervisor.bench.weights SAVE/iter_0000040`.

Two runs have ended with the same bits when this prints the same line for both. All shards are merged into their
logical tensors first, so the hash does not depend on which rank wrote what. torch reads the save, and torch unpickles
`.metadata`: this is for saves that the reference trainer has made here, never for files from elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash


def merged(directory: str) -> dict[str, Any]:
    """Every logical tensor of one save, whole, by name. Raises FileNotFoundError when the save is not finished."""
    import torch  # noqa: PLC0415 - a wrong argument is told without the second that torch takes
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415

    reader = dcp.FileSystemReader(directory)
    stored = reader.read_metadata().state_dict_metadata
    state = {name: torch.empty(tuple(at.size), dtype=at.properties.dtype) for name, at in stored.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # one process is what we want
        dcp.load(state, storage_reader=reader, no_dist=True)
    return state


def hashes(tensors: Mapping[str, Any]) -> dict[str, str]:
    """For each tensor in the order of the names: xxh3_128 over name, type, shape and bytes, as hex."""
    import torch  # noqa: PLC0415

    out = {}
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        one = xxhash.xxh3_128(f"{name}\n{tensor.dtype}\n{tuple(tensor.shape)}\n".encode())
        one.update(tensor.reshape(-1).view(torch.uint8).numpy())
        out[name] = one.hexdigest()
    return out


def total(of_tensors: Mapping[str, str]) -> str:
    """xxh3_128 over the hashes of all tensors, in the order of the names, as hex."""
    return xxhash.xxh3_128("\n".join(of_tensors[name] for name in sorted(of_tensors)).encode()).hexdigest()


def main(argv: Sequence[str]) -> int:
    """Print the hash. Exit code 0; 1 when there is no finished save in the directory."""
    parser = argparse.ArgumentParser(prog="supervisor.bench.weights", description="One hash over a save.")
    parser.add_argument("directory", help="an iter_* directory")
    parser.add_argument("--json", action="store_true", help="also the hash of each tensor")
    given = parser.parse_args(argv)
    if not os.path.isfile(os.path.join(given.directory, ".metadata")):
        print(f"weights: {given.directory} holds no finished save: .metadata is missing", file=sys.stderr)
        return 1
    of_tensors = hashes(merged(given.directory))
    whole = total(of_tensors)
    print(json.dumps({"schema": 1, "hash": whole, "tensors": of_tensors}, indent=1) if given.json else whole)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
