# ruff: noqa: E402 - the imports need torch, which may be missing
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from supervisor.bench.trainer.gpt import Spec
from supervisor.bench.trainer.saving import FencedWriter, chosen
from supervisor.bench.trainer.state import Piece, digest


class Fence:
    """Is fenced from its nth question on."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def fenced(self) -> bool:
        self.left -= 1
        return self.left < 1


def save(path, fence, described):
    writer = FencedWriter(str(path), fence, described, None)
    dcp.save({"a": torch.arange(4)}, storage_writer=writer, no_dist=True)
    return writer


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize(("nth", "shard", "sidecar"), [(1, False, False), (2, True, False), (3, True, True)])
def test_a_fence_at_any_moment_keeps_the_metadata_back(tmp_path, nth, shard, sidecar):
    told = []
    with pytest.raises((CheckpointException, RuntimeError)):
        save(tmp_path, Fence(nth), told.append)
    assert not (tmp_path / ".metadata").exists()
    assert (tmp_path / "__0_0.distcp").exists() is shard
    assert bool(told) is sidecar


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_sidecar_comes_before_the_metadata_and_a_save_is_never_overwritten(tmp_path):
    told = []

    def described(files):
        told.append((files, (tmp_path / ".metadata").exists()))

    writer = save(tmp_path, Fence(99), described)
    size = (tmp_path / "__0_0.distcp").stat().st_size
    assert told == [({"__0_0.distcp": size}, False)]
    assert (tmp_path / ".metadata").exists()
    assert writer.written == size
    with pytest.raises((CheckpointException, RuntimeError)):
        save(tmp_path, Fence(99), described)


def test_what_the_tracker_names_is_chosen(tmp_path):
    assert chosen(str(tmp_path), "") is None
    with pytest.raises(ValueError, match="names no save"):
        chosen(str(tmp_path), "a0001-i0000040")
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    tracker.write_text("40\n")
    assert chosen(str(tmp_path), "") == str(tmp_path / "iter_0000040")
    assert chosen(str(tmp_path), "a0001-i0000040") == str(tmp_path / "iter_0000040")
    with pytest.raises(ValueError, match="names step 40"):
        chosen(str(tmp_path), "a0001-i0000020")
    for text in ("", "release", "../40", "4.0"):
        tracker.write_text(text)
        with pytest.raises(ValueError, match="no step"):
            chosen(str(tmp_path), "")


@pytest.mark.parametrize("split", [0, 1])
def test_pieces_make_the_whole_tensor_and_the_same_begin_as_one(split):
    whole = Spec("w", (4, 6), None, 0.02, decays=True, parts=1, part=0).initial(7)
    specs = [Spec("w", (4, 6), split, 0.02, decays=True, parts=2, part=part) for part in range(2)]
    assert torch.equal(torch.cat([spec.initial(7) for spec in specs], split), whole)
    piece = Piece.of(specs[1].initial(7), specs[1])
    assert piece.size() == (4, 6)
    [item] = piece.__create_write_items__("w", piece)
    assert tuple(item.index.offset) == specs[1].offsets
    assert specs[1].offsets == ((2, 0), (0, 3))[split]


def test_a_digest_sees_names_types_shapes_and_bytes():
    base = {"a": torch.arange(4), "b": torch.zeros(2)}
    others = [
        {"a": torch.arange(4), "c": torch.zeros(2)},
        {"a": torch.arange(4), "b": torch.zeros(2, dtype=torch.int32)},
        {"a": torch.arange(4).view(2, 2), "b": torch.zeros(2)},
        {"a": torch.tensor([0, 1, 2, 4]), "b": torch.zeros(2)},
        {"a": torch.arange(4), "b": torch.tensor([0.0, -0.0])},
    ]
    assert digest(dict(reversed(base.items()))) == digest(base)
    assert len({digest(state) for state in [base, *others]}) == 6
