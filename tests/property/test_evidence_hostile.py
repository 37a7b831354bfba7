"""Whatever lies in a folder of logs, it is read to its end, and the answer keeps its form."""

from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.evidence.engine import Hyperscan, Regular
from supervisor.evidence.files import blocks
from supervisor.evidence.folder import as_json, diagnose_folder
from supervisor.evidence.labels import read_label
from supervisor.evidence.reading import Reader
from supervisor.evidence.scan import clean, scan
from supervisor.evidence.stamps import read_stamp, with_year
from supervisor.evidence.table import CATEGORIES, table

READER = Reader()
SHARED, SLOW = Hyperscan(table()), Regular(table())
EXAMPLES = [row.example for row in table()]
QUIET = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

LINES = st.one_of(
    st.sampled_from(EXAMPLES).map(str.encode),
    st.sampled_from(EXAMPLES).flatmap(lambda e: st.integers(0, len(e)).map(lambda n: e[:n].encode())),
    st.binary(max_size=60),
    st.text(alphabet="0123456789:[]-/ .,rankRank<>()=TZ+", max_size=60).map(str.encode),
    st.sampled_from([b"", b"\r", b"\x1b[31m", b"\x00" * 9, b"x" * 5000]),
)
FILES = st.dictionaries(
    st.sampled_from(["slurm-7.out", "rank_3.log", "n01-dmesg.txt", "a/b.log", "x.gz", "trace-n2.txt", "sacct.txt"]),
    st.lists(LINES, max_size=25).map(b"\n".join),
    max_size=4,
)


def answer(folder):
    return as_json(diagnose_folder(str(folder), reader=READER))


@QUIET
@given(files=FILES)
def test_the_answer_keeps_its_form(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("logs")
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    got = answer(folder)
    json.dumps(got)
    assert type(got["failed"]) is bool
    assert got["category"] in CATEGORIES
    assert got["confidence"] in ("high", "medium", "low")
    assert got["evidence"] in ("explicit", "inference")
    assert got["failed"] or (got["first_error"] is None and got["category"] == "none" and not got["suspect_nodes"])
    if got["first_error"]:
        data = files[got["first_error"]["file"]]
        assert 1 <= got["first_error"]["line"] <= data.count(b"\n") + 1


@QUIET
@given(text=st.text(max_size=300))
def test_readers_of_one_line_never_raise(text):
    scan(text)
    clean(text)
    read_label(text)
    stamp = read_stamp(text)
    if stamp is not None:
        with_year(stamp, 1.7e9)


@QUIET
@given(data=st.lists(LINES, max_size=30).map(b"\n".join))
def test_both_engines_give_the_same_answers(data):
    assert {hit % 4096 for hit in SHARED.scan(data)} == {hit % 4096 for hit in SLOW.scan(data)}


@pytest.mark.parametrize("row", table(), ids=lambda row: row.kind)
def test_the_engine_looks_for_all_that_a_pattern_fits(row):
    """Else a line would mean one thing to an agent and nothing to `relight diagnose`."""
    find = re.compile(row.find, (0 if row.case else re.IGNORECASE) | re.MULTILINE)
    ascii_only = re.compile(row.pattern.pattern, re.ASCII | (row.pattern.flags & re.IGNORECASE))

    @settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
    @given(text=st.from_regex(ascii_only, fullmatch=True))
    def holds(text):
        line = text.replace("\n", " ")
        assert row.pattern.search(line) is None or find.search(line) is not None

    holds()


@QUIET
@given(data=st.binary(max_size=3000).map(lambda b: b"log " + b), size=st.integers(1, 64))
def test_blocks_are_the_file(tmp_path_factory, data, size):
    path = tmp_path_factory.mktemp("blocks") / "f"
    path.write_bytes(data)
    parts = list(blocks(str(path), size))
    assert b"".join(parts) == data
    assert all(part.endswith(b"\n") or len(part) >= size for part in parts[:-1])


def job(order, nodes, guilty):
    """One job, its lines in some interleaving, its hosts and the guilty rank by choice."""
    chance = random.Random(order)
    lines = [
        f"[rank{r}]:[E504 10:16:10.{r:06d}123 ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)"
        for r in range(16)
        if r != guilty
    ]
    chance.shuffle(lines)
    lines.insert(
        chance.randrange(len(lines)), f"[rank{guilty}]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
    )
    return "\n".join([f"SLURM_JOB_NODELIST={','.join(nodes)}", "gpus_per_node=4 WORLD_SIZE=16", *lines, ""])


@QUIET
@given(
    order=st.integers(0, 1 << 20),
    guilty=st.integers(0, 15),
    prefix=st.sampled_from(["n", "gpu-a", "rack7-node", "h100"]),
)
def test_the_verdict_moves_with_the_guilty_one_and_with_nothing_else(tmp_path_factory, order, guilty, prefix):
    nodes = [f"{prefix}{number:03d}" for number in range(4)]
    folder = tmp_path_factory.mktemp("job")
    text = job(order, nodes, guilty)
    (folder / "slurm-7.out").write_text(text)
    got = answer(folder)
    assert (got["first_error"]["rank"], got["first_error"]["node"]) == (guilty, nodes[guilty // 4])
    assert got["suspect_nodes"] == [nodes[guilty // 4]]
    assert got["category"] == "hardware.gpu_memory"
    assert re.search("ECC", text.splitlines()[got["first_error"]["line"] - 1])
