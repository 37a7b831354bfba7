"""Random configurations: a save made from the spec passes, and one random fault is named, that one and no other."""

import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))

from speccases import arguments, whole, write

from supervisor.checkpoints.reading.folder import locate
from supervisor.checkpoints.reading.verifying import Options, verify_save
from supervisor.checkpoints.spec.checking import SpecCheck
from supervisor.checkpoints.spec.compare import compare
from supervisor.checkpoints.spec.items import State
from supervisor.checkpoints.spec.megatron import document_of


def planted(save, choose):
    """One fault: the save with it, and how it must be named."""
    how = choose.choice(["remove", "remove object", "add", "add object", "retype", "reshape"])
    tensors, name = dict(save.tensors), choose.choice(sorted(save.tensors))
    kind = "bucket" if "bucket_idx" in name else "tensor"
    dtype, shape = tensors[name]
    if how == "remove":
        del tensors[name]
        return replace(save, tensors=tensors), (kind, name, State.MISSING)
    if how == "remove object":
        gone = choose.choice(sorted(name for name in save.objects if not name.startswith("common_state")))
        return replace(save, objects=save.objects - {gone}), ("object", gone, State.MISSING)
    if how == "add":
        new = choose.choice([f"{name}_v", f"optimizer.state.exp_avg.{name}.x", "decoder.layers.mlp.router.weight"])
        return replace(save, tensors={**tensors, new: ("float32", (2,))}), ("tensor", new, State.UNEXPECTED)
    if how == "add object":
        new = f"rng_state/shard_{choose.randrange(7, 9)}.0_9.1"
        return replace(save, objects=save.objects | {new}), ("object", new, State.UNEXPECTED)
    if how == "retype":
        tensors[name] = (choose.choice(sorted({"float32", "bfloat16", "int64", "uint8"} - {dtype})), shape)
        return replace(save, tensors=tensors), (kind, name, State.DTYPE)
    at = choose.randrange(len(shape))
    tensors[name] = (dtype, (*shape[:at], shape[at] + 1, *shape[at + 1 :]))
    return replace(save, tensors=tensors), (kind, name, State.SHAPE)


def named(comparison):
    """The differences; coverage apart, which follows from them."""
    found = [(item.kind, item.name, item.state) for item in comparison.differences]
    return [one for one in found if one[0] != "coverage"], [one for one in found if one[0] == "coverage"]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_one_fault_is_named_and_no_other(seed):
    choose = random.Random(seed)
    document = document_of(arguments(choose))
    save = whole(document, choose)
    assert compare(document, save).differences == ()
    broken, expected = planted(save, choose)
    found, coverage = named(compare(document, broken))
    assert found == [expected]
    # Only what is not there in its own form no longer covers its weights.
    kind, name, state = expected
    entry = next((entry for entry in document.tensors if entry.name == name), None)
    if entry is not None and state in {State.MISSING, State.SHAPE}:
        assert [one[1] for one in coverage] == [entry.role]
    elif kind == "bucket":
        assert {one[1].rpartition(".")[2] for one in coverage} <= {name.rpartition(".")[2]}
    else:
        assert coverage == []


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32))
def test_so_it_is_with_saves_on_disk(seed):
    choose = random.Random(seed)
    document = document_of(arguments(choose))
    save = whole(document, choose)
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/good/iter_0000040", save)
        report, comparison = checked(f"{folder}/good/iter_0000040", document)
        assert report.verdict.value == "complete", report.findings
        assert set(comparison.counts) == {State.AGREES}
        broken, expected = planted(save, choose)
        write(f"{folder}/bad/iter_0000040", broken)
        report, comparison = checked(f"{folder}/bad/iter_0000040", document)
        assert report.verdict.value == "broken"
        assert named(comparison)[0] == [expected]


def checked(path, document):
    located = locate(path)
    check = SpecCheck(document, located.folder)
    report = verify_save(located, Options(lag_s=0.0, extra_checks=(check,)))
    return report, check.comparison
