"""The labelled cases, where a checkout has them beside it: each figure at least what docs/diagnosis.md promises."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from logcases import READER

from supervisor.evidence.folder import as_json, diagnose_folder

CASES = Path(__file__).resolve().parents[3] / "shared" / "logs" / "cases"
WANTED = {
    "line": 0.9,
    "node": 0.9,
    "category": 0.8,
    "group": 0.9,
    "restart": 0.85,
    "culprit": 0.85,
    "innocent": 0.95,
    "benign": 1.0,
}


def marks(truth, got):
    """What a case scores: the rules of the scorer that comes with the cases."""
    if not truth["failed"]:
        return {"benign": got["failed"] is False}
    first = got["first_error"] or {"file": None, "line": 0, "node": None}
    suspects, wanted = set(got["suspect_nodes"]), set(truth["suspect_nodes"])
    out = {
        "line": any(first["file"] == e["file"] and e["from"] <= first["line"] <= e["to"] for e in truth["root_event"]),
        "category": got["category"] == truth["category"],
        "group": got["category"].split(".")[0] == truth["category"].split(".")[0],
        "restart": got["restart_ok"] == truth["restart_ok"],
        "innocent": suspects <= wanted,
    }
    if wanted:
        out["culprit"] = wanted <= suspects
    node = truth["first_error"]["node"]
    if node and len(truth["layout"]["nodes"]) > 1:
        out["node"] = first["node"] in {node, *truth.get("accept_nodes", [])}
    return out


@pytest.mark.skipif(not CASES.is_dir(), reason="the labelled cases are not in this checkout")
def test_the_labelled_cases(tmp_path):
    right: Counter[str] = Counter()
    all_of: Counter[str] = Counter()
    for case in sorted(CASES.iterdir()):
        truth = json.loads((case / "truth.json").read_text())
        work = tmp_path / case.name
        shutil.copytree(case, work, ignore=shutil.ignore_patterns("truth.json"))
        for name, hit in marks(truth, as_json(diagnose_folder(str(work), reader=READER))).items():
            right[name] += hit
            all_of[name] += 1
    rates = {name: right[name] / all_of[name] for name in all_of}
    assert all(rates[name] >= wanted for name, wanted in WANTED.items()), rates


def test_the_scorer_sees_a_wrong_answer():
    truth = {
        "failed": True,
        "first_error": {"node": "a"},
        "root_event": [{"file": "x", "from": 3, "to": 4}],
        "category": "data",
        "restart_ok": False,
        "suspect_nodes": [],
        "layout": {"nodes": ["a", "b"]},
    }
    wrong = {
        "failed": True,
        "first_error": {"file": "x", "line": 5, "node": "b"},
        "category": "oom.gpu",
        "restart_ok": True,
        "suspect_nodes": ["b"],
    }
    assert not any(marks(truth, wrong).values())
