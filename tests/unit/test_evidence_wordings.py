"""Lines as drivers, kernels, launchers, stores and trainers write them, and what each must be taken for; and plain ones.

`evidence_wordings.txt`: category|role|line. `evidence_plain.txt`: lines that are no error, full of words that errors use.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.evidence.scan import scan

HERE = Path(__file__).parent
SAID = [tuple(line.split("|", 2)) for line in (HERE / "evidence_wordings.txt").read_text("utf-8").splitlines()]
PLAIN = (HERE / "evidence_plain.txt").read_text("utf-8").splitlines()


@pytest.mark.parametrize(("category", "role", "line"), SAID, ids=[line[:50] for _, _, line in SAID])
def test_a_line_in_use_is_known(category, role, line):
    match = scan(line)
    assert match is not None
    assert (match.category, match.role) == (category, role)


@pytest.mark.parametrize("line", PLAIN, ids=[line.strip()[:50] for line in PLAIN])
def test_a_plain_line_is_no_error(line):
    match = scan(line)
    assert match is None or match.role in ("benign", "context")


@pytest.mark.parametrize(
    ("line", "same"),
    [
        (
            '{"log":"[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\\n","stream":"stderr","time":"2026-05-04T10:00:00Z"}',
            "cuda-ecc",
        ),
        (
            '{"__REALTIME_TIMESTAMP":"1777888800000000","_HOSTNAME":"n2","MESSAGE":"NVRM: Xid (PCI:0000:84:00): 79, GPU has fallen off the bus."}',
            "xid-gpu",
        ),
        ("2026-05-04T10:00:00.123456789Z stderr F KeyError: 'labels'", "exception"),
        ("trainer-1  | KeyError: 'labels'", "exception"),
    ],
)
def test_what_a_collector_wrapped_is_known(line, same):
    match = scan(line)
    assert match is not None
    assert match.kind == same


@pytest.mark.parametrize(
    "line", ['{"loss": 2.1, "step": 4}', '{"log": 3}', "{not json", "[1, 2]", '{"log":' + "[" * 3000]
)
def test_what_is_no_wrapped_line_stays_as_it_is(line):
    scan(line)
