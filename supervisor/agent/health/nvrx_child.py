"""Runs the checks of nvidia_resiliency_ext 0.7.0 and prints one JSON object: name -> [healthy|unhealthy|unknown, text].

    python nvrx_child.py BASE    BASE: a folder for what the links were like at the first look

Those checks pass when their sensor is missing, so each sensor is looked for first, by other means: without it the answer
is unknown. Those that compare with an earlier look are given that look as files, because this process does not live on.
"""

from __future__ import annotations

import glob
import importlib
import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

STATE = "/sys/class/infiniband/{nic}/ports/1/state"
DOWNED = "/sys/class/infiniband/{nic}/ports/1/counters/link_downed"
MOUNTS = "/proc/self/mounts"
SHARED = ("lustre", "nfs", "nfs4")

Row = tuple[str, str]


class _Said(logging.Handler):
    """Keeps the warnings: they say what a plain False does not."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def row(self, passed: object) -> Row:
        """The answer of a check that had its sensor."""
        return ("healthy", "passed") if passed is True else ("unhealthy", "; ".join(self.lines[-4:]) or "failed")


def gpu(checks: Any, said: _Said, base: str) -> Row:  # noqa: ARG001
    """What a GPU needs to recover, from NVML; drivers before 570 do not tell."""
    check = checks.GPUHealthCheck()
    if not check.enabled:
        return "unknown", "; ".join(said.lines) or "disabled"
    if not hasattr(check.pynvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"):
        return "unknown", "this pynvml can't ask what a GPU needs to recover"
    if not _gpus(check.pynvml):
        return "unknown", "NVML shows no GPU"
    return said.row(check())


def nvlink(checks: Any, said: _Said, base: str) -> Row:  # noqa: ARG001
    """Links that are switched off."""
    check = checks.NVLHealthCheck()
    if not check.pynvml_available:
        return "unknown", "pynvml is not installed"
    if not _links(check.pynvml):
        return "unknown", "NVML shows no NVLink"
    return said.row(check())


def link(checks: Any, said: _Said, base: str, sensor: str = STATE) -> Row:
    """Ports that were ACTIVE at the first look and are not now."""
    kept = _baseline(sensor, f"{base}/state")
    if isinstance(kept, str):
        return "unknown", kept
    check = checks.NicLinkStateHealthCheck(link_state_path_template=f"{base}/state/{{nic}}")
    check.link_state_path_template = sensor
    return said.row(check())


def link_count(checks: Any, said: _Said, base: str, sensor: str = DOWNED) -> Row:
    """How often the port next to each GPU went down since the first look."""
    kept = _baseline(sensor, f"{base}/downed")
    if isinstance(kept, str):
        return "unknown", kept
    pynvml = checks.GPUHealthCheck().pynvml
    count = _gpus(pynvml) if pynvml is not None else 0
    if not count:
        return "unknown", "no GPU that a port could be next to"
    said.lines.clear()
    found = []
    for index in range(count):
        check = checks.NicHealthCheck(device_index=index, link_down_path_template=f"{base}/downed/{{nic}}")
        if check.nic_name not in kept:
            return "unknown", f"GPU {index} has no port that counts"
        check.link_down_path_template = sensor
        found.append(check())
    return said.row(all(found))


def storage(checks: Any, said: _Said, base: str) -> Row:  # noqa: ARG001
    """Lustre's own word, and whether the shared file systems answer."""
    with open(MOUNTS, encoding="utf-8", errors="replace") as file:
        shared = [line for line in file if line.split(" ")[2:3] and line.split(" ")[2] in SHARED]
    if not shared:
        return "unknown", f"nothing of {', '.join(SHARED)} is mounted"
    return said.row(checks.DistributedStorageHealthCheck()())


def _gpus(nvml: Any) -> int:
    try:
        nvml.nvmlInit()
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError:
        return 0


def _links(nvml: Any) -> bool:
    """Does any GPU tell the state of any link?"""
    for index in range(_gpus(nvml)):
        for number in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                nvml.nvmlDeviceGetNvLinkState(nvml.nvmlDeviceGetHandleByIndex(index), number)
            except nvml.NVMLError:
                continue
            return True
    return False


def _baseline(template: str, folder: str) -> set[str] | str:
    """The ports whose sensor is there, with its first reading kept in `folder`; else why there is nothing to judge by."""
    depth = template.split("/").index("{nic}")
    found = {path.split("/")[depth]: path for path in glob.glob(template.format(nic="*"))}
    os.makedirs(folder, exist_ok=True)
    gone = set(os.listdir(folder)) - set(found)
    if gone:
        return f"{', '.join(sorted(gone))}: its sensor was there and is gone"
    if not found:
        return "no port of /sys/class/infiniband tells it"
    for nic, path in found.items():
        with open(path, encoding="ascii", errors="replace") as file:
            now = file.read(256)
        if not os.path.exists(f"{folder}/{nic}"):
            with open(f"{folder}/{nic}", "w", encoding="ascii", errors="replace") as file:
                file.write(now)
    return set(found)


ALL: dict[str, Callable[[Any, _Said, str], Row]] = {
    "nvrx-gpu": gpu,
    "nvrx-nvlink": nvlink,
    "nvrx-link": link,
    "nvrx-link-count": link_count,
    "nvrx-storage": storage,
}


def main(base: str) -> dict[str, Any]:
    """Everything; a check that breaks is unknown and does not take the others with it."""
    try:
        checks = importlib.import_module("nvidia_resiliency_ext.shared_utils.health_check")
    except ImportError as error:
        return {"error": f"nvidia_resiliency_ext: {error}"}
    rows: dict[str, Any] = {}
    for name, look in ALL.items():
        said = _Said()
        checks.logger.addHandler(said)
        try:
            rows[name] = look(checks, said, base)
        except Exception as error:  # noqa: BLE001  whatever foreign code raises
            rows[name] = ("unknown", f"{type(error).__name__}: {error}")
        checks.logger.removeHandler(said)
    return rows


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
