"""What the GPUs' driver says of them, from a child: NVML through `pynvml` where it is installed, else `nvidia-smi`. Pure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from supervisor.agent.health.child import Ran
from supervisor.agent.health.results import Verdict, healthy, unhealthy, unknown

CHILD: Final = os.path.join(os.path.dirname(__file__), "nvml_child.py")

SMI: Final = (
    "nvidia-smi",
    "--query-gpu=index,pci.bus_id,ecc.errors.uncorrected.volatile.total,remapped_rows.failure",
    "--format=csv,noheader,nounits",
)

_ACTIONS: Final = {
    1: "needs a reset",
    2: "needs a reboot of the node",
    3: "needs its peer traffic drained",
    4: "works at reduced capacity: drain and reset",
    5: "needs its IMEX domain recovered",
    6: "needs a reset of its bus",
    7: "needs a reboot of the system",
}
"""nvmlDeviceGpuRecoveryAction_t of nvml.h; 0 is none. Drivers before 570 do not tell."""

_LOST: Final = re.compile(r"GPU[ 0-9A-Fa-f:.]*: (?:GPU is lost|.*reset required)|GPU is lost", re.IGNORECASE)
_COUNT: Final = re.compile(r"\d{1,15}")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; None is not told. `uncorrected`: memory errors since its driver was loaded."""

    index: int
    pci: str
    lost: bool = False
    uncorrected: int | None = None
    remap_failed: bool | None = None
    recovery: int | None = None

    @property
    def tells(self) -> bool:
        """Does it say anything of its health?"""
        return self.lost or (self.uncorrected, self.remap_failed, self.recovery) != (None, None, None)


def from_child(ran: Ran) -> tuple[Gpu, ...] | str:
    """The answer of nvml_child.py, or why there is none."""
    if ran.code is None:
        return ran.why
    seen = ran.record()
    rows = seen.get("gpus") if seen is not None else None
    if not isinstance(rows, list):
        return str(seen["error"])[:200] if seen and "error" in seen else f"exit {ran.code}: {ran.output[-200:]!r}"
    gpus = [_gpu(row) for row in rows]
    return f"made no sense of {str(rows)[:200]}" if None in gpus else tuple(gpu for gpu in gpus if gpu is not None)


def from_smi(ran: Ran) -> tuple[Gpu, ...] | str:
    """The answer of nvidia-smi, or why there is none."""
    if ran.code is None:
        return ran.why
    gpus = []
    for line in ran.output.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4 and cells[0].isascii() and cells[0].isdigit():
            count = int(cells[2]) if _COUNT.fullmatch(cells[2]) else None
            failed = {"0": False, "no": False, "1": True, "yes": True}.get(cells[3].lower())
            gpus.append(Gpu(int(cells[0]), cells[1], uncorrected=count, remap_failed=failed))
        elif _LOST.search(line):
            gpus.append(Gpu(-1, line[:120], lost=True))
    if not gpus or (ran.code != 0 and not any(gpu.lost for gpu in gpus)):
        return f"nvidia-smi: exit {ran.code}: {ran.output.strip()[-200:]}"
    return tuple(gpus)


def judge(seen: tuple[Gpu, ...] | str, most: int = 0) -> Verdict:
    """What it means; `most`: as many GPUs as were ever seen here."""
    if isinstance(seen, str):
        return unknown(seen)
    for gpu in seen:
        where = f"GPU {gpu.index} ({gpu.pci})" if gpu.index >= 0 else gpu.pci
        if gpu.lost:
            return unhealthy("gpu-lost", f"{where}: lost", mark=gpu.pci)
        if gpu.recovery:
            action = _ACTIONS.get(gpu.recovery, f"asks for recovery {gpu.recovery}")
            return unhealthy("gpu-recovery", f"{where} {action}", mark=f"{gpu.pci} {gpu.recovery}")
        if gpu.remap_failed:
            return unhealthy("gpu-ecc", f"{where}: a bad row of memory could not be remapped", mark=gpu.pci)
    if len(seen) < most:
        return unhealthy("gpu-lost", f"{len(seen)} of {most} GPUs are left", mark=str(len(seen)))
    bad = [gpu for gpu in seen if gpu.uncorrected]
    if bad:
        told = ", ".join(f"GPU {gpu.index} ({gpu.pci}): {gpu.uncorrected}" for gpu in bad)
        return unhealthy("gpu-ecc", f"uncorrected memory errors since the driver was loaded: {told}", mark=told)
    if not seen:
        return unknown("the driver shows no GPU")
    if not all(gpu.tells for gpu in seen):
        return unknown("a GPU tells neither memory errors nor what it needs")
    return healthy(f"{len(seen)} GPUs")


def _gpu(row: object) -> Gpu | None:
    if not isinstance(row, dict):
        return None
    index, pci, lost = row.get("index"), row.get("pci"), row.get("lost")
    count, failed, recovery = row.get("uncorrected"), row.get("remap_failed"), row.get("recovery")
    if type(index) is not int or not isinstance(pci, str) or type(lost) is not bool:
        return None
    if any(n is not None and (type(n) is not int or n < 0) for n in (count, recovery)):
        return None
    if failed is not None and type(failed) is not bool:
        return None
    return Gpu(index, pci[:32], lost, count, failed, recovery)
