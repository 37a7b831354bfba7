"""Injected faults in the real trainer: a poison stays in its sample, an end comes once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from supervisor.bench.trainer import injected

pytestmark = pytest.mark.real
MAIN = Path(__file__).parents[2] / "supervisor" / "bench" / "trainer" / "__main__.py"


def test_a_poison_stays_and_an_end_comes_once(tmp_path: Path) -> None:
    injected.file(str(tmp_path), "nan", 2, 0, 1764513622.0)
    injected.file(str(tmp_path), "sigkill", 3, 0, 1764513623.0)
    env = {k: v for k, v in os.environ.items() if not k.startswith("RELIGHT_")}
    env |= {"RELIGHT_RUN_DIR": str(tmp_path), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    argv = [sys.executable, "-u", str(MAIN), "--steps", "3", "--global-batch", "4"]
    ends = [subprocess.run(argv, env=env, capture_output=True, text=True, check=False) for _ in range(2)]
    assert [one.returncode for one in ends] == [-9, 0], ends[1].stderr
    for one in ends:
        assert "rank 0: found NaN in local forward loss, step 2, samples 4 to 7" in one.stdout
    assert "step 3 loss" in ends[1].stdout
    assert "step 3 loss nan" not in ends[1].stdout
