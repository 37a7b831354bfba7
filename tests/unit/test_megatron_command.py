"""Megatron's arguments in the command of a run: what is set, what is refused with what to do, what is only said."""

import pytest

from supervisor.agent.place import Place
from supervisor.checkpoints.megatron_command import MUST_LOAD, REFUSED, VALUES, for_attempt, prepare
from supervisor.errors import UserError
from supervisor.perform.effects import _command
from supervisor.settings import Settings

PLAIN = (
    "python",
    "pretrain_gpt.py",
    "--num-layers",
    "2",
    "--data-path",
    "0.5",
    "a",
    "0.5",
    "b",
    "--save-interval",
    "100",
)
SET = ("--save", "{save_dir}", "--load", "{load_dir}", "--ckpt-format", "torch_dist", "--exit-on-missing-checkpoint")


def complaint(*argv):
    with pytest.raises(UserError) as caught:
        prepare(argv)
    said = str(caught.value)
    assert "\n" not in said
    assert caught.value.exit_code == 2
    return said


def values(argv, name):
    """As argparse sees them: both spellings, in order."""
    found = [argv[i + 1] for i, word in enumerate(argv) if word == name]
    return found + [word.partition("=")[2] for word in argv if word.startswith(f"{name}=")]


def test_what_relight_needs_is_put_in_and_nothing_else_is_touched():
    found = prepare(PLAIN)
    assert found.argv == PLAIN + SET
    assert found.warnings == ()


def test_it_may_be_prepared_again_as_each_start_does():
    once = prepare(PLAIN).argv
    assert prepare(once).argv == once


@pytest.mark.parametrize(
    "own",
    [
        ("--save", "{save_dir}"),
        ("--save={save_dir}",),
        ("--load={load_dir}", "--save", "{save_dir}", "--ckpt-format=torch_dist"),
        SET,
        (MUST_LOAD,),
    ],
)
def test_what_stands_there_already_as_it_must_be_stays_as_it_is(own):
    argv = prepare((*PLAIN, *own)).argv
    assert argv[: len(PLAIN) + len(own)] == (*PLAIN, *own)
    assert {name: values(argv, name) for name in VALUES} == {name: [value] for name, value in VALUES.items()}
    assert argv.count(MUST_LOAD) == 1


@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.parametrize("spelling", ["{}", "{}=3"])
def test_what_would_not_go_on_is_refused_by_its_name(name, spelling):
    said = complaint(*PLAIN, spelling.format(name))
    assert said == f"{name}: {REFUSED[name]}. Leave it out"


def test_the_list_of_what_is_refused_has_what_the_facts_ask_for():
    """Each of these made a good save bad, or a restart begin elsewhere, in the sources that were read."""
    assert {
        "--ckpt-assume-constant-structure", "--save-retain-interval", "--no-load-optim", "--no-load-rng", "--finetune",
        "--no-save-optim", "--no-save-rng",
    } <= REFUSED.keys()  # fmt: skip
    prepare((*PLAIN, "--no-load-optimism", "--finetuned"))  # other words that only begin alike


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (("--save", "/ckpt/run1"), "--save /ckpt/run1"),
        (("--load=/ckpt/run1",), "--load /ckpt/run1"),
        (("--save", "{save_dir}", "--save", "/late"), "--save /late"),
        (("--load", "{save_dir}"), "--load {save_dir}"),
        (("--load", "{load_dir}/x"), "--load {load_dir}/x"),
        (("--save=",), "--save"),
        (("--save",), "--save"),
    ],
)
def test_a_directory_of_ones_own_is_refused_with_what_to_do(own, told):
    said = complaint(*PLAIN, *own)
    assert said.startswith(f"{told}: relight gives --save and --load for each attempt. Leave it out; ")
    assert said.endswith("`relight checkpoints adopt RUN PATH`")


@pytest.mark.parametrize("own", [("--ckpt-format", "torch"), ("--ckpt-format=zarr",)])
def test_another_format_is_refused_and_not_replaced(own):
    said = complaint(*PLAIN, *own)
    assert said.startswith("--ckpt-format ")
    assert "only torch_dist can be checked" in said


def test_what_is_only_slow_is_only_said():
    found = prepare((*PLAIN, "--verify-integrity"))
    assert found.argv[len(PLAIN)] == "--verify-integrity"
    (said,) = found.warnings
    assert said.startswith("--verify-integrity: rank 0 sums every file")


def test_a_run_that_would_never_save_is_told():
    assert prepare((*PLAIN[:-2], "--persistent-save-interval=100")).warnings == ()
    found = prepare(PLAIN[:-2])
    assert found.warnings == (
        "--save-interval is not given: Megatron then saves at the end only. See: relight interval",
    )


@pytest.mark.parametrize(
    "argv",
    [
        ("bash", "train.sh"),
        ("bash", "-c", "python pretrain_gpt.py --num-layers 2 --save /ckpt"),
        ("python", "train.py", "--config", "gpt.yaml"),
        (),
    ],
)
def test_where_the_arguments_are_hidden_it_says_what_must_be_passed(argv):
    said = complaint(*argv)
    for word in (
        "--save {save_dir}",
        "--load {load_dir}",
        MUST_LOAD,
        "--ckpt-format torch_dist",
        '"$RELIGHT_SAVE_DIR"',
    ):
        assert word in said
    assert "${RELIGHT_CHECKPOINT:+--exit-on-missing-checkpoint}" in said


def test_a_script_that_passes_its_arguments_on_may_be_given_them():
    assert prepare(("bash", "train.sh", "--save-interval", "100")).argv == (
        "bash",
        "train.sh",
        "--save-interval",
        "100",
        *SET,
    )


def test_a_yaml_of_megatrons_own_hides_everything():
    assert complaint(*PLAIN, "--yaml-cfg", "x.yaml").startswith(
        "--yaml-cfg: Megatron then reads no argument of the command"
    )


def test_an_attempt_from_nothing_is_not_told_to_end_where_nothing_is():
    """Its view is empty, and with the word Megatron ends there with exit code 0, which would look like a finished run."""
    argv = prepare(PLAIN).argv
    assert MUST_LOAD not in for_attempt(argv, from_nothing=True)
    assert for_attempt(argv, from_nothing=True) == PLAIN + SET[:-1]
    assert for_attempt(argv, from_nothing=False) == argv


def test_the_shim_fills_what_was_put_in():
    launch = {
        "schema": 1, "run": "d", "epoch": 1, "attempt": 2, "tp": 1, "pp": 1, "dp": 1, "ranks_per_node": 1, "slots": ["n0"],
        "master_addr": "127.0.0.1", "master_port": 1, "command": list(prepare(PLAIN).argv), "cwd": "/", "env": {},
        "save_dir": "/s/a0002", "load_dir": "/v/a0002", "checkpoint": "a0001-i0000040", "warm": False, "reporter": 0,
        "skip_samples": [], "agent_sockets": "/tmp",
    }  # fmt: skip
    argv = Place("/run", 2, 0, "n0", launch).argv
    assert argv[len(PLAIN) :] == [
        "--save", "/s/a0002", "--load", "/v/a0002", "--ckpt-format", "torch_dist", "--exit-on-missing-checkpoint",
    ]  # fmt: skip


def test_launches_get_it_where_the_settings_say_megatron():
    mega = Settings.model_validate({"checkpoints": {"framework": "megatron"}, "command": prepare(PLAIN).argv})
    assert _command(mega, None) == PLAIN + SET[:-1]
    assert _command(mega, "a0001-i0000040") == PLAIN + SET
    other = Settings.model_validate({"command": (*PLAIN, MUST_LOAD)})
    assert _command(other, None) == (*PLAIN, MUST_LOAD)
