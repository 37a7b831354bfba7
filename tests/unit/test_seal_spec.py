"""A seal holds each save against the run's spec; without one, it tells how it differs from the first completed save."""

import hashlib
import json
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from speccases import LARGE
from test_store_good import Now, items_of, new_store, write_save
from test_verify_samples import ARCHIVE, samples

from policies.facts import CheckpointPhase
from supervisor.checkpoints.seal_spec import SpecFile
from supervisor.checkpoints.spec import document as documents
from supervisor.checkpoints.spec.megatron import document_of
from supervisor.checkpoints.store import PosixStore
from supervisor.errors import NotRestorable, UserError
from supervisor.observe.machine import look_at_settings
from supervisor.prepare import Wishes, prepare
from supervisor.settings import frozen
from supervisor.stores import open_store
from supervisor.training.spec import SaveSpec

WORLD = 4
__all__ = ["samples"]


@dataclass(frozen=True)
class Tensor:
    shape: tuple
    dtype: str = "uint8"


def script_spec(*, lr=False, more=()):
    """What the makers' saves hold, as a training script would write it down."""
    spec = SaveSpec(model="made up")
    spec.weights([("w", Tensor((206,)))])
    for name in ("ledger.step", "ledger.samples", "ledger.skipped", "optimizer.step", *more):
        spec.tensor(name, "int64", (1,))
    spec.need("how many samples were read", "counters.samples")
    if lr:
        spec.need("the learning rate", "counters.lr")
    return spec


@pytest.fixture
def spec(tmp_path):
    path = str(tmp_path / "spec.json")
    script_spec().write(path)
    return SpecFile(path, documents.read(path).digest)


def manifest(root, save):
    return json.loads((Path(root) / "seals" / save / "manifest.json").read_text())


def without(name):
    """What a save that lost one of its tensors would hold."""
    return [item for item in items_of(1, 40) if item.name != name]


def test_a_save_that_is_as_asked_says_against_what(tmp_path, spec):
    store = new_store(tmp_path / "c", spec=spec)
    write_save(store)
    assert store.seal("a0001-i0000040").phase is CheckpointPhase.COMPLETED
    found = manifest(tmp_path / "c", "a0001-i0000040")
    assert found["spec"] == {"digest": spec.digest, "origin": "training-script"}
    assert found["checks"]["spec"] == f"from the training script, {spec.digest[:12]}: 7 of 7 items agree"
    assert "baseline" not in found["checks"]
    assert not os.path.exists(tmp_path / "c/seals/baseline.json")


def other(name, **changed):
    """The items with one tensor of another form."""
    return [replace(item, **changed) if item.name == name else item for item in items_of(1, 40)]


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        (without("ledger.skipped"), "SPEC_MISSING ledger.skipped: tensor is missing, int64 [1]"),
        ([*items_of(1, 40), replace(items_of(1, 40)[-1], name="extra")], "SPEC_UNEXPECTED extra: tensor int64 [1]"),
        (other("ledger.skipped", dtype="float64"), "SPEC_DTYPE ledger.skipped: float64 [1] where it must be int64 [1]"),
    ],
)
def test_a_difference_makes_it_broken_with_its_code(tmp_path, spec, items, reason):
    store = new_store(tmp_path / "c", spec=spec)
    write_save(store, items=items)
    state = store.seal("a0001-i0000040")
    assert state.phase is CheckpointPhase.BROKEN
    assert reason in state.reasons
    assert store.latest() is None
    assert json.loads((tmp_path / "c/seals/a0001-i0000040/BROKEN").read_text())["reasons"] == list(state.reasons)


def test_the_same_save_is_completed_where_no_spec_asks(tmp_path):
    store = new_store(tmp_path / "c")
    write_save(store, items=without("optimizer.step"))
    assert store.seal("a0001-i0000040").phase is CheckpointPhase.COMPLETED


def test_a_young_difference_may_be_a_lagging_cache(tmp_path, spec):
    store = new_store(tmp_path / "c", spec=spec, clock=time.time, settle_s=3600)
    write_save(store, items=without("optimizer.step"))
    state = store.seal("a0001-i0000040")
    assert (state.phase, state.reasons[0][:12]) == (CheckpointPhase.NOT_YET, "SPEC_MISSING")


@pytest.mark.parametrize("fault", ["gone", "other", "rotten"])
def test_while_the_frozen_spec_is_away_nothing_is_sealed_and_nothing_is_broken(tmp_path, spec, fault):
    store = new_store(tmp_path / "c", spec=spec)
    write_save(store)
    kept = Path(spec.path).read_bytes()
    if fault == "gone":
        os.unlink(spec.path)
    else:
        script_spec(more=("x",)).write(spec.path)
    if fault == "rotten":
        Path(spec.path).write_text("{")
    state = store.seal("a0001-i0000040")
    assert state.phase is CheckpointPhase.NOT_YET
    assert "spec" in state.reasons[0]
    assert not os.path.exists(tmp_path / "c/seals/a0001-i0000040/OUTCOME")
    Path(spec.path).write_bytes(kept)
    assert store.seal("a0001-i0000040").phase is CheckpointPhase.COMPLETED


def test_what_it_asks_and_the_save_does_not_answer_is_broken(tmp_path):
    path = str(tmp_path / "spec.json")
    script_spec(lr=True).write(path)
    store = new_store(tmp_path / "c", spec=SpecFile(path, documents.read(path).digest))
    write_save(store)
    state = store.seal("a0001-i0000040")
    assert (state.phase, state.reasons) == (
        CheckpointPhase.BROKEN,
        ("SPEC_MISSING the learning rate: need is missing, counters.lr",),
    )


def test_an_adopted_save_is_held_against_it_too(tmp_path, spec):
    other = new_store(tmp_path / "old")
    path = write_save(other, items=without("ledger.skipped"))
    store = new_store(tmp_path / "c", spec=spec)
    with pytest.raises(NotRestorable, match=r"SPEC_MISSING ledger\.skipped"):
        store.adopt(path)
    whole = write_save(other, 1, 50)
    assert store.adopt(whole).phase is CheckpointPhase.COMPLETED
    assert manifest(tmp_path / "c", "a0000-i0000050")["spec"]["digest"] == spec.digest


# --- without a spec: a baseline ------------------------------------------------------------------------------------


def test_the_first_completed_save_is_the_baseline_of_the_later_ones(tmp_path):
    store = new_store(tmp_path / "c")
    write_save(store, 1, 10, metadata=False)
    torn = write_save(store, 1, 20)
    os.truncate(os.path.join(torn, "__0_0.distcp"), 10)
    store.seal("a0001-i0000010")
    store.seal("a0001-i0000020")
    assert not os.path.exists(tmp_path / "c/seals/baseline.json")
    for step in (30, 40):
        write_save(store, 1, step)
        assert store.seal(f"a0001-i{step:07d}").phase is CheckpointPhase.COMPLETED
    baseline = documents.read(str(tmp_path / "c/seals/baseline.json"))
    assert (baseline.origin, baseline.about["save"]) == ("baseline", "a0001-i0000030")
    assert manifest(tmp_path / "c", "a0001-i0000030")["checks"]["baseline"] == "none yet; this one becomes it"
    found = manifest(tmp_path / "c", "a0001-i0000040")
    assert found["checks"]["baseline"].startswith("as in a0001-i0000030: ")
    assert found["spec"] is None
    assert [s.id for s in store.scan()] == [f"a0001-i{n:07d}" for n in (10, 20, 30, 40)]


def test_what_differs_from_it_is_told_and_decides_nothing(tmp_path):
    store = new_store(tmp_path / "c")
    write_save(store, 1, 10)
    store.seal("a0001-i0000010")
    before = (tmp_path / "c/seals/baseline.json").read_bytes()
    write_save(store, 1, 20, items=[i for i in items_of(1, 20) if i.name != "optimizer.step"])
    assert store.seal("a0001-i0000020").phase is CheckpointPhase.COMPLETED
    said = manifest(tmp_path / "c", "a0001-i0000020")["checks"]["baseline"]
    assert said.startswith("BASELINE: ")
    assert "items are not as in a0001-i0000010: tensor optimizer.step missing" in said
    assert (tmp_path / "c/seals/baseline.json").read_bytes() == before


@pytest.mark.parametrize("content", [b"{", b"", b'{"schema":1,"kind":"relight-spec","origin":"baseline"}'])
def test_a_baseline_that_makes_no_sense_stops_no_seal(tmp_path, content):
    store = new_store(tmp_path / "c")
    write_save(store)
    (tmp_path / "c/seals/baseline.json").write_bytes(content)
    assert store.seal("a0001-i0000040").phase is CheckpointPhase.COMPLETED
    assert manifest(tmp_path / "c", "a0001-i0000040")["checks"]["baseline"].startswith(
        "not compared: baseline.json: it is no spec"
    )
    assert (tmp_path / "c/seals/baseline.json").read_bytes() == content


class Killed(BaseException):
    pass


@pytest.mark.parametrize("where", ["before baseline.json", "after baseline.json"])
def test_a_sealer_that_dies_over_the_baseline_leaves_a_completed_save(tmp_path, where):
    def dies(name):
        if name == where:
            raise Killed

    write_save(new_store(tmp_path / "c"))
    with pytest.raises(Killed):
        PosixStore(str(tmp_path / "c"), WORLD, Now(), step=dies).seal("a0001-i0000040")
    store = new_store(tmp_path / "c")
    assert store.latest() == "a0001-i0000040"
    write_save(store, 1, 50)
    assert store.seal("a0001-i0000050").phase is CheckpointPhase.COMPLETED
    kept = documents.read(str(tmp_path / "c/seals/baseline.json")).about["save"]
    assert kept == ("a0001-i0000050" if where.startswith("before") else "a0001-i0000040")


# --- frozen with the run -------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path, monkeypatch):
    """relight.toml in a folder of its own, and another one to stand in."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "conf/relight.toml").write_text('[checkpoints]\nspec = "spec.json"\n')
    return tmp_path


def start(place):
    return prepare(Wishes(None, str(place / "conf/relight.toml"), None, str(place / "run"), ("true",)))


def complaint(place):
    with pytest.raises(UserError) as caught:
        start(place)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_it_is_found_beside_the_settings_and_kept_with_the_run(place):
    script_spec().write(str(place / "conf/spec.json"))
    run, settings, _ = start(place)
    kept = (place / "run/spec.json").read_bytes()
    digest = hashlib.sha256(kept).hexdigest()
    assert settings.checkpoints.spec_digest == frozen(run.root).checkpoints.spec_digest == digest
    assert settings.checkpoints.spec == str(place / "conf/spec.json")
    os.unlink(place / "conf/spec.json")  # a restart at night does not need it any more
    assert start(place)[1].checkpoints.spec_digest == digest
    assert (place / "run/spec.json").read_bytes() == kept


def test_the_runs_store_judges_by_it(place):
    script_spec(more=("lost",)).write(str(place / "conf/spec.json"))
    (place / "conf/relight.toml").write_text('[checkpoints]\nspec = "spec.json"\n[layout]\ntp = 2\npp = 2\n')
    run, _, _ = start(place)
    store = open_store(run, frozen(run.root))
    store.create()
    path = write_save(store)
    for name in os.listdir(path):
        os.utime(os.path.join(path, name), (1e9, 1e9))
    state = store.seal("a0001-i0000040")
    assert (state.phase, state.reasons[0]) == (
        CheckpointPhase.BROKEN,
        "SPEC_MISSING lost: tensor is missing, int64 [1]",
    )


def test_another_spec_later_is_refused_with_what_to_do(place):
    script_spec().write(str(place / "conf/spec.json"))
    start(place)
    script_spec(more=("x",)).write(str(place / "conf/spec.json"))
    said = complaint(place)
    assert said.startswith("checkpoints.spec has changed since this run began (")
    assert "Put it back, or start another run" in said
    (place / "conf/relight.toml").write_text("")
    assert "-> none): a run keeps its spec" in complaint(place)


def test_a_run_without_one_does_not_get_one_later(place):
    (place / "conf/relight.toml").write_text("")
    start(place)
    script_spec().write(str(place / "conf/spec.json"))
    (place / "conf/relight.toml").write_text('[checkpoints]\nspec = "spec.json"\n')
    assert "(none -> " in complaint(place)


def test_one_that_is_not_there_yet_is_one_line(place):
    assert complaint(place).startswith(
        f"checkpoints.spec = {place}/conf/spec.json: there is no such file. Write it before"
    )
    (place / "conf/spec.json").write_text("{}")
    assert complaint(place).startswith(f"checkpoints.spec = {place}/conf/spec.json: it is no spec: ")
    assert not os.path.exists(place / "run/settings.json")


def test_a_start_that_failed_leaves_no_spec_that_counts(place):
    """It died between the copy and the settings: the next first start decides."""
    script_spec(more=("x",)).write(str(place / "conf/spec.json"))
    (place / "run").mkdir()
    (place / "run/spec.json").write_bytes(documents.read(str(place / "conf/spec.json")).to_bytes())
    script_spec().write(str(place / "conf/spec.json"))
    _, settings, _ = start(place)
    assert hashlib.sha256((place / "run/spec.json").read_bytes()).hexdigest() == settings.checkpoints.spec_digest


def test_a_digest_that_is_given_must_be_that_of_the_spec(place):
    script_spec().write(str(place / "conf/spec.json"))
    wrong = "0" * 64
    (place / "conf/relight.toml").write_text(f'[checkpoints]\nspec = "spec.json"\nspec_digest = "{wrong}"\n')
    assert "not the one of checkpoints.spec_digest" in complaint(place)
    (place / "conf/relight.toml").write_text(f'[checkpoints]\nspec_digest = "{wrong}"\n')
    assert "there is no checkpoints.spec" in complaint(place)


# --- Megatron's arguments in the settings --------------------------------------------------------------------------


def test_the_framework_puts_its_arguments_into_the_command(place):
    text = 'command = ["python", "pretrain_gpt.py", "--num-layers", "2"]\n[checkpoints]\nframework = "megatron"\n'
    (place / "conf/relight.toml").write_text(text)
    wishes = Wishes(None, str(place / "conf/relight.toml"), None, str(place / "run"), ())
    for _ in range(2):
        run, settings, _ = prepare(wishes)
        assert settings.command == frozen(run.root).command
        assert settings.command[4:] == (
            "--save", "{save_dir}", "--load", "{load_dir}", "--ckpt-format", "torch_dist", "--exit-on-missing-checkpoint",
        )  # fmt: skip
    (place / "conf/relight.toml").write_text(text.replace('"2"', '"2", "--finetune"'))
    with pytest.raises(UserError, match=r"^--finetune: "):
        prepare(wishes)
    (place / "conf/relight.toml").write_text(text.replace('framework = "megatron"', ""))
    assert prepare(wishes)[1].command == ("python", "pretrain_gpt.py", "--num-layers", "2")  # then nothing is touched


def test_the_doctor_sees_it_before_the_start(place):
    script_spec().write(str(place / "conf/spec.json"))
    path = place / "conf/relight.toml"
    assert look_at_settings(str(path))[0].trouble == ""
    text = 'command = ["python", "pretrain_gpt.py", "--num-layers", "2", "--save", "/ckpt"]\n[checkpoints]\n'
    path.write_text(text + 'framework = "megatron"\n')
    assert look_at_settings(str(path))[0].trouble.startswith("--save /ckpt: relight gives --save and --load")
    path.write_text('[checkpoints]\nspec = "other.json"\nframework = "megatron"\n')  # the command may stand behind --
    assert look_at_settings(str(path))[0].trouble == f"{place}/conf/other.json: No such file or directory"


# --- Megatron's real saves -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not ARCHIVE.exists(), reason="the samples lie beside the repository")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, None),
        ({"num_layers": 6}, "SPEC_SHAPE"),
        ({"untie_embeddings_and_output_weights": False}, "SPEC_UNEXPECTED"),
        ({"qk_layernorm": True}, "SPEC_MISSING"),
    ],
)
def test_a_real_save_of_megatrons_against_its_arguments(samples, tmp_path, change, code):
    document = document_of({**LARGE, **change})
    (tmp_path / "spec.json").write_bytes(document.to_bytes())
    store = PosixStore(str(tmp_path / "c"), 8, Now(), spec=SpecFile(str(tmp_path / "spec.json"), document.digest))
    store.create()
    (source,) = (samples / "real_8rank_fully_reshardable").glob("iter_*")
    shutil.copytree(source, os.path.join(store.save_dir(1), source.name))
    checkpoint = f"a0001-i{int(source.name[5:]):07d}"
    state = store.seal(checkpoint)
    if code is None:
        assert state.phase is CheckpointPhase.COMPLETED, state.reasons
        assert manifest(tmp_path / "c", checkpoint)["spec"]["origin"] == "megatron-arguments"
    else:
        assert state.phase is CheckpointPhase.BROKEN
        assert any(reason.startswith(code) for reason in state.reasons), state.reasons
