"""`relight checkpoints spec|show` and `relight verify --spec`: what they print, and their exit codes."""

import json
import random
import sys
from dataclasses import replace

import pytest
from speccases import LARGE, whole, write

from supervisor.checkpoints.spec.document import read
from supervisor.checkpoints.spec.megatron import document_of
from supervisor.cli import main


@pytest.fixture
def relight(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["relight", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return call


@pytest.fixture
def save(tmp_path):
    held = whole(document_of(LARGE), random.Random(0))
    stored = {"content.distrib_optim_sharding_type": "fully_reshardable"}
    write(str(tmp_path / "iter_0000040"), replace(held, facts={**held.facts, **stored}))
    (tmp_path / "args.json").write_text(json.dumps(LARGE))
    return held


def test_from_arguments_to_a_verdict(relight, save, tmp_path):
    code, out, err = relight("checkpoints", "spec", "--args-json", "args.json", "-o", "spec.json")
    assert (code, out) == (0, "")
    assert err.startswith("from Megatron's arguments: 64 tensors (59,072 elements of weights)")
    assert read("spec.json").digest == document_of(LARGE).digest
    code, out, _ = relight("verify", "--spec", "spec.json", "iter_0000040")
    assert code == 0
    assert "SPEC from Megatron's arguments" in out
    code, out, _ = relight("verify", "--json", "--spec", "spec.json", "iter_0000040")
    assert code == 0
    assert json.loads(out)["spec"]["items"] == []


def test_what_is_missing_is_broken_with_every_item(relight, save, tmp_path):
    relight("checkpoints", "spec", "--args-json", "args.json", "-o", "spec.json")
    lost = {name: form for name, form in save.tensors.items() if "exp_avg_sq" not in name}
    assert len(save.tensors) - len(lost) == 16
    write(str(tmp_path / "other" / "iter_0000040"), replace(save, tensors=lost))
    code, out, _ = relight("verify", "--json", "--spec", "spec.json", "other/iter_0000040")
    answer = json.loads(out)
    assert (code, answer["verdict"]) == (1, "broken")
    assert answer["spec"]["counts"]["missing"] == 16
    assert len(answer["spec"]["items"]) == 17
    code, out, _ = relight("verify", "--spec", "spec.json", "other/iter_0000040")
    assert code == 1
    assert out.count("MISSING tensor optimizer.state.exp_avg_sq.") == 16
    code, out, _ = relight("checkpoints", "show", "other/iter_0000040", "--spec", "spec.json")
    assert code == 1
    assert "COVERS OTHER ELEMENTS coverage exp_avg_sq: 0, must be 59,072 elements" in out


def test_megatrons_own_command_line(relight):
    words = [
        "--num-layers",
        "1",
        "--hidden-size",
        "8",
        "--num-attention-heads",
        "4",
        "--padded-vocab-size",
        "16",
        "--bf16",
    ]
    words += ["--use-distributed-optimizer", "--position-embedding-type", "rope", "--log-interval", "5"]
    code, out, err = relight("checkpoints", "spec", "--", *words)
    assert code == 0
    assert json.loads(out)["origin"] == "megatron-arguments"
    assert err.splitlines()[1] == "plays no part: --log-interval"


def test_a_baseline_and_the_arguments_of_a_save(relight, save):
    code, _, err = relight("checkpoints", "spec", "--from", "iter_0000040", "-o", "base.json")
    assert code == 0
    assert err.startswith("baseline, not from configuration")
    code, out, _ = relight("verify", "--spec", "base.json", "iter_0000040")
    assert code == 0
    assert "BASELINE the spec was taken from a save" in out
    code, out, _ = relight("checkpoints", "spec", "--arguments-of", "iter_0000040")
    assert code == 0
    document = json.loads(out)
    assert document["origin"] == "arguments-in-save"
    assert len(document["tensors"]) == 64
    code, out, _ = relight("checkpoints", "show", "base.json")
    assert code == 0
    assert out.startswith("SPEC baseline")
    code, out, _ = relight("checkpoints", "show", "iter_0000040")
    assert code == 0
    assert "tensor output_layer.weight: bfloat16 [128, 32]" in out


def test_a_half_written_save_is_not_yet_and_no_baseline(relight, save, tmp_path):
    relight("checkpoints", "spec", "--args-json", "args.json", "-o", "spec.json")
    (tmp_path / "iter_0000040" / ".metadata").unlink()
    assert relight("verify", "--spec", "spec.json", "iter_0000040")[0] == 3
    code, _, err = relight("checkpoints", "show", "iter_0000040", "--spec", "spec.json")
    assert code == 3
    assert err.startswith("not_yet: NO_METADATA .metadata: ")
    code, _, err = relight("checkpoints", "spec", "--from", "iter_0000040")
    assert code == 2
    assert "not_yet: NO_METADATA" in err


def test_mistakes_are_one_line(relight, save, tmp_path):
    (tmp_path / "bad.json").write_text("[1]")
    for args, why in (
        (("checkpoints", "spec"), "give one of"),
        (("checkpoints", "spec", "--args-json", "bad.json"), "it must be an object"),
        (("checkpoints", "spec", "--args-json", "none.json"), "No such file"),
        (("checkpoints", "spec", "--args-json", "args.json", "-o", "args.json"), "File exists"),
        (("checkpoints", "spec", "--from", "."), None),
        (("verify", "--spec", "bad.json", "iter_0000040"), "--spec bad.json: it is no spec"),
        (("checkpoints", "show", "iter_0000040", "--json"), "only there with --spec"),
        (("checkpoints", "show", "nowhere"), "nowhere"),
    ):
        code, _, err = relight(*args)
        if why is not None:
            assert code == 2, args
            assert why in err
            assert len(err.splitlines()) == 1
