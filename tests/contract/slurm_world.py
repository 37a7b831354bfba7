"""A real Slurm for contract tests: one job on the test cluster, and the port inside it."""

import importlib.util
import os
import sys
import time
from pathlib import Path

import pytest

from slurm import launching, native_process
from slurm.asking import Commands
from slurm.cluster import ClusterView, LaunchSpec
from slurm.commands import SlurmCommands
from slurm.native import Native
from supervisor.bench.slurmbed.bed import SlurmBed

STEP = "demo.a0001.e1"
WAIT_S = 40.0
SLEEP = ("/bin/sleep", "1000")


def shell(text, *arguments):
    return ("/bin/sh", "-c", text, "sh", *arguments)


class World:
    """One job on the bed, the cluster port inside it, and a way to wait for what it shows."""

    def __init__(self, bed: SlurmBed, run_dir: Path, nodes: int = 3, pyslurm: str = "") -> None:
        """`pyslurm`: a Python that has it, to read with."""
        self.bed = bed
        self.run_dir = str(run_dir)
        self.pyslurm = pyslurm
        self.natives: list[Native] = []
        self.said: list[str] = []
        self.job = bed.submit(nodes)
        self.nodes = bed.job_nodes(self.job)  # the first one holds the batch script
        self.cluster = self.again()

    def again(self, **settings) -> SlurmCommands:
        """The port as another controller would make it."""
        reads = self.native if self.pyslurm else None
        return SlurmCommands(self.run_dir, self.job, **{"env": self.bed.env, "reads": reads} | settings)

    def native(self, commands) -> Native:
        """With no commands to fall back to: what pyslurm does not tell is unreadable here."""
        worker = native_process.Worker(native_process.command(self.pyslurm), self.bed.env)
        nobody = Commands(commands.number, {"PATH": "/nowhere"}, 1.0)
        self.natives.append(Native(nobody, worker, self.said.append))
        return self.natives[-1]

    def close(self) -> None:
        """End what the job has left, and the job."""
        for native in self.natives:
            native.close()
        self.bed.cancel(self.job)
        for claim in Path(self.run_dir).glob("nodes/orders/*.claim"):
            standing = launching.read_claim(self.run_dir, claim.stem)
            assert standing is not None
            launching.end(self.run_dir, claim.stem, standing, WAIT_S)
        heal(self.bed)
        assert self.said == []  # no worker was late, died or did not fit

    def view(self) -> ClusterView:
        view = self.cluster.read()
        assert isinstance(view, ClusterView), view
        return view

    def until(self, true_of, wait_s=WAIT_S):
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            view = self.view()
            if true_of(view):
                return view
            time.sleep(0.05)  # Slurm announces nothing
        raise AssertionError(f"not seen in {wait_s} s: {self.view()}")

    def spec(self, argv=SLEEP, name=STEP, hosts=None, epoch=1, **env) -> LaunchSpec:
        hosts = tuple(self.nodes if hosts is None else hosts)
        return LaunchSpec(name, epoch, hosts, argv, env, self.run_dir, f"{self.run_dir}/out/{name}")

    def run(self, *arguments, **settings):
        """Launch, and wait until each task has said that it is there."""
        spec = self.spec(*arguments, **settings)
        spec = LaunchSpec(
            spec.name, spec.epoch, spec.hosts, shell('echo up; exec "$@"', *spec.argv), spec.env, spec.cwd, spec.output
        )
        self.cluster.launch(spec)
        self.until(lambda view: spec.name in view.steps and self.output(spec.name).count("up\n") == len(spec.hosts))
        return spec

    def output(self, step=STEP) -> str:
        path = Path(f"{self.run_dir}/out/{step}")
        return path.read_text() if path.exists() else ""

    def done(self, step=STEP):
        return self.until(lambda view: step in view.steps and not view.steps[step].running)

    def tasks(self, node, word=b"sleep\x001000\x00") -> list[int]:
        """Pids on a node of what was launched; its slurmd and what belongs to that aside."""
        found = []
        for pid in self.bed.node_pids(node):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if word in line and b"slurmd" not in line:
                found.append(pid)
        return found


def python_of(kind: str, bed: SlurmBed) -> str:
    """Who reads: empty for the commands; for pyslurm a Python that has it, RELIGHT_PYSLURM_PYTHON or ours, else skipped."""
    if kind == "commands":
        return ""
    named = os.environ.get("RELIGHT_PYSLURM_PYTHON", "")
    found = named or (sys.executable if importlib.util.find_spec("pyslurm") is not None else "")
    if not found:
        pytest.skip("no pyslurm: RELIGHT_PYSLURM_PYTHON names no Python that has it, and ours has not")
    version = bed.run("sinfo", "-V").split()[1]
    if not version.startswith("25.11."):
        pytest.skip(f"pyslurm 25.11 reads Slurm 25.11, and this is {version}")
    return found


def heal(bed: SlurmBed) -> None:
    """Every node is idle again."""
    for name, state in bed.node_states().items():
        if state != "idle":
            bed.revive_node(name)
            bed.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
    bed.until(lambda: set(bed.node_states().values()) == {"idle"}, "all nodes idle")
