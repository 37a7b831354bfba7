"""The proof with Megatron's saves, where Megatron itself is not: its environment, its samples, and what it skips."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from supervisor.bench import megatron_env
from supervisor.bench.megatron_nursery import Nursery
from supervisor.bench.proofs import megatron
from supervisor.bench.proofs.work import SkippedError, Work


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work("megatron", str(tmp_path), tell=lambda _: None)


def test_without_a_network_it_says_what_could_not_be_had(tmp_path: Path) -> None:
    refuses = (sys.executable, "-c", "import sys; sys.exit('ERROR: no route to the index')")
    with pytest.raises(
        megatron_env.NoMegatronError, match=r"megatron-core==0\.19\.2 can't be installed: ERROR: no route"
    ):
        megatron_env.make(str(tmp_path / "env"), refuses)
    assert not [name for name in os.listdir(tmp_path / "env") if name.startswith(".megatron")]


def test_an_environment_sees_our_torch_and_our_code_and_is_made_once(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    installs = (sys.executable, "-c", "import sys; assert 'megatron-core==0.19.2' in sys.argv, sys.argv")
    python = megatron_env.make(str(tmp_path / "env"), installs)
    kept = (tmp_path / "env" / "lib").rglob("relight.pth")
    assert str(Path(megatron_env.__file__).parents[2]) in next(kept).read_text().splitlines()
    refuses = (sys.executable, "-c", "raise SystemExit(1)")
    assert megatron_env.make(str(tmp_path / "env"), refuses) == python


@pytest.mark.skipif(not os.path.exists(megatron.samples_path()), reason="the samples lie beside the repository")
def test_the_samples_go_the_whole_way(work: Work) -> None:
    megatron.with_samples(work, megatron.samples_path())
    assert work.ok, work.checks
    assert len(work.checks) == 8


def test_with_neither_it_is_skipped(work: Work) -> None:
    with pytest.raises(SkippedError, match="neither Megatron Core nor"):
        megatron.with_samples(work, "/nowhere/samples.tar.xz")


FORKS = """
import sys
from supervisor.bench.megatron_nursery import farm
print("pids", flush=True)
"""


def test_a_warm_process_that_is_gone_is_told(tmp_path: Path) -> None:
    nursery = Nursery([sys.executable, "-c", FORKS], 2, str(tmp_path / "log"))
    assert nursery.hear() == "pids"
    with pytest.raises(RuntimeError, match="the warm process ended with 0"):
        nursery.hear()
    nursery.close()
