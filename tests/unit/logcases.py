"""Small jobs whose logs go wrong in a known way: the pieces that tests of `relight diagnose` are made of."""

from __future__ import annotations

from supervisor.evidence.folder import as_json, diagnose_folder
from supervisor.evidence.reading import Reader

NODES = ("gx-01", "gx-02", "gx-03", "gx-04")
EACH = 4
WORLD = len(NODES) * EACH
READER = Reader()


def diagnose(tmp_path, files, layout=None):
    """Write the files and judge the folder."""
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return as_json(diagnose_folder(str(tmp_path), layout, READER))


def node_of(rank):
    return NODES[rank // EACH]


def head(nodes=NODES, each=EACH, job=77):
    """What a job script prints first."""
    return (
        f"SLURM_JOB_ID={job}\nSLURM_JOB_NODELIST={','.join(nodes)}\nSLURM_GPUS_ON_NODE={each} gpus_per_node={each}\n"
        f"MASTER_ADDR={nodes[0]} WORLD_SIZE={len(nodes) * each}\n"
    )


def steps(first=100, count=6, at="10:00", label=""):
    """Megatron's own lines, one a minute."""
    hour, minute = (int(x) for x in at.split(":"))
    return "".join(
        f"{label} [2026-05-04 {hour:02d}:{minute + n:02d}:05] iteration {first + n:8d}/  9000 | consumed samples: {(first + n) * 64} |"
        f" elapsed time per iteration (ms): 60000.0 | lm loss: 2.1E+00 | number of nan iterations:   0 |\n"
        for n in range(count)
    )


def timeout(rank, seq=900, at="10:16:10", op="ALLREDUCE"):
    """The watchdog of one rank."""
    return (
        f"[rank{rank}]:[E504 {at}.{rank:06d}123 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600{rank:03d} milliseconds before timing out.\n"
        f"[rank{rank}]:[E504 {at}.{rank:06d}923 ProcessGroupNCCL.cpp:681] [Rank {rank}] Some NCCL operations have failed or timed out.\n"
    )


def timeouts(guilty=(), seq=900, at="10:16:10"):
    """The watchdogs of all ranks but the guilty ones."""
    return "".join(timeout(rank, seq, at) for rank in range(WORLD) if rank not in guilty)


def traceback(rank, last, frames=(("/app/train.py", 88, "train_step"),)):
    """A traceback whose lines carry the rank."""
    lines = ["Traceback (most recent call last):"]
    lines += [f'  File "{file}", line {line}, in {function}' for file, line, function in frames]
    lines.append(last)
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)
