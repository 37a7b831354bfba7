"""The labelled logs told in other ways: cut, littered, interleaved, shifted, renamed, permuted ... The verdict moves with them."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.bench.proofs.work import SkippedError, Work
from supervisor.evidence.reading import Reader
from supervisor.evidence.retelling import WAYS
from supervisor.evidence.retold import labelled, retell

SEEDS = 40
CASES = Path(__file__).resolve().parents[4] / "shared" / "logs" / "cases"
_SHOWN = 3


def prove(work: Work) -> None:
    """Each case, each way, `SEEDS` times. The cases lie beside a checkout of the project; without them nothing is proved."""
    folder = os.environ.get("RELIGHT_LOG_CASES", str(CASES))
    if not os.path.isdir(folder):
        raise SkippedError(f"no labelled logs at {folder} (RELIGHT_LOG_CASES names another place)")
    cases = list(labelled(folder))
    told, wrong = retell(cases, range(SEEDS), Reader())
    shown = f"; {len(wrong)} wrong: {' | '.join(map(str, wrong[:_SHOWN]))}" if wrong else ""
    work.measured |= {"cases": len(cases), "ways": len(WAYS), "seeds": SEEDS, "tellings": told}
    work.check(f"{told} tellings of {len(cases)} cases{shown}", ok=not wrong and told == len(cases) * len(WAYS) * SEEDS)
