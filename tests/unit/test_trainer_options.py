from __future__ import annotations

import pytest

from supervisor.bench.trainer.options import Fail, Plant, parse

WORLD = {"RANK": "5", "WORLD_SIZE": "8", "RELIGHT_SAVE_DIR": "/s", "RELIGHT_LOAD_DIR": "/l", "RELIGHT_CHECKPOINT": "x"}


def test_orders_are_read():
    argv = "--tp 2 --pp 2 --dp 2 --plant wrong-lr --plant stale-shard:rank=3:step=40 --fail nan@7:1 --skip-samples 8:16"
    o = parse([*argv.split(), "--slow-save", "40:2.5"], WORLD)
    assert (o.rank, o.world, o.save, o.load, o.checkpoint) == (5, 8, "/s", "/l", "x")
    assert o.plants == (Plant("wrong-lr"), Plant("stale-shard", 3, 40))
    assert [str(fail) for fail in o.fails] == ["nan@7:1"]
    assert o.fails == (Fail("nan", 7, 1),)
    assert o.skip_samples == ((8, 16),)
    assert o.slow_save == (40, 2.5)


def test_what_relight_leaves_out_is_left_out_too():
    argv = ["--dp", "8", "--micro", "1", "--skip-samples", "8:16"]
    assert parse(argv, WORLD | {"RELIGHT_SKIP_SAMPLES": "32:40,0:4"}).skip_samples == ((32, 40), (0, 4), (8, 16))
    assert parse(argv, WORLD | {"RELIGHT_SKIP_SAMPLES": ""}).skip_samples == ((8, 16),)


def test_spans_of_relight_that_make_no_sense_are_told(capsys):
    with pytest.raises(SystemExit) as end:
        parse(["--dp", "8", "--micro", "1"], WORLD | {"RELIGHT_SKIP_SAMPLES": "8"})
    assert end.value.code == 2
    assert "RELIGHT_SKIP_SAMPLES" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ("--tp 2", "but WORLD_SIZE is 8"),
        ("--dp 8 --global-batch 9", "no multiple"),
        ("--tp 8", "heads 4"),
        ("--pp 8", "layers 4"),
        ("--dp 8 --micro 0", "sizes start at 1"),
        ("--tp 2 --pp 4 --plant wrong-place", "wrong-place needs"),
        ("--dp 8 --plant odd", "--plant"),
        ("--dp 8 --plant wrong-lr:at=3", "--plant"),
        ("--dp 8 --fail nan@x:1", "--fail"),
        ("--dp 8 --fail burn@1:1", "--fail"),
        ("--dp 8 --skip-samples 9:9", "--skip-samples"),
    ],
)
def test_what_does_not_fit_is_told(argv, told, capsys):
    with pytest.raises(SystemExit) as end:
        parse(argv.split(), WORLD)
    assert end.value.code == 2
    assert told in capsys.readouterr().err
