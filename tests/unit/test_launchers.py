"""Torchrun's words taken apart: what stays, what is ours, what one rank runs."""

import pytest

from supervisor import launchers
from supervisor.errors import UserError
from supervisor.launchers import Split

OURS = (
    "--nnodes={nodes}", "--nproc-per-node={each}", "--max-restarts=0", "--node-rank={slot}", "--master-addr={master_addr}",
    "--master-port={master_port}",
)  # fmt: skip


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (
            "torchrun train.py --nnodes 3",
            Split(("torchrun", *OURS), ("{python}", "-u", "train.py", "--nnodes", "3"), None),
        ),
        (
            "/env/bin/torchrun --nproc_per_node=8 --nnodes 1:4 --rdzv-backend c10d --rdzv_endpoint h:1 --tee 3 train.py -x",
            Split(("/env/bin/torchrun", "--tee", "3", *OURS), ("{python}", "-u", "train.py", "-x"), 8),
        ),
        (
            "python3 -m torch.distributed.run --standalone --max-restarts 5 --nproc-per-node gpu -m pkg.train -a 1",
            Split(
                ("python3", "-m", "torch.distributed.run", *OURS),
                ("{python}", "-u", "-m", "pkg.train", "-a", "1"),
                None,
            ),
        ),
        (
            "python -u -m torch.distributed.run --monitor-interval=1 --no-python ./train.sh",
            Split(
                ("python", "-u", "-m", "torch.distributed.run", "--monitor-interval=1", *OURS), ("./train.sh",), None
            ),
        ),
    ],
)
def test_torchrun_is_taken_apart(command, wanted):
    assert launchers.split(command.split()) == wanted


@pytest.mark.parametrize("name", ["ft_launcher", "python -m nvidia_resiliency_ext.fault_tolerance.launcher"])
def test_ft_launcher_meets_in_its_own_way(name):
    found = launchers.split(f"{name} --ft-ignore-missing-cfg --ft-cfg-path x.yaml --rdzv-endpoint h:1 train.py".split())
    kept = (*name.split(), "--ft-ignore-missing-cfg", "--ft-cfg-path", "x.yaml")
    meet = ("--rdzv-backend=c10d", "--rdzv-endpoint={master_addr}:{master_port}", "--rdzv-id={run}")
    assert found == Split((*kept, *OURS[:3], *meet), ("{python}", "-u", "train.py"), None)


@pytest.mark.parametrize(
    "command", ["python train.py", "python -m train -m torch.distributed.run", "bash -c torchrun", "python -m"]
)
def test_what_is_no_torchrun_stays_as_it_is(command):
    assert launchers.split(command.split()) is None


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("torchrun --nproc-per-node 8", "no script"),
        ("torchrun --run-path x.train", "--run-path"),
        ("torchrun --virtual-local-rank train.py", "LOCAL_RANK"),
        ("torchrun --nproc-per-node 4 train.py", "ranks_per_node is 8"),
    ],
)
def test_what_cannot_be_run_is_said(command, why):
    with pytest.raises(UserError, match=why):
        launchers.check(command.split(), 8)


def test_one_that_agrees_with_the_layout_may_run():
    launchers.check(["torchrun", "--nproc-per-node", "8", "train.py"], 8)
    launchers.check(["torchrun", "train.py"], 8)
    launchers.check(["python", "train.py"], 8)
