"""The made-up logs of a 5,120-rank job hold the answer that the bench expects, and a wrong one is seen."""

from __future__ import annotations

import pytest
from logcases import READER

from supervisor.bench.logs import PER_NODE, RANKS, Shape, make
from supervisor.evidence.folder import as_json, diagnose_folder


@pytest.mark.parametrize(("files", "dense", "guilty"), [(4, False, 3338), (1, True, 17)])
def test_the_guilty_rank_among_5120(tmp_path, files, dense, guilty):
    make(str(tmp_path), Shape(4_000_000, files, dense, guilty))
    got = as_json(diagnose_folder(str(tmp_path), reader=READER))
    assert (got["first_error"]["rank"], got["first_error"]["node"]) == (guilty, f"n{guilty // PER_NODE:04d}")
    assert f"{RANKS - 1} ranks" in got["cascade"]


def test_without_its_last_words_the_rank_is_found_by_its_silence(tmp_path):
    make(str(tmp_path), Shape(4_000_000, 4, False, 3338))
    for path in tmp_path.iterdir():
        path.write_text(
            "".join(x for x in path.read_text().splitlines(keepends=True) if not x.startswith("[rank3338]"))
        )
    got = as_json(diagnose_folder(str(tmp_path), reader=READER))
    assert (got["category"], got["first_error"]["rank"], got["evidence"]) == ("hang.unknown", 3338, "inference")
