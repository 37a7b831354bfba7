"""Every check of the node is seen healthy, unhealthy and unknown: unknown is what could not look."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from supervisor.agent.health import command, disk, memory, nvml, nvrx, nvrx_child
from supervisor.agent.health.child import Child, Ran
from supervisor.agent.health.clock import ClockStep
from supervisor.agent.health.memory import Memory
from supervisor.agent.health.results import State

HANGS = [sys.executable, "-I", "-S", "-c", "import threading; threading.Event().wait()"]
GIB = 1 << 30
NVRX_PYTHON = str(Path(__file__).parents[2] / ".venv-nvrx" / "bin" / "python")


def statvfs(**more):
    seen = {"size": 1000 * GIB, "free": 500 * GIB, "inodes": 100, "inodes_free": 50, "read_only": False}
    return Ran(0, "a warning first\n" + json.dumps({**seen, **more}) + "\n")


@pytest.mark.parametrize(
    ("path", "ran", "state", "kind"),
    [
        ("/data", statvfs(), State.HEALTHY, ""),
        ("/data", statvfs(free=GIB - 1), State.UNHEALTHY, "disk-full"),
        ("/data", statvfs(inodes_free=0), State.UNHEALTHY, "disk-full"),
        ("/data", statvfs(inodes=0, inodes_free=0), State.HEALTHY, ""),  # it counts none
        ("/data", statvfs(read_only=True), State.UNHEALTHY, "disk-read-only"),
        ("/dev/shm", statvfs(size=64 << 20, free=60 << 20), State.HEALTHY, ""),  # small, not full
        ("/dev/shm", statvfs(size=64 << 20, free=1 << 20), State.UNHEALTHY, "shm-full"),
        ("/data", Ran(0, '{"error": "Stale file handle"}'), State.UNKNOWN, ""),
        ("/data", statvfs(size=0), State.UNKNOWN, ""),
        ("/data", statvfs(free="much"), State.UNKNOWN, ""),
        ("/data", statvfs(free=-1), State.UNKNOWN, ""),
        ("/data", Ran(0, "[1, 2]"), State.UNKNOWN, ""),
        ("/data", Ran(0, "{" * 5000), State.UNKNOWN, ""),
        ("/data", Ran(-9, ""), State.UNKNOWN, ""),
        ("/data", Ran(None, why="no answer within 20 s"), State.UNKNOWN, ""),
    ],
)
def test_disk(path, ran, state, kind):
    verdict = disk.judge(path, ran)
    assert (verdict.state, verdict.kind) == (state, kind)
    assert path in verdict.text


def test_a_real_disk_and_one_that_is_not_there(tmp_path):
    ask = [sys.executable, "-I", "-S", disk.__file__]
    ran = asyncio.run(Child([*ask, str(tmp_path)], 60).ask())
    assert ran.record() is not None
    assert ran.record()["size"] == disk.look(str(tmp_path))["size"]
    ran = asyncio.run(Child([*ask, str(tmp_path / "none")], 60).ask())
    assert disk.judge("/none", ran).text == "/none: No such file or directory"


MEMINFO = "MemTotal:       1000000 kB\nMemFree: 1 kB\nMemAvailable:    {} kB\n"
PRESSURE = "some avg10=0.00 avg60=99.00 avg300=0.00 total=0\nfull avg10=0.00 avg60={} avg300=0.00 total=0\n"


@pytest.mark.parametrize(
    ("meminfo", "pressure", "state", "kind"),
    [
        (MEMINFO.format(500000), PRESSURE.format("0.10"), State.HEALTHY, ""),
        (MEMINFO.format(500000), "", State.HEALTHY, ""),
        (MEMINFO.format(19000), PRESSURE.format("0.10"), State.UNHEALTHY, "memory-short"),
        (MEMINFO.format(500000), PRESSURE.format("40.00"), State.UNHEALTHY, "memory-pressure"),
        ("", PRESSURE.format("0.00"), State.UNKNOWN, ""),
        ("MemTotal: 0 kB\nMemAvailable: 0 kB\n", "", State.UNKNOWN, ""),
        ("\x00\xff garbage", "garbage", State.UNKNOWN, ""),
    ],
)
def test_memory(tmp_path, meminfo, pressure, state, kind):
    assert (memory.judge(meminfo, pressure).state, memory.judge(meminfo, pressure).kind) == (state, kind)
    (tmp_path / "pressure").mkdir()
    (tmp_path / "meminfo").write_text(meminfo)
    (tmp_path / "pressure" / "memory").write_text(pressure)
    assert asyncio.run(Memory(str(tmp_path)).look())["memory"].state is state


def test_memory_that_can_t_be_read(tmp_path):
    assert asyncio.run(Memory(str(tmp_path)).look())["memory"].state is State.UNKNOWN


class Clocks:
    """Two clocks; `pauses` seconds pass between two readings, `steps` is what the wall clock has jumped by."""

    def __init__(self):
        self.now, self.pauses, self.steps = 100.0, 0.0, 0.0

    def monotonic(self):
        self.now += self.pauses
        return self.now

    def wall(self):
        return 1e9 + self.now + self.steps


def test_a_clock_that_steps():
    clocks = Clocks()
    check = ClockStep(clocks.wall, clocks.monotonic)

    def look():
        return asyncio.run(check.look())["clock"]

    assert look().state is State.UNKNOWN  # there is nothing to compare with
    clocks.now += 60
    assert look().state is State.HEALTHY
    clocks.steps = -3.5
    verdict = look()
    assert (verdict.state, verdict.kind) == (State.UNHEALTHY, "clock-step")
    assert "-3.500 s" in verdict.text
    assert look().state is State.HEALTHY
    clocks.steps, clocks.pauses = 9.0, 1.0  # so busy that the two readings are not of one moment
    assert look().state is State.UNKNOWN
    clocks.pauses = 0.0
    assert look().state is State.UNHEALTHY  # the step is not lost


NHC = "ERROR:  nhc:  Health check failed:  check_hw_ib:  No IB port mlx5_0:1 is ACTIVE (LinkUp).\n"


@pytest.mark.parametrize(
    ("ran", "state", "text"),
    [
        (Ran(0, "all is well\n"), State.HEALTHY, "exit 0"),
        (Ran(1, f"starting\n{NHC}"), State.UNHEALTHY, "Health check failed:  check_hw_ib:"),
        (Ran(1, "the fan is loud\n\n"), State.UNHEALTHY, "the fan is loud"),
        (Ran(1, ""), State.UNHEALTHY, "without a word"),
        (Ran(0, NHC), State.UNKNOWN, "exit 0, and yet"),
        (Ran(1, 'Traceback (most recent call last):\n  File "x"\nKeyError: 1\n'), State.UNKNOWN, "KeyError"),
        (Ran(1, "\ufffd\x00\x01\ufffd" * 20), State.UNKNOWN, "no text"),
        (Ran(127, "sh: nhc: not found\n"), State.UNKNOWN, "exit 127"),
        (Ran(2, "critical"), State.UNKNOWN, "exit 2"),
        (Ran(-11, ""), State.UNKNOWN, "signal 11"),
        (Ran(None, why="could not be started: [Errno 2]"), State.UNKNOWN, "could not be started"),
    ],
)
def test_a_sites_own_command(ran, state, text):
    verdict = command.judge(ran)
    assert verdict.state is state
    assert text in verdict.text


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ("exit 0", State.HEALTHY),
        (f"echo '{NHC.strip()}' >&2; exit 1", State.UNHEALTHY),
        ("head -c 3000 /dev/urandom; exit 1", State.UNKNOWN),
        ("kill -9 $$", State.UNKNOWN),
    ],
)
def test_a_command_that_runs(script, state):
    assert command.judge(asyncio.run(Child(["sh", "-c", script], 60).ask())).state is state


def test_a_command_that_can_t_be_started(tmp_path):
    ran = asyncio.run(Child([str(tmp_path / "none")], 60).ask())
    assert command.judge(ran).state is State.UNKNOWN
    assert "could not be started" in ran.why


def test_a_command_that_hangs_is_unknown_and_gone():
    child = Child(HANGS, 0.2)
    ran = asyncio.run(child.ask())
    assert (ran.code, ran.why) == (None, "no answer within 0.2 s")
    child._asked.join(60)
    assert not child._asked.is_alive()
    assert child._asked._process.returncode == -9


def test_while_a_look_hangs_no_second_one_is_started():
    """A process in the kernel's hands can't be killed; a thread that goes on stands for it here."""

    class Stuck(Child):
        class Thread:
            def is_alive(self):
                return True

            def age(self):
                return 61.0

    child = Stuck(["true"], 60)
    child._asked = Stuck.Thread()
    ran = asyncio.run(child.ask())
    assert ran.code is None
    assert "61 s ago" in ran.why


def test_a_question_that_is_cancelled_takes_its_process_with_it(tmp_path):
    mark = tmp_path / "pid"
    os.mkfifo(mark)

    async def scene():
        child = Child(["sh", "-c", f"echo $$ > {mark}; exec sleep 600"], 600)
        task = asyncio.create_task(child.ask())
        pid = int(await asyncio.to_thread(mark.read_text))  # a fifo: it has been started
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(child._asked.join, 60)
        return pid, child._asked._process

    pid, process = asyncio.run(scene())
    assert (process.pid, process.returncode) == (pid, -9)


def test_what_a_command_leaves_behind_holds_nothing_up():
    """Its child still has the pipe; the answer is there when the command itself has ended, and the child is ended."""
    ran = asyncio.run(Child(["sh", "-c", "sleep 600 & echo done; exit 1"], 60).ask())
    assert (ran.code, ran.output) == (1, "done\n")


def test_a_command_that_never_stops_printing():
    ran = asyncio.run(Child(["sh", "-c", "yes"], 60).ask())
    assert (ran.code, ran.why) == (None, "printed more than 16 MiB")
    assert len(ran.output) == 64 << 10


def gpus(*rows):
    full = {"index": 0, "pci": "0000:3b:00.0", "lost": False, "uncorrected": 0, "remap_failed": False, "recovery": 0}
    return Ran(0, json.dumps({"gpus": [{**full, **row} for row in rows]}))


@pytest.mark.parametrize(
    ("ran", "most", "state", "kind"),
    [
        (gpus({}, {"index": 1}), 2, State.HEALTHY, ""),
        (gpus({"lost": True}), 1, State.UNHEALTHY, "gpu-lost"),
        (gpus({}), 8, State.UNHEALTHY, "gpu-lost"),
        (gpus({}, {"uncorrected": 2}), 2, State.UNHEALTHY, "gpu-ecc"),
        (gpus({"remap_failed": True}), 1, State.UNHEALTHY, "gpu-ecc"),
        (gpus({"recovery": 1}), 1, State.UNHEALTHY, "gpu-recovery"),
        (gpus({"recovery": 99}), 1, State.UNHEALTHY, "gpu-recovery"),
        (gpus(), 0, State.UNKNOWN, ""),
        (gpus({"uncorrected": None, "remap_failed": None, "recovery": None}), 1, State.UNKNOWN, ""),
        (gpus({"uncorrected": "many"}), 1, State.UNKNOWN, ""),
        (gpus({"lost": None}), 1, State.UNKNOWN, ""),
        (Ran(0, '{"error": "NVML: Driver Not Loaded"}'), 8, State.UNKNOWN, ""),
        (Ran(0, "no json"), 8, State.UNKNOWN, ""),
        (Ran(None, why="no answer within 20 s"), 8, State.UNKNOWN, ""),
    ],
)
def test_gpus_by_nvml(ran, most, state, kind):
    verdict = nvml.judge(nvml.from_child(ran), most)
    assert (verdict.state, verdict.kind) == (state, kind)


def test_a_second_memory_error_is_news():
    one, two = (nvml.judge(nvml.from_child(gpus({"uncorrected": n}))) for n in (1, 2))
    assert one.mark != two.mark


SMI = "0, 00000000:3B:00.0, {}, {}\n1, 00000000:5E:00.0, 0, No\n"


@pytest.mark.parametrize(
    ("ran", "state", "kind"),
    [
        (Ran(0, SMI.format("0", "No")), State.HEALTHY, ""),
        (Ran(0, SMI.format("3", "No")), State.UNHEALTHY, "gpu-ecc"),
        (Ran(0, SMI.format("0", "Yes")), State.UNHEALTHY, "gpu-ecc"),
        (Ran(0, SMI.format("[N/A]", "[N/A]")), State.UNKNOWN, ""),
        (
            Ran(15, "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system\n"),
            State.UNHEALTHY,
            "gpu-lost",
        ),
        (Ran(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"), State.UNKNOWN, ""),
        (Ran(2, 'Field "remapped_rows.failure" is not a valid field to query.\n'), State.UNKNOWN, ""),
        (Ran(0, "\x00\x01 garbage, , ,"), State.UNKNOWN, ""),
        (Ran(None, why="no answer within 20 s"), State.UNKNOWN, ""),
    ],
)
def test_gpus_by_nvidia_smi(ran, state, kind):
    verdict = nvml.judge(nvml.from_smi(ran))
    assert (verdict.state, verdict.kind) == (state, kind)


PYNVML = """
NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 1, 0, 230
class NVMLError(Exception):
    def __init__(self, value): self.value = value
class _Any:
    def __init__(self, **more): self.__dict__.update(more)
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(index):
    if index == 1: raise NVMLError(15)
    return index
def nvmlDeviceGetPciInfo(handle): return _Any(busId=b"00000000:3B:00.0")
def nvmlDeviceGetTotalEccErrors(handle, error, counter):
    if handle == 2: raise NVMLError(3)
    return 7
def nvmlDeviceGetRemappedRows(handle): return [0, 1, 0, 1]
def nvmlDeviceGetFieldValues(handle, fields): return [_Any(nvmlReturn=0, value=_Any(uiVal=handle))]
"""


def test_what_the_child_asks_of_nvml(tmp_path):
    (tmp_path / "pynvml.py").write_text(PYNVML)
    ran = asyncio.run(Child([sys.executable, nvml.CHILD], 60, {"PYTHONPATH": str(tmp_path)}).ask())
    told = nvml.from_child(ran)
    assert told == (
        nvml.Gpu(0, "00000000:3B:00.0", uncorrected=7, remap_failed=True, recovery=0),
        nvml.Gpu(1, "?", lost=True),
        nvml.Gpu(2, "00000000:3B:00.0", remap_failed=True, recovery=2),
    )


def test_without_pynvml_nothing_is_known(tmp_path):
    (tmp_path / "pynvml.py").write_text("raise ImportError('no such library')\n")
    ran = asyncio.run(Child([sys.executable, nvml.CHILD], 60, {"PYTHONPATH": str(tmp_path)}).ask())
    assert nvml.judge(nvml.from_child(ran)).state is State.UNKNOWN


# A package with the surface of nvidia_resiliency_ext 0.7.0 that its checks have, and what they answer on order.
NVRX = """
import logging
logger = logging.getLogger("nvrx")
ANSWER = {answer!r}
class _Nvml:
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, NVML_NVLINK_MAX_LINKS = 230, 2
    class NVMLError(Exception): pass
    def nvmlInit(self): pass
    def nvmlDeviceGetCount(self): return {gpus}
    def nvmlDeviceGetHandleByIndex(self, index): return index
    def nvmlDeviceGetNvLinkState(self, handle, link): return 1
class GPUHealthCheck:
    def __init__(self): self.pynvml, self.enabled = _Nvml(), {sensor}
    def __call__(self): return _say(self)
class NVLHealthCheck:
    def __init__(self): self.pynvml, self.pynvml_available = _Nvml(), {sensor}
    def __call__(self): return _say(self)
class DistributedStorageHealthCheck:
    def __call__(self): return _say(self)
def _say(check):
    if ANSWER is None: raise RuntimeError("broken")
    if not ANSWER: logger.warning("%s is ill", type(check).__name__)
    return ANSWER
"""


def run_nvrx(tmp_path, **more):
    folder = tmp_path / "nvidia_resiliency_ext" / "shared_utils"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").write_text("")
    values = {"answer": True, "gpus": 8, "sensor": True, **more}
    (folder / "health_check.py").write_text(NVRX.format(**values))
    child = Child([sys.executable, nvrx.CHILD, str(tmp_path / "base")], 60, {"PYTHONPATH": str(tmp_path)})
    return asyncio.run(nvrx.Nvrx(child).look())


def test_nvrx_passes(tmp_path):
    said = run_nvrx(tmp_path)
    assert (said["nvrx-gpu"].state, said["nvrx-nvlink"].state) == (State.HEALTHY, State.HEALTHY)


def test_nvrx_says_no_and_why(tmp_path):
    said = run_nvrx(tmp_path, answer=False)["nvrx-gpu"]
    assert (said.state, said.kind, said.text) == (State.UNHEALTHY, "gpu-recovery", "GPUHealthCheck is ill")


@pytest.mark.parametrize("more", [{"sensor": False}, {"gpus": 0}, {"answer": None}])
def test_nvrx_without_its_sensor_or_its_wits_is_unknown_never_healthy(tmp_path, more):
    said = run_nvrx(tmp_path, **more)
    assert set(said) == set(nvrx.KINDS)
    assert (said["nvrx-gpu"].state, said["nvrx-nvlink"].state) == (State.UNKNOWN, State.UNKNOWN)


@pytest.mark.parametrize(
    "ran",
    [
        Ran(None, why="no answer within 20 s"),
        Ran(1, "Traceback"),
        Ran(0, '{"error": "no module"}'),
        Ran(0, '{"nvrx-gpu": ["fine"], "nvrx-link": 3}'),
        Ran(0, "{}"),
    ],
)
def test_nvrx_that_speaks_nonsense_is_unknown(ran):
    said = nvrx.judge(ran)
    assert set(said) == set(nvrx.KINDS)
    assert {verdict.state for verdict in said.values()} == {State.UNKNOWN}


class Links:
    """The two checks of 0.7.0 that compare with what was there when they were made, as far as they are used."""

    def __init__(self, gpus=1):
        self.gpus = gpus

    def GPUHealthCheck(self):  # noqa: N802
        nvml = SimpleNamespace(nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: self.gpus, NVMLError=OSError)
        return SimpleNamespace(pynvml=nvml)

    class NicLinkStateHealthCheck:
        def __init__(self, link_state_path_template):
            self.link_state_path_template = link_state_path_template
            self.before = self.read()

        def read(self):
            with open(self.link_state_path_template.format(nic="mlx5_0")) as file:
                return file.read().strip()

        def __call__(self):
            return not (self.before.endswith("ACTIVE") and not self.read().endswith("ACTIVE"))

    class NicHealthCheck:
        nic_name = "mlx5_0"

        def __init__(self, device_index, link_down_path_template):  # noqa: ARG002
            self.link_down_path_template = link_down_path_template
            self.before = self.read()

        def read(self):
            with open(self.link_down_path_template.format(nic="mlx5_0")) as file:
                return int(file.read())

        def __call__(self):
            return self.read() <= self.before


@pytest.mark.parametrize(
    ("look", "good", "bad"), [(nvrx_child.link, "4: ACTIVE\n", "1: DOWN\n"), (nvrx_child.link_count, "3\n", "4\n")]
)
def test_nvrx_compares_with_the_first_look_of_an_earlier_process(tmp_path, look, good, bad):
    sensor, port = str(tmp_path / "sys" / "{nic}" / "value"), tmp_path / "sys" / "mlx5_0"

    def state(checks=None):
        return look(checks or Links(), nvrx_child._Said(), str(tmp_path / "base"), sensor)[0]

    assert state() == "unknown"  # there is no port
    port.mkdir(parents=True)
    (port / "value").write_text(good)
    assert [state(), state()] == ["healthy", "healthy"]
    (port / "value").write_text(bad)
    assert state() == "unhealthy"
    (port / "value").unlink()  # NVRx passes over a port that has gone
    assert state() == "unknown"


def test_nvrx_counts_nothing_without_a_gpu(tmp_path):
    (tmp_path / "sys" / "mlx5_0").mkdir(parents=True)
    (tmp_path / "sys" / "mlx5_0" / "value").write_text("3")
    sensor = str(tmp_path / "sys" / "{nic}" / "value")
    assert nvrx_child.link_count(Links(0), nvrx_child._Said(), str(tmp_path / "base"), sensor)[0] == "unknown"


def test_nvrx_as_it_is_never_calls_a_missing_sensor_healthy(tmp_path):
    """With the real package, where `make setup` could get it; without GPUs and ports all of it is unknown."""
    if not os.path.exists(NVRX_PYTHON):
        pytest.skip("NVRx is not installed in .venv-nvrx")
    said = asyncio.run(nvrx.Nvrx(Child([NVRX_PYTHON, nvrx.CHILD, str(tmp_path)], 60)).look())
    assert set(said) == set(nvrx.KINDS)
    if not os.path.exists("/dev/nvidiactl"):
        assert said["nvrx-gpu"].state is said["nvrx-nvlink"].state is State.UNKNOWN
    if not os.path.exists("/sys/class/infiniband"):
        assert said["nvrx-link"].state is said["nvrx-link-count"].state is State.UNKNOWN
