"""The reference trainer, in real processes. Ranks are forked from one warm process, run by path as warm ranks are."""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

MAIN = Path(__file__).parents[2] / "supervisor" / "bench" / "trainer" / "__main__.py"


def nursery() -> None:
    """Fork a rank for each order on stdin, or wait for one; one line is answered to each line."""
    import supervisor.bench.trainer.loop  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            print(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1]), flush=True)
            continue
        assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not fork"
        pid = os.fork()
        if pid == 0:
            log = os.open(order["log"], os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ.update(order["env"])
            sys.argv = [str(MAIN), *order["argv"]]
            runpy.run_path(str(MAIN), run_name="__main__")
        print(pid, flush=True)


if __name__ == "__main__":
    nursery()
    sys.exit()


import pytest  # noqa: E402

pytest.importorskip("torch")
from supervisor.bench import weights  # noqa: E402

pytestmark = pytest.mark.real


@dataclass
class Ranks:
    """The ranks of one start, and the pipe on which the last of them tells its steps."""

    farm: Farm
    pids: list[int]
    told: IO[str]
    lines: list[str] = field(default_factory=list)

    def until(self, text: str) -> str:
        for line in self.told:
            self.lines.append(line.rstrip("\n"))
            if line.startswith(text):
                return line
        raise AssertionError((text, self.lines))

    def kill(self, rank: int) -> list[int]:
        os.kill(self.pids[rank], signal.SIGKILL)
        return self.wait()

    def wait(self) -> list[int]:
        self.lines += [line.rstrip("\n") for line in self.told]  # to its end, so that no rank waits for a reader
        self.told.close()
        return [self.farm.ask({"wait": pid}) for pid in self.pids]

    @property
    def losses(self) -> list[float]:
        return [float(line.split()[3]) for line in self.lines if line.startswith("step ")]


class Farm:
    """The warm process, and how ranks are started from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts = 0
        env = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def ask(self, order: dict[str, object]) -> int:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def start(self, *argv: object, world: int = 2, env: dict[str, str] | None = None) -> Ranks:
        self.starts += 1
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = str(probe.getsockname()[1])
        told = self.folder / f"told{self.starts}"
        os.mkfifo(told)
        pids = []
        for rank in range(world):
            more = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            log = told if rank == world - 1 else self.folder / f"log{self.starts}-{rank}"
            pids.append(self.ask({"env": more | (env or {}), "argv": [*map(str, argv)], "log": str(log)}))
        return Ranks(self, pids, told.open(encoding="utf-8"))

    def run(self, *argv: object, world: int = 2, env: dict[str, str] | None = None) -> Ranks:
        ranks = self.start(*argv, world=world, env=env)
        assert ranks.wait() == [0] * world, (ranks.lines, self.log(0))
        return ranks

    def log(self, rank: int) -> str:
        return (self.folder / f"log{self.starts}-{rank}").read_text(encoding="utf-8")

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def farm(tmp_path_factory):
    farm = Farm(tmp_path_factory.mktemp("farm"))
    yield farm
    farm.close()


def hash_of(folder: Path, step: int) -> str:
    return weights.total(weights.hashes(weights.merged(str(folder / f"iter_{step:07d}"))))


@pytest.fixture(scope="module")
def undisturbed(farm, tmp_path_factory):
    """For each layout: the directory of a run of 12 steps that nothing has disturbed."""
    made: dict[str, Path] = {}

    def of(axis: str) -> Path:
        if axis not in made:
            made[axis] = tmp_path_factory.mktemp(axis)
            farm.run(f"--{axis}", 2, "--steps", 12, "--save-every", 4, "--save", made[axis], "--tracker")
        return made[axis]

    return of


@pytest.mark.slow
@pytest.mark.parametrize(("axis", "how"), [("tp", []), ("pp", ["--async-save"]), ("dp", ["--async-save"])])
def test_killed_in_a_step_and_resumed_it_ends_with_the_same_bits(farm, undisturbed, tmp_path, axis, how):
    args = (f"--{axis}", 2, "--steps", 12, "--save-every", 4, *how)
    ranks = farm.start(*args, "--save", tmp_path / "a", "--tracker")
    ranks.until("step 10 ")
    codes = ranks.kill(0)
    assert codes[0] == -signal.SIGKILL
    assert codes[1] == 1, "a peer that is gone is an error, not an end"
    farm.run(*args, "--save", tmp_path / "b", "--load", tmp_path / "a")
    assert hash_of(tmp_path / "b", 12) == hash_of(undisturbed(axis), 12)
    assert hash_of(tmp_path / "b", 12) != hash_of(undisturbed(axis), 8), "the hash sees four steps"


@pytest.mark.slow
def test_killed_in_a_save_it_resumes_from_the_one_before(farm, undisturbed, tmp_path):
    args = ("--dp", 2, "--steps", 12, "--save-every", 4, "--async-save")
    ranks = farm.start(*args, "--save", tmp_path / "a", "--tracker", "--slow-save", "8:600")
    ranks.until("step 10 ")
    ranks.kill(1)
    assert not (tmp_path / "a" / "iter_0000008" / ".metadata").exists()
    assert (tmp_path / "a" / "latest_checkpointed_iteration.txt").read_text() == "4"
    farm.run(*args, "--save", tmp_path / "b", "--load", tmp_path / "a")
    assert hash_of(tmp_path / "b", 12) == hash_of(undisturbed("dp"), 12)


class Attached:
    """What relight gives a rank: a run directory, a socket, and the names in the environment."""

    def __init__(self, folder: Path, attempt: int, checkpoint: str = "", load: Path | None = None) -> None:
        self.attempt = folder / "attempts" / f"{attempt:04d}"
        self.attempt.mkdir(parents=True)
        self.save = folder / "checkpoints" / "saves" / f"a{attempt:04d}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / f"s{attempt}"))
        self.heard: list[dict[str, object]] = []
        self.ear = threading.Thread(target=self._listen)  # the kernel holds few datagrams, so somebody must listen
        self.ear.start()
        self.env = {
            "RELIGHT_RUN_DIR": str(folder),
            "RELIGHT_ATTEMPT": str(attempt),
            "RELIGHT_AGENT_SOCKET": str(folder / f"s{attempt}"),
            "RELIGHT_SAVE_DIR": str(self.save),
            "RELIGHT_LOAD_DIR": str(load or folder / "none"),
            "RELIGHT_CHECKPOINT": checkpoint,
            "RELIGHT_REPORTER": "1",
        }

    def _listen(self) -> None:
        while message := self.socket.recv(65536):
            self.heard.append(json.loads(message))

    def messages(self) -> list[dict[str, object]]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", self.env["RELIGHT_AGENT_SOCKET"])
        self.ear.join()
        self.socket.close()
        return self.heard


def sidecar(save: Path, step: int, rank: int) -> dict[str, object]:
    return json.loads((save / f"iter_{step:07d}" / "relight" / f"rank_{rank:05d}.json").read_text())


def rows_of(messages: list[dict[str, object]]) -> list[list[object]]:
    names = ("step", "samples", "updates", "skipped", "loss", "lr", "grad_norm", "batch")
    return [[m[name] for name in names] for m in messages if m["k"] == "step" and m["r"] == 0]


PLANTS = {
    "": set(),
    "sampler-off-by-one": {"next"},
    "stale-shard": {"digest"},
    "lost-second-moment": {"digest"},
    "wrong-lr": {"lr"},
    "wrong-place": {"dp", "next"},
}


@pytest.fixture(scope="module")
def saved(farm, tmp_path_factory):
    """The save directory of an attempt under relight: 4 of 8 steps, DP2, noted as a load view is."""
    first = Attached(tmp_path_factory.mktemp("run"), 1)
    farm.run("--dp", 2, "--steps", 8, "--save-every", 4, env=first.env)
    (first.save / "latest_checkpointed_iteration.txt").write_text("4")
    messages = first.messages()
    kinds = [(m["k"], m.get("state")) for m in messages if m["r"] == 0]
    assert kinds[0] == ("hello", None)
    assert [state for kind, state in kinds if kind == "save"] == ["begin", "written", "blocked"] * 2
    assert kinds[-1] == ("done", None)
    return first.save, rows_of(messages)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLANTS)
def test_a_fault_of_the_restore_is_told_and_changes_the_end(farm, saved, tmp_path, kind):
    saved, before = saved
    again = Attached(tmp_path, 2, "a0001-i0000004", saved)
    farm.run("--dp", 2, "--steps", 8, *(["--plant", f"{kind}:rank=1:step=4"] if kind else []), env=again.env)
    messages = again.messages()
    loaded = {m["r"]: m for m in messages if m["k"] == "loaded"}
    names = ("step", "samples", "updates", "skipped", "lr", "digest", "next", "tp", "pp", "dp")
    for rank, differing in ((0, set()), (1, PLANTS[kind])):
        was = sidecar(saved, 4, rank)
        assert {name for name in names if loaded[rank][name] != was[name]} == differing
    assert (hash_of(again.save, 8) == hash_of(saved, 8)) is (kind == "")
    assert (rows_of(messages) == before[4:]) is (kind == "")


def test_sidecars_name_what_each_rank_wrote(saved):
    saved, _ = saved
    for rank in (0, 1):
        told = sidecar(saved, 4, rank)
        folder = saved / "iter_0000004"
        assert told["files"] == {f"__{rank}_0.distcp": (folder / f"__{rank}_0.distcp").stat().st_size}
        assert (folder / "relight" / f"rank_{rank:05d}.json").stat().st_mtime_ns <= (
            folder / ".metadata"
        ).stat().st_mtime_ns
    assert sidecar(saved, 4, 0)["next"][:2] == [32, 4]
    assert sidecar(saved, 4, 1)["next"][:2] == [36, 4]


@pytest.mark.parametrize("how", [(), ("--async-save",)])
def test_a_fenced_attempt_publishes_nothing(farm, tmp_path, how):
    run = Attached(tmp_path, 1)
    (run.attempt / "FENCED").touch()
    ranks = farm.start("--dp", 2, "--steps", 4, "--save-every", 2, *how, env=run.env)
    assert ranks.wait() == [1, 1]
    assert "FencedError" in farm.log(0)
    assert {path.suffix for path in run.save.rglob("*") if path.is_file()} == set()
    assert "failed" in {m.get("state") for m in run.messages()}


def test_all_ranks_stop_at_the_same_step_and_save(farm, tmp_path):
    run = Attached(tmp_path, 1)
    (run.attempt / "STOP").touch()
    farm.run("--tp", 2, "--steps", 50, env=run.env)
    assert (run.save / "iter_0000001" / ".metadata").exists()
    assert "done" not in {m["k"] for m in run.messages()}


def test_what_is_to_be_loaded_must_be_there(farm, tmp_path):
    run = Attached(tmp_path, 2, "a0001-i0000004")
    ranks = farm.start("--dp", 2, "--steps", 1, env=run.env)
    assert ranks.wait() == [1, 1]
    assert "a0001-i0000004 is to be loaded, but" in farm.log(0)
    assert "exception" in {m["k"] for m in run.messages()}


def test_a_bad_sample_skips_the_update_each_time_unless_once(farm, tmp_path):
    args = ("--dp", 2, "--steps", 3, "--fail", "nan@2:1")
    for name, more, skipped in (
        ("a", (), 1),
        ("b", ("--fail-once", tmp_path / "f"), 1),
        ("c", ("--fail-once", tmp_path / "f"), 0),
    ):
        farm.run(*args, *more, "--save", tmp_path / name)
        state = weights.merged(str(tmp_path / name / "iter_0000003"))
        assert (int(state["ledger.skipped"]), int(state["optimizer.step"]), int(state["ledger.samples"])) == (
            skipped,
            3 - skipped,
            24,
        )


def test_planted_ends(farm, tmp_path):
    ranks = farm.start("--dp", 2, "--steps", 3, "--fail", "exit3@2:0", "--fail-once", tmp_path / "f")
    assert ranks.wait() == [3, 1]
    farm.run("--dp", 2, "--steps", 3, "--fail", "exit3@2:0", "--fail-once", tmp_path / "f")
    ranks = farm.start("--dp", 2, "--steps", 3, "--fail", "exception@2:0")
    assert ranks.wait() == [1, 1]
    assert "PlantedError: planted: exception@2:0" in farm.log(0)
    ranks = farm.start("--dp", 2, "--steps", 3, "--fail", "hang@2:0")
    ranks.until("step 1 ")
    assert ranks.kill(0) == [-signal.SIGKILL, 1]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "of_loss", "of_master"), [("fp32", 1e-5, 1e-5), ("bf16", 1e-3, 2e-2)])
def test_eight_ranks_agree_with_one(farm, tmp_path, dtype, of_loss, of_master):
    args = ("--steps", 10, "--dropout", 0, "--dtype", dtype)
    one = farm.run(*args, "--save", tmp_path / "one", world=1)
    many = farm.run(*args, "--save", tmp_path / "many", "--tp", 2, "--pp", 2, "--dp", 2, world=8)
    assert len(one.losses) == len(many.losses) == 10
    assert max(abs(a - b) for a, b in zip(one.losses, many.losses, strict=True)) < of_loss
    a, b = (weights.merged(str(tmp_path / name / "iter_0000010")) for name in ("one", "many"))
    masters = [name for name in a if name.startswith("master.")]
    assert set(masters) == {name for name in b if name.startswith("master.")}
    assert max(((a[n] - b[n]).norm() / a[n].norm()).item() for n in masters) < of_master


def test_a_cold_start_by_path_loads_no_compiler(tmp_path):
    port = socket.create_server(("127.0.0.1", 0))
    number = port.getsockname()[1]
    port.close()
    env = os.environ | {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(number)}
    told = subprocess.run(
        [sys.executable, "-X", "importtime", MAIN, "--steps", "2", "--save-every", "1", "--async-save", "--save", tmp_path],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.count("step ") == 3
    assert " torch.distributed.checkpoint" in told.stderr
    assert "torch._dynamo" not in told.stderr
    assert "torch._inductor" not in told.stderr
