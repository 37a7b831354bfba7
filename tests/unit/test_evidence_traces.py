"""Flight-recorder dumps: who never reached the collective. JSON is read here, pickles only by another process, when asked."""

from __future__ import annotations

import json
import os
import pickle  # noqa: TID251 - written here, never read
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from logcases import NODES, READER, WORLD, head, node_of, steps, timeouts, traceback

from supervisor.commands.diagnose import command
from supervisor.evidence import analyser as nvrx
from supervisor.evidence.analyser import Analyser, AnalyserError, missing_ranks
from supervisor.evidence.folder import as_json, diagnose_folder
from supervisor.evidence.traces import BYTES, dumps, missing, rank_of, read_trace

LOG = head() + steps()


def entries(last, ended, group=("0", "default_pg"), op="nccl:all_reduce"):
    return [
        {
            "process_group": list(group),
            "collective_seq_id": n,
            "profiling_name": op,
            "state": "completed" if n <= ended else "scheduled",
            "retired": n <= ended,
            "is_p2p": False,
            "record_id": n,
            "pg_id": int(group[0]),
            "op_id": n,
            "p2p_seq_id": 0,
            "time_created_ns": n,
            "input_sizes": [[4]],
            "output_sizes": [[4]],
            "input_dtypes": ["Float"],
            "output_dtypes": ["Float"],
        }
        for n in range(1, last + 1)
    ]


def dump(*parts, ranks=range(WORLD)):
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(ranks))}},
        "pg_status": {
            "0": {
                "last_enqueued_collective": len(parts[0]) if parts else 0,
                "last_started_collective": len(parts[0]) if parts else 0,
                "last_completed_collective": sum(e["retired"] for e in parts[0]) if parts else 0,
            }
        },
        "entries": [entry for part in parts for entry in part],
    }


def recorded(guilty, world=WORLD):
    """All ranks wait in collective 7, and the guilty ones have not come to it."""
    return {r: dump(entries(6, 6) if r in guilty else entries(7, 6), ranks=range(world)) for r in range(world)}


def write(folder, content, logs=None, ending=".json", name="nccl_trace_rank_{}"):
    folder.mkdir(exist_ok=True)
    for rank, one in content.items():
        data = json.dumps(one).encode() if ending == ".json" else pickle.dumps(one)
        (folder / (name.format(rank) + ending)).write_bytes(data)
    for file, text in (logs or {"slurm-77.out": LOG}).items():
        (folder / file).write_text(text)
    return folder


def diagnose(folder, analyser=None):
    return as_json(diagnose_folder(str(folder), reader=READER, analyser=analyser))


def found_in(folder):
    names = dumps(str(folder), os.listdir(folder)).json
    return missing([read_trace(os.path.join(folder, name), name) for name in sorted(names)])


@pytest.mark.parametrize("guilty", [3, 14])
def test_the_rank_that_never_came_is_named(tmp_path, guilty):
    got = diagnose(write(tmp_path, recorded({guilty})))
    assert (got["category"], got["evidence"], got["restart_ok"]) == ("hang.unknown", "inference", True)
    assert (got["first_error"]["rank"], got["first_error"]["node"]) == (guilty, node_of(guilty))
    assert f"Rank {guilty} never reached nccl:all_reduce of default_pg 7, in which 15 ranks waited" in got["why"]
    assert got["suspect_nodes"] == []


def test_its_own_last_line_is_the_first_error_where_it_has_a_log(tmp_path):
    logs = {f"rank_{r:03d}.log": "".join(f"step {n} loss=2\n" for n in range(9)) for r in range(WORLD)}
    got = diagnose(write(tmp_path, recorded({5}), {**logs, "slurm-77.out": head()}))
    assert got["first_error"] == {"file": "rank_005.log", "line": 9, "rank": 5, "node": "gx-02"}


def test_a_node_of_which_no_rank_came_is_suspected(tmp_path):
    assert diagnose(write(tmp_path, recorded(range(8, 12))))["suspect_nodes"] == ["gx-03"]


def test_an_error_that_a_rank_has_written_comes_first(tmp_path):
    error = traceback(6, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
    got = diagnose(write(tmp_path, recorded({6}), {"slurm-77.out": LOG + error + timeouts((6,))}))
    assert (got["category"], got["evidence"]) == ("hardware.gpu_memory", "explicit")


def test_who_waits_in_another_group_is_no_culprit(tmp_path):
    """Rank 1 hangs before a collective of its pair; rank 0 waits for it there, and so misses that of all."""
    pair = ("1", "tensor")
    content = {r: dump(entries(7, 6), ranks=range(4)) for r in (2, 3)}
    content[0] = dump(entries(6, 6), entries(40, 39, pair), ranks=range(4))
    content[1] = dump(entries(6, 6), entries(39, 39, pair), ranks=range(4))
    for one in content.values():
        one["pg_config"]["1"] = {"ranks": "[0, 1]"}
    assert found_in(write(tmp_path, content)).ranks == (1,)


def test_who_still_works_at_what_the_others_have_left_is_the_one(tmp_path):
    content = recorded({2})
    content[2] = dump(entries(6, 5))
    assert found_in(write(tmp_path, content)).ranks == (2,)


def test_the_front_is_told_by_the_idle_where_the_end_of_a_collective_was_noted_late(tmp_path):
    content = {r: dump(entries(7, 5)) for r in range(WORLD)}
    content[2] = dump(entries(6, 6))
    assert found_in(write(tmp_path, content)).ranks == (2,)
    content[2] = dump(entries(6, 5))  # it has run ahead by less, and waits as all do
    assert found_in(write(tmp_path, content)) is None


def test_who_left_no_dump_is_missing_where_all_others_did(tmp_path):
    content = recorded(())
    del content[9]
    assert found_in(write(tmp_path / "one", content)).ranks == (9,)
    for rank in range(8):
        content.pop(rank)
    assert found_in(write(tmp_path / "half", content)) is None


@pytest.mark.parametrize("content", [recorded(()), {r: dump(entries(6, 6)) for r in range(WORLD)}, {0: dump()}])
def test_where_nobody_differs_nobody_is_named(tmp_path, content):
    assert found_in(write(tmp_path, content)) is None
    assert "flight" not in diagnose(tmp_path)["why"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'{"entries": 3}', "entries"),
        (b'{"entries": [{"process_group": ["0"]}]}', "process_group"),
        (b'{"entries": [', "no flight-recorder dump"),
        (b'{"a": ' + b"[" * 100_000, "no flight-recorder dump"),
        (b'{"x": "' + b"y" * BYTES + b'"}', "larger than 8 MB"),
    ],
)
def test_a_bad_dump_is_named_and_the_logs_are_judged(tmp_path, data, told):
    error = traceback(6, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
    write(tmp_path, {}, {"slurm-77.out": LOG + error})
    (tmp_path / "nccl_trace_rank_0.json").write_bytes(data)
    got = diagnose(tmp_path)
    assert got["category"] == "hardware.gpu_memory"
    assert any(note.startswith("nccl_trace_rank_0.json: ") and told in note for note in got["notes"])


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_12", 12),
        ("a/comm_lib_trace_rank_3", 3),
        ("_dump_7", 7),
        ("job77_nccl_trace_rank_5.json", 5),
        ("rank_3.log", None),
        ("coredump_3.txt", None),
    ],
)
def test_dumps_are_known_by_their_names(name, rank):
    assert rank_of(name) == rank


def test_a_log_with_the_name_of_a_dump_is_a_log(tmp_path):
    (tmp_path / "_dump_0").write_text("[rank0]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    assert diagnose(tmp_path)["category"] == "hardware.gpu_memory"


# --- pickles ------------------------------------------------------------------------------------------------------

TABLE = """
import json, os, sys
assert sys.argv[1:] == ["--fr-path", {folder!r}, "--pattern", "nccl_trace_rank_*", "--emit-stdout"], sys.argv
print("some words")
print("PGID   | Process Group Desc | Op Type | Size | Dtype | Missing Ranks")
print("0      | default_pg,0       | nccl:all_reduce | 4 | Float | {ranks}")
"""


class Bomb:
    """A dump that writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def fake(tmp_path, code, **limits):
    script = tmp_path / "analyser.py"
    script.write_text(code)
    return Analyser((sys.executable, str(script)), **limits)


def test_pickles_are_never_read_unasked(tmp_path):
    mark = tmp_path / "mark"
    logs = write(tmp_path / "logs", dict.fromkeys(range(4), Bomb(str(mark))), ending="")
    got = diagnose(logs)
    assert not mark.exists()
    assert any("nccl_trace_rank_0 and 3 more" in note and "--traces" in note for note in got["notes"])
    pickle.loads((logs / "nccl_trace_rank_0").read_bytes()).close()  # noqa: S301 - it would have told
    assert mark.exists()


@pytest.mark.parametrize(("told", "rank", "suspects"), [("9", 9, []), ("4, 5,6,7", 4, ["gx-02"])])
def test_the_analysers_answer_is_a_clue(tmp_path, told, rank, suspects):
    logs = write(tmp_path / "logs", recorded({rank}), ending="")
    analyser = fake(tmp_path, TABLE.format(folder=str(logs), ranks=told))
    got = diagnose(logs, analyser)
    assert (got["first_error"]["rank"], got["suspect_nodes"], got["notes"]) == (rank, suspects, [])
    assert "the flight recorders say so" in got["why"]


@pytest.mark.parametrize(
    ("code", "limits", "told"),
    [
        ("raise SystemExit(3)", {}, "exit code 3"),
        ("import signal; signal.pause()", {"deadline_s": 1.0}, "no answer within 1 s"),
        ("x = bytearray(1 << 30)", {"memory_bytes": 512 << 20}, "exit code 1"),
        ("while True: print('x' * 4096)", {}, "exit code"),
    ],
)
def test_an_analyser_that_gives_no_answer_is_said_to_give_none(tmp_path, code, limits, told):
    logs = write(tmp_path / "logs", recorded({3}), ending="")
    got = diagnose(logs, fake(tmp_path, code, **limits))
    assert any("NVRx's analyser" in note and told in note for note in got["notes"])
    assert "flight" not in got["why"]


def test_what_the_analyser_has_started_goes_with_it(tmp_path):
    pid = tmp_path / "pid"
    code = f"import os, signal\nchild = os.fork()\nif child == 0: signal.pause()\nopen({str(pid)!r}, 'w').write(str(child))\nsignal.pause()\n"
    analyser = fake(tmp_path, code, deadline_s=3.0)
    with pytest.raises(AnalyserError):
        analyser.missing(str(write(tmp_path / "logs", recorded({3}), ending="")), ["nccl_trace_rank_0"])
    end = time.monotonic() + 20
    while time.monotonic() < end:
        stat = Path(f"/proc/{pid.read_text()}/stat")
        if not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.02)
    pytest.fail("it is still there")


def test_only_the_table_counts():
    assert missing_ranks("0 | a | b | c | d | 7\n") == ()
    table = "PGID | a | b | c | d | Missing Ranks\n0 | a | b | c | d | 3, 5\n1 | a | b | c | d | x, 123456789\nend\n"
    assert missing_ranks(table) == (3, 5)


def test_the_help_says_what_traces_does():
    text = CliRunner().invoke(command, ["--help"]).output
    assert "runs what is in them" in " ".join(text.split())


@pytest.mark.skipif(nvrx.find() is None, reason="NVRx is not there")
@pytest.mark.parametrize("guilty", [2, 13])
def test_nvrx_itself(tmp_path, guilty):
    logs = write(tmp_path / "logs", recorded({guilty}), ending="")
    got = diagnose(logs, nvrx.find())
    assert (got["first_error"]["rank"], got["first_error"]["node"]) == (guilty, NODES[guilty // 4])


GLOO = """
import json, os, torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace_json
rank, folder = int(os.environ["RANK"]), os.environ["FOLDER"]
dist.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank, world_size=3)
x = torch.ones(4)
for _ in range(5):
    dist.all_reduce(x)
if rank != 1:
    work = dist.all_reduce(x, async_op=True)
data = b'{"entries": []}'
while sum(entry["retired"] for entry in json.loads(data)["entries"]) < 5:  # what has ended is noted a little later
    data = _dump_fr_trace_json(True, False)
with open(f"{folder}/nccl_trace_rank_{rank}.json", "wb") as file:
    file.write(data)
print("written", flush=True)
input()
os._exit(0)
"""


@pytest.mark.real
def test_what_torch_itself_writes(tmp_path):
    children = [
        subprocess.Popen(
            [sys.executable, "-c", GLOO],
            env={**os.environ, "RANK": str(rank), "FOLDER": str(tmp_path), "TORCH_FR_BUFFER_SIZE": "100", "GLOO_SOCKET_IFNAME": "lo"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for rank in range(3)
    ]  # fmt: skip
    try:
        for child in children:
            assert child.stdout.readline() == b"written\n"
        found = found_in(tmp_path)
        assert (found.ranks, found.waiting, found.seq) == ((1,), 2, 6)
        assert found.what == "gloo:all_reduce of default_pg"
        assert read_trace(str(tmp_path / "nccl_trace_rank_0.json"), "nccl_trace_rank_0.json").groups["0"].ranks == {
            0,
            1,
            2,
        }
    finally:
        for child in children:
            child.kill()
            child.communicate()
