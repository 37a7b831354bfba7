"""Who reads Slurm, as the settings have it; a pyslurm that can't be had costs one line in the log and nothing else."""

import importlib.util
from pathlib import Path

import pytest
import structlog

from slurm.asking import Commands
from slurm.cluster import Unreadable
from slurm.native import Native
from slurm.parsing import JobRow
from supervisor.clusters import _reads
from supervisor.settings import ClusterSettings

HERE = importlib.util.find_spec("pyslurm") is not None


@pytest.mark.parametrize(
    ("settings", "native"),
    [
        ({"reads": "commands", "pyslurm_python": "/nowhere/python"}, False),
        ({"reads": "auto"}, HERE),
        ({"reads": "auto", "pyslurm_python": "/nowhere/python"}, True),
        ({"reads": "pyslurm"}, True),
        ({}, HERE),
    ],
)
def test_the_settings_choose(settings, native):
    assert (_reads(ClusterSettings(**settings)) is not None) is native


@pytest.mark.usefixtures("heard")
def test_a_pyslurm_that_is_not_there_is_said_once_and_the_commands_read(tmp_path):
    squeue = Path(tmp_path, "squeue")
    squeue.write_text("#!/bin/sh\necho '17|RUNNING|2026-12-01T00:20:06|n001|n001|None'\n")
    squeue.chmod(0o755)
    reads = _reads(ClusterSettings(reads="pyslurm", pyslurm_python="/nowhere/python"))
    assert reads is not None
    source = reads(Commands("17", {"PATH": f"{tmp_path}:/usr/bin:/bin"}, 5.0))
    assert isinstance(source, Native)
    with structlog.testing.capture_logs() as said:
        assert isinstance(source.job(), JobRow)
        assert isinstance(source.job(), JobRow)
        assert isinstance(source.nodes(("n001",)), Unreadable)  # there is no sinfo here
    source.close()
    assert [line["log_level"] for line in said] == ["warning"]
    assert "Slurm is read by its commands" in said[0]["event"]
    assert "/nowhere/python" in said[0]["event"]
