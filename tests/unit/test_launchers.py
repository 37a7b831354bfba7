"""Torchrun's words taken apart: what stays, what is ours, what one rank runs."""

import pytest

from supervisor import launchers
from supervisor.errors import UserError
from supervisor.launchers import Split


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("torchrun train.py --nnodes 3", Split(("torchrun",), ("{python}", "-u", "train.py", "--nnodes", "3"), None)),
        (
            "/env/bin/torchrun --nproc_per_node=8 --nnodes 1:4 --rdzv-backend c10d --rdzv_endpoint h:1 --tee 3 train.py -x",
            Split(("/env/bin/torchrun", "--tee", "3"), ("{python}", "-u", "train.py", "-x"), 8),
        ),
        (
            "python3 -m torch.distributed.run --standalone --max-restarts 5 --nproc-per-node gpu -m pkg.train -a 1",
            Split(("python3", "-m", "torch.distributed.run"), ("{python}", "-u", "-m", "pkg.train", "-a", "1"), None),
        ),
        (
            "python -u -m torch.distributed.run --monitor-interval=1 --no-python ./train.sh",
            Split(("python", "-u", "-m", "torch.distributed.run", "--monitor-interval=1"), ("./train.sh",), None),
        ),
    ],
)
def test_torchrun_is_taken_apart(command, wanted):
    assert launchers.split(command.split()) == wanted


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
