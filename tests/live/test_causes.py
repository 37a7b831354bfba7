"""Each kind of fault once on the real trainer, and the rank that is named. Long form: `relight bench prove causes`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.bench.proofs import causes
from supervisor.bench.proofs.work import Work

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.mark.parametrize("kind", causes.KINDS, ids=lambda kind: kind.name)
def test_the_right_rank_and_node_are_named(kind: causes.Kind, tmp_path) -> None:
    work = Work("causes", str(tmp_path))
    causes.named(work, kind, 7)
    assert work.ok, work.checks


def test_another_category_is_told_apart(tmp_path) -> None:
    """The comparison is seen to fail: the same fault, and something else expected of it."""
    work = Work("causes", str(tmp_path))
    assert not causes.named(work, replace(causes.KINDS[0], category="data"), 7)
    assert "not data" in next(iter(work.checks))
