"""Real saves of Megatron Core 0.19.2 and torch DCP beside a spec made from their arguments alone."""

import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from speccases import LARGE, SMALL

from supervisor.checkpoints.reading.folder import locate
from supervisor.checkpoints.reading.verifying import Options, verify_save
from supervisor.checkpoints.spec.checking import SpecCheck
from supervisor.checkpoints.spec.document import read
from supervisor.checkpoints.spec.items import State
from supervisor.checkpoints.spec.megatron import document_of
from supervisor.training.spec import SaveSpec

ARCHIVE = Path(__file__).resolve().parents[3] / "shared" / "checkpoints" / "samples.tar.xz"
pytestmark = pytest.mark.skipif(not ARCHIVE.exists(), reason="the samples lie beside the repository")
SECOND = "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0.exp_avg_sq"


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    with tarfile.open(ARCHIVE) as archive:
        if hasattr(tarfile, "tar_filter"):
            archive.extractall(folder, filter="tar")
        else:  # Python 3.11.0 to 3.11.3
            archive.extractall(folder)  # noqa: S202 - our own archive
    (folder / "19_permission_denied/iter_0000030/__0_0.distcp").chmod(0)
    return folder


def checked(path, document):
    located = locate(str(path))
    check = SpecCheck(document, located.folder)
    report = verify_save(located, Options(lag_s=0.0, extra_checks=(check,)))
    assert check.comparison is not None
    return report, check.comparison


@pytest.mark.parametrize(
    ("name", "arguments"), [("00_good", SMALL), ("11_tracker_ahead", SMALL), ("real_8rank_fully_reshardable", LARGE)]
)
def test_good_saves_hold_what_their_arguments_ask(samples, name, arguments):
    report, comparison = checked(samples / name, document_of(arguments))
    assert comparison.differences == ()
    assert report.verdict.value == "complete", report.findings
    # Their common state was cut short when they were made; what it does say agrees.
    assert {i.kind for i in comparison.items if i.state is not State.AGREES} == {"setting"}


def test_a_missing_moment_is_found_by_the_spec_alone(samples):
    _, comparison = checked(samples / "10_missing_second_moment", document_of(SMALL))
    assert [(i.name, i.state) for i in comparison.differences] == [
        (SECOND, State.MISSING),
        ("optimizer.distributed.dp_group_idx_0.exp_avg_sq", State.COVERAGE),
    ]


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({"num_layers": 2}, {State.SHAPE, State.MISSING, State.UNEXPECTED, State.COVERAGE, State.DIFFERS}),
        ({"swiglu": True, "ffn_hidden_size": 32}, {State.SHAPE, State.COVERAGE}),
        ({"normalization": "RMSNorm"}, {State.UNEXPECTED, State.COVERAGE}),
        ({"untie_embeddings_and_output_weights": False}, {State.UNEXPECTED, State.COVERAGE}),
        ({"fp16": True, "bf16": False}, {State.DTYPE}),
        ({"seed": 4321}, {State.DIFFERS}),
        ({"min_lr": 1e-4}, {State.DIFFERS}),
    ],
)
def test_another_configuration_does_not_fit(samples, change, kinds):
    report, comparison = checked(samples / "00_good", document_of({**SMALL, **change}))
    assert {item.state for item in comparison.differences} == kinds
    assert report.verdict.value == "broken"


@pytest.mark.parametrize("name", ["14_no_dot_metadata", "15_truncated_dot_metadata", "24_malicious_pickle"])
def test_of_what_cannot_be_read_nothing_is_missing(samples, name):
    report, comparison = checked(samples / name, document_of(SMALL))
    assert not comparison.known
    assert comparison.items == ()
    assert not {finding.code for finding in report.findings if finding.code.startswith("SPEC_")}


def test_an_unreadable_shard_is_not_yet_and_its_answers_are_not_missing(samples):
    report, comparison = checked(samples / "19_permission_denied", document_of(SMALL))
    assert report.verdict.value == "not_yet"
    assert comparison.differences == ()
    assert State.UNREAD in comparison.counts


def dcp_spec(path, **leave_out):
    """As the script that trained the sample would have written it."""
    sizes = {"0.weight": (101, 33), "1.weight": (50, 33), "1.bias": (50,)}
    sizes |= {"2.weight": (50,), "2.bias": (50,), "3.weight": (7, 50), "3.bias": (7,)}
    named = {name: SimpleNamespace(shape=shape, dtype="torch.float32") for name, shape in sizes.items()}
    spec = SaveSpec(script="train.py")
    spec.weights(named.items(), "model.{}")
    states = {key: f"optim.state.{{}}.{key}" for key in ("exp_avg", "exp_avg_sq", "step")}
    spec.adam([{"params": list(named.values())}], states)
    spec.tensor("rng", "torch.uint8", (5056,))
    spec.objects("consumed", "lr", "step")
    spec.optional("optim.param_groups.*")
    spec.need("how many samples were read", "counters.samples")
    spec.need("how large is the next step", "counters.lr")
    spec.write(str(path))
    return read(str(path))


def test_a_training_script_writes_its_own(samples, tmp_path):
    document = dcp_spec(tmp_path / "spec.json")
    report, comparison = checked(samples / "real_dcp_4rank_fsdp2", document)
    assert comparison.differences == ()
    assert report.verdict.value == "complete"
    moments = [item.found for item in comparison.items if item.kind == "coverage"]
    assert moments == ["5,490"] * 3
    without = document.model_copy(update={"optional": (), "tensors": document.tensors[:-1]})
    _, comparison = checked(samples / "real_dcp_4rank_fsdp2", without)
    found = [(i.kind, i.name) for i in comparison.differences]
    assert ("tensor", "rng") in found
    assert set(comparison.counts) == {State.AGREES, State.UNEXPECTED}
    assert len(found) == 13
