"""Labelled folders of logs, told many other ways: what the verdict did that it should not have. For tests and proofs."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from supervisor.evidence.files import blocks, walk
from supervisor.evidence.folder import as_json, diagnose_folder
from supervisor.evidence.reading import Reader
from supervisor.evidence.retelling import WAYS, Layout, Logs, differences

TRUTH: Final = "truth.json"
PACKED: Final = re.compile(r"\.(gz|bz2|xz|zst)$")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A job's logs and where its ranks sat."""

    name: str
    logs: Logs
    layout: Layout


def labelled(folder: str) -> Iterator[Labelled]:
    """The cases below a folder: each a folder of logs with a truth.json that tells the layout."""
    for name in sorted(os.listdir(folder)):
        case = os.path.join(folder, name)
        try:
            with open(os.path.join(case, TRUTH), "rb") as file:
                layout = json.load(file)["layout"]
        except (OSError, ValueError):
            continue
        logs = {}
        for log in walk(case):
            if log != TRUTH:  # what is packed is told unpacked: a byte changed in an archive leaves no lines to compare
                logs[PACKED.sub("", log)] = b"".join(blocks(os.path.join(case, log)))
        yield Labelled(name, logs, Layout(tuple(layout["nodes"]), layout["gpus_per_node"]))


def answer(logs: Logs, reader: Reader) -> dict[str, Any]:
    """What `relight diagnose --json` says of these files."""
    with tempfile.TemporaryDirectory(prefix="relight-retold-") as folder:
        for name, data in logs.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        return as_json(diagnose_folder(folder, reader=reader))


def retell(
    cases: Iterable[Labelled], seeds: Iterable[int], reader: Reader, ways: Sequence[str] = tuple(WAYS)
) -> tuple[int, list[str]]:
    """Tell each case each way with each seed -> how many were told, and one line for each that came out wrong.

    An exception is a wrong outcome too: whatever lies in a folder, an answer comes.
    """
    told, wrong, numbers = 0, [], list(seeds)
    for case in cases:
        before = answer(case.logs, reader)
        for way in ways:
            for seed in numbers:
                told += 1
                other = WAYS[way](case.logs, case.layout, Random(seed))  # noqa: S311 - to be told the same way again
                try:
                    moved = differences(other, before, answer(other.logs, reader))
                except Exception as error:  # noqa: BLE001 - the others are told all the same
                    moved = [f"{type(error).__name__}: {error}"]
                wrong += [f"{case.name}, {way} {seed}: {what}" for what in moved]
    return told, wrong
