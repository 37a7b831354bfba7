"""A training script's own spec: written whole, and a parameter without moments is refused."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from supervisor.checkpoints.spec.document import read
from supervisor.training.spec import SaveSpec

NAMES = {"exp_avg": "optim.{}.exp_avg", "exp_avg_sq": "optim.{}.exp_avg_sq", "master": "optim.{}.master"}


def tensor(*shape, **more):
    return SimpleNamespace(shape=shape, dtype="torch.bfloat16", **more)


def test_weights_masters_and_moments_go_together(tmp_path):
    weights = {"a": tensor(2, 3), "b": tensor(4)}
    spec = SaveSpec(run="demo")
    spec.weights(weights.items(), "model.{}")
    spec.adam([{"params": [weights["a"]]}, {"params": [weights["b"]]}], NAMES)
    spec.setting("arguments.seed", 7)
    spec.write(str(tmp_path / "spec.json"))
    document = read(str(tmp_path / "spec.json"))
    assert [(e.name, e.dtype, e.shape, e.role, e.of) for e in document.tensors if "a" in e.name.split(".")] == [
        ("model.a", "bfloat16", (2, 3), "weight", None),
        ("optim.a.exp_avg", "float32", (2, 3), "exp_avg", "model.a"),
        ("optim.a.exp_avg_sq", "float32", (2, 3), "exp_avg_sq", "model.a"),
        ("optim.a.master", "float32", (2, 3), "master", "model.a"),
    ]
    assert document.origin == "training-script"
    assert [path.name for path in tmp_path.iterdir()] == ["spec.json"]


def test_what_can_not_be_is_refused(tmp_path):
    weights = {"a": tensor(2), "b": tensor(3), "frozen": tensor(4, requires_grad=False)}
    spec = SaveSpec()
    with pytest.raises(ValueError, match="no weights"):
        spec.write(str(tmp_path / "spec.json"))
    spec.weights(weights.items())
    with pytest.raises(ValueError, match="b is in no group"):
        spec.adam([{"params": [weights["a"]]}], NAMES)
    with pytest.raises(ValueError, match="exp_avg_sq too"):
        SaveSpec().adam([], {"exp_avg": "x"})
    with pytest.raises(ValueError, match="is no named weight"):
        SaveSpec().adam([{"params": [tensor(5)]}], NAMES)
    with pytest.raises(ValueError, match="a is named twice"):
        spec.weights([("a", tensor(2))])
    with pytest.raises(ValueError, match="a is named twice"):
        spec.objects("a")
    with pytest.raises(ValueError, match="where the answer stands"):
        spec.need("what")


def test_it_needs_nothing_but_the_standard_library():
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import json\n"
        "from supervisor.training.spec import SaveSpec\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules} & {'pydantic', 'click', 'torch', 'policies'})))"
    )
    root = __file__.rsplit("/tests/", 1)[0]
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script, root], capture_output=True, check=True)
    assert json.loads(done.stdout) == []
