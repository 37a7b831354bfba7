# ruff: noqa: E402 - the imports need torch, which may be missing
from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp

from supervisor.bench import weights


@pytest.fixture
def saved(tmp_path):
    def of(name: str, **tensors):
        with pytest.warns(UserWarning, match="torch.distributed is disabled"):
            dcp.save(tensors, checkpoint_id=str(tmp_path / name), no_dist=True)
        return str(tmp_path / name)

    return of


def hash_of(directory: str) -> str:
    return weights.total(weights.hashes(weights.merged(directory)))


def test_the_same_tensors_give_the_same_hash_and_one_bit_another(saved):
    base = {"w": torch.arange(6.0).view(2, 3), "b": torch.ones(3, dtype=torch.bfloat16), "n": torch.tensor(4)}
    one = saved("one", **base)
    assert hash_of(one) == hash_of(saved("two", **dict(reversed(base.items()))))
    flipped = base["w"].clone()
    flipped.view(torch.uint8)[1, 2] ^= 1
    assert not torch.equal(flipped, base["w"])
    changed = [
        base | {"w": flipped},
        base | {"w": base["w"].view(3, 2)},
        base | {"b": base["b"].float()},
        base | {"n": torch.tensor(5)},
        {"v": base["w"], "b": base["b"], "n": base["n"]},
    ]
    assert len({hash_of(one), *(hash_of(saved(f"c{i}", **c)) for i, c in enumerate(changed))}) == 6


def test_the_command_prints_one_hash_or_all(saved, capsys, tmp_path):
    one = saved("one", w=torch.ones(2))
    assert weights.main([one]) == 0
    line = capsys.readouterr().out.strip()
    assert line == hash_of(one)
    assert weights.main([one, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"schema": 1, "hash": line, "tensors": weights.hashes({"w": torch.ones(2)})}
    (tmp_path / "one" / ".metadata").unlink()
    assert weights.main([one]) == 1
    assert ".metadata is missing" in capsys.readouterr().err
