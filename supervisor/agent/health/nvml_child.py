"""Asks NVML about every GPU and prints one JSON object: `{"gpus": [...]}` or `{"error": why}`. Runs alone, needs pynvml."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

GONE = (15, 16)
"""NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED of nvml.h: any call for such a GPU ends with one of them."""


def look(nvml: Any) -> dict[str, Any]:
    """Every GPU: what it does not tell is None."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"error": f"NVML: {error}"}
    try:
        return {"gpus": [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]}
    except nvml.NVMLError as error:
        return {"error": f"NVML: {error}"}


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    lost = False

    def told(ask: Callable[[], Any]) -> Any:
        nonlocal lost
        try:
            return ask()
        except nvml.NVMLError as error:
            lost = lost or error.value in GONE
        except AttributeError:  # an older pynvml does not know the question
            pass
        return None

    handle = told(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    row: dict[str, Any] = {"index": index, "pci": "?", "uncorrected": None, "remap_failed": None, "recovery": None}
    if handle is not None:
        pci = told(lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)
        row["pci"] = pci.decode("ascii", "replace") if isinstance(pci, bytes) else pci or "?"
        uncorrected, volatile = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        row["uncorrected"] = told(lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, volatile)))
        row["remap_failed"] = told(lambda: bool(nvml.nvmlDeviceGetRemappedRows(handle)[3]))
        row["recovery"] = told(lambda: _recovery(nvml, handle))
    return {**row, "lost": lost}


def _recovery(nvml: Any, handle: Any) -> int | None:
    """What the GPU needs to recover, 0 nothing; None where the driver does not tell."""
    value = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    return int(value.value.uiVal) if value.nvmlReturn == 0 else None


if __name__ == "__main__":
    try:
        answer = look(importlib.import_module("pynvml"))
    except ImportError as why:
        answer = {"error": str(why)}
    print(json.dumps(answer))
