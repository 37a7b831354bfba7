"""The table reads as knowledge and not about the labelled cases; and what it says does not hang on the engine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from logcases import READER

from supervisor.evidence.engine import ROWS_AT_MOST, Hyperscan, Regular
from supervisor.evidence.reading import Reader
from supervisor.evidence.retold import answer, labelled
from supervisor.evidence.table import table

CASES = Path(__file__).resolve().parents[3] / "shared" / "logs" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the labelled cases are not in this checkout")
TOLD = ("failed", "category", "first_error", "suspect_nodes", "restart_ok")


class Without:
    """An engine that is blind to some kinds of lines: the table as if their rows had been deleted."""

    def __init__(self, *kinds: str) -> None:
        self.whole = READER._engine
        self.gone = {number for number, row in enumerate(READER.rows) if row.kind in kinds}

    def scan(self, block):
        return [hit for hit in self.whole.scan(block) if hit % ROWS_AT_MOST not in self.gone]


def verdict(case, reader=READER):
    got = answer(case.logs, reader)
    return {key: got[key] for key in TOLD}


@pytest.fixture(scope="module")
def cases():
    return list(labelled(str(CASES)))


@pytest.fixture(scope="module")
def hits(cases, tmp_path_factory):
    """The kinds of lines that each case holds."""
    path = tmp_path_factory.mktemp("hits") / "log"
    found = {}
    for case in cases:
        kinds = set()
        for name, data in case.logs.items():
            path.write_bytes(data)
            kinds |= set(READER.read(str(path), name).counts)
        found[case.name] = kinds
    return found


def moved(cases, before, without, but=None):
    """The cases, but for one, of which another verdict is given without these kinds."""
    reader = Reader(table(), Without(*without))
    return [case.name for case in cases if case.name != but and verdict(case, reader) != before[case.name]]


@pytest.mark.slow
def test_a_case_and_its_only_signatures_can_go(cases, hits):
    uses = Counter(kind for kinds in hits.values() for kind in kinds)
    before = {case.name: verdict(case) for case in cases}
    tried = 0
    for name, kinds in hits.items():
        only = {kind for kind in kinds if uses[kind] == 1}
        if only:
            tried += 1
            assert moved(cases, before, only, name) == [], f"without {sorted(only)}, which only {name} uses"
    assert tried >= 20  # else there is nothing that this could have shown


def test_a_row_that_others_need_is_seen_to_go(cases):
    before = {case.name: verdict(case) for case in cases}
    assert len(moved(cases, before, {"collective-timeout"})) >= 2


def share_of_rows_without_a_case(rows, hits):
    used = {kind for kinds in hits.values() for kind in kinds}
    return sum(row.kind not in used for row in rows) / len(rows)


def test_the_table_knows_more_than_the_cases_show(hits):
    assert share_of_rows_without_a_case(table(), hits) > 0.25
    used = {kind for kinds in hits.values() for kind in kinds}
    fitted = [row for row in table() if row.kind in used]
    assert share_of_rows_without_a_case(fitted, hits) == 0


def test_without_hyperscan_the_answers_are_the_same(cases):
    pytest.importorskip("hyperscan")
    slow = Reader(table(), Regular(READER.rows))
    quick = Reader(table(), Hyperscan(READER.rows))
    for case in cases:
        assert answer(case.logs, slow) == answer(case.logs, quick), case.name


def test_an_engine_that_differs_is_seen(cases):
    blind = Reader(table(), Without("cuda-ecc"))
    assert any(answer(case.logs, blind) != answer(case.logs, READER) for case in cases)
