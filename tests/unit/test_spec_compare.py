"""Comparing, without a save: each kind of difference is named, and what could not be read is never one."""

import random
from dataclasses import replace

import pytest
from speccases import BASE, LARGE, SMALL, facts, whole

from supervisor.checkpoints.reading.findings import Finding, Weight
from supervisor.checkpoints.reading.structure import Structure
from supervisor.checkpoints.spec import told
from supervisor.checkpoints.spec.baseline import baseline_of
from supervisor.checkpoints.spec.compare import compare
from supervisor.checkpoints.spec.document import Document, TensorEntry, parse
from supervisor.checkpoints.spec.held import Held, held
from supervisor.checkpoints.spec.items import State
from supervisor.checkpoints.spec.megatron import document_of
from supervisor.errors import UserError

FLAT = document_of(SMALL)
FULL = document_of(LARGE)
BUCKET = "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_{}.{}"


def flat_save(*sizes):
    save = whole(FLAT, random.Random(0))
    tensors = {name: form for name, form in save.tensors.items() if not name.startswith("optimizer.")}
    for number, size in enumerate(sizes):
        tensors |= {BUCKET.format(number, kind): ("float32", (size,)) for kind in ("param", "exp_avg", "exp_avg_sq")}
    return replace(save, tensors=tensors)


def states(comparison):
    return [(item.name, item.state) for item in comparison.differences]


def test_what_holds_everything_agrees():
    for document in (FLAT, FULL):
        comparison = compare(document, whole(document, random.Random(1)))
        assert set(comparison.counts) == {State.AGREES}
        assert comparison.findings() == ()


def test_flat_moments_must_cover_the_weights():
    assert compare(FLAT, flat_save(1664)).differences == ()
    assert compare(FLAT, flat_save(1000, 144)).differences == ()
    groups = [f"optimizer.distributed.dp_group_idx_0.{kind}" for kind in ("param", "exp_avg", "exp_avg_sq")]
    for sizes in ((1143,), (1665,), (1664, 1664), ()):
        assert states(compare(FLAT, flat_save(*sizes))) == [(group, State.COVERAGE) for group in groups]


def test_a_bucket_that_is_left_out_is_a_gap():
    save = flat_save(500, 500, 500)
    tensors = {name: form for name, form in save.tensors.items() if "bucket_idx_1." not in name}
    found = states(compare(FLAT, replace(save, tensors=tensors)))
    assert found[0] == (BUCKET.format(1, "").rstrip("."), State.MISSING)


def test_a_bucket_with_a_huge_number_costs_nothing():
    save = flat_save(1664)
    tensors = dict(save.tensors) | {BUCKET.format(9_999_999, "param"): ("float32", (1,))}
    assert len(compare(FLAT, replace(save, tensors=tensors)).differences) < 50


def test_the_bucket_that_is_unlike_the_others_is_named():
    save = flat_save(1664)
    name = BUCKET.format(0, "exp_avg_sq")
    found = compare(FLAT, replace(save, tensors={**save.tensors, name: ("float32", (1600,))}))
    assert states(found) == [(name, State.SHAPE)]
    assert found.findings()[0] == Finding("SPEC_SHAPE", name, "float32 [1600] where it must be float32 [1664]")


def test_groups_one_and_ten_are_not_mixed_up():
    document = document_of(
        {**BASE, "num_layers": 12, "hidden_size": 8, "padded_vocab_size": 16, "pipeline_model_parallel_size": 12}
    )
    assert compare(document, whole(document, random.Random(2))).differences == ()


def test_a_state_of_another_form_covers_nothing():
    save = whole(FULL, random.Random(0))
    name = "optimizer.state.exp_avg.embedding.word_embeddings.weight"
    comparison = compare(FULL, replace(save, tensors={**save.tensors, name: ("float32", (32, 128))}))
    assert states(comparison) == [(name, State.SHAPE), ("exp_avg", State.COVERAGE)]


def test_settings_that_differ_break_and_those_not_said_are_noted():
    save = whole(FULL, random.Random(0))
    said = {k: v for k, v in save.facts.items() if k != "arguments.hidden_size"} | {"arguments.seed": 7}
    comparison = compare(FULL, replace(save, facts=said))
    assert states(comparison) == [("arguments.seed", State.DIFFERS)]
    weights = {finding.code: finding.weight for finding in comparison.findings()}
    assert weights == {"SPEC_DIFFERS": Weight.BROKEN, "SPEC_UNSAID": Weight.NOTE}


def test_a_flag_is_not_a_number():
    document = FULL.model_copy(update={"settings": {"arguments.x": True}})
    save = whole(FULL, random.Random(0))
    assert states(compare(document, replace(save, facts={**save.facts, "arguments.x": 1}))) == [
        ("arguments.x", State.DIFFERS)
    ]


@pytest.mark.parametrize(
    "place", ["counters.samples", "counters.skipped", "arguments.tokenizer_type", "schedule.num_steps"]
)
def test_a_question_without_an_answer_is_missing(place):
    save = whole(FULL, random.Random(0))
    comparison = compare(FULL, replace(save, facts={k: v for k, v in save.facts.items() if k != place}))
    assert {(item.kind, item.state) for item in comparison.differences} == {("need", State.MISSING)}


def test_what_could_not_be_read_is_no_difference():
    save = whole(FULL, random.Random(0))
    comparison = compare(FULL, replace(save, facts=None))
    assert comparison.differences == ()
    assert [finding.code for finding in comparison.findings()] == ["UNPROVED"]
    nothing = compare(FULL, Held({}, frozenset(), None))
    assert not nothing.known
    assert [finding.weight for finding in nothing.findings()] == [Weight.NOTE]


def test_metadata_of_which_a_part_is_to_come_tells_nothing():
    half = Structure("dcp-ranks", objects=frozenset({"step"}), findings=(Finding("NO_METADATA", "__1.metadata", ""),))
    assert not held(half, {}).is_known
    assert held(replace(half, findings=()), {}).is_known


def test_a_baseline_says_what_it_is():
    save = whole(FULL, random.Random(0))
    document = baseline_of(save, {"save": "iter_0000040"})
    assert document.origin == "baseline"
    comparison = compare(parse(document.to_bytes(), "it"), save)
    assert comparison.differences == ()
    assert [finding.code for finding in comparison.findings()] == ["BASELINE"]
    assert {entry.role for entry in document.tensors} == {"weight", "master", "exp_avg", "exp_avg_sq"}
    lost = {name: form for name, form in save.tensors.items() if "exp_avg_sq" not in name}
    assert State.MISSING in compare(document, replace(save, tensors=lost)).counts
    # And this is why it is no more than a baseline.
    assert compare(baseline_of(replace(save, tensors=lost), {}), replace(save, tensors=lost)).differences == ()


def test_counts_come_first_then_item_by_item():
    save = whole(FULL, random.Random(0))
    tensors = {name: form for name, form in save.tensors.items() if name != "output_layer.weight"}
    rows = list(
        told.lines(compare(FULL, replace(save, tensors={**tensors, "x\x1b[2J": ("int64", ())})), FULL, every=True)
    )
    assert rows[0][2].endswith("1 missing, 1 unexpected, 1 covers other elements")
    assert ("MISSING", "red", "tensor output_layer.weight: must be bfloat16 [128, 32]") in rows
    assert ("UNEXPECTED", "red", "tensor x?[2J: int64 []") in rows
    assert len([row for row in rows if row[1] == "green"]) == sum(compare(FULL, save).counts.values()) - 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tensors": ()}, "names no tensor"),
        ({"objects": ("a", "a")}, "named twice"),
        ({"schema": 2}, "schema"),
        ({"more": 1}, "more"),
        (
            {"tensors": ({"name": "m", "dtype": "float32", "shape": (4,), "role": "exp_avg", "of": "w"},)},
            "does not cover",
        ),
        ({"tensors": ({"name": "w", "dtype": "float32", "shape": (-4,), "role": "weight"},)}, "shape"),
    ],
)
def test_a_document_that_makes_no_sense_is_refused(change, why):
    import json

    sound = {
        "origin": "training-script",
        "tensors": ({"name": "w", "dtype": "float32", "shape": (4,), "role": "weight"},),
    }
    assert isinstance(parse(json.dumps(sound).encode(), "it"), Document)
    with pytest.raises(UserError, match=why):
        parse(json.dumps({**sound, **change}).encode(), "it")


def test_the_digest_is_of_the_content():
    again = parse(FULL.to_bytes(), "it")
    assert again == FULL
    assert again.digest == FULL.digest
    assert again.model_copy(update={"objects": ()}).digest != FULL.digest
    assert facts(FULL)
    assert TensorEntry(name="w", dtype="int64", shape=()).role == "state"
