"""Profiles: those that ship are good, a site's own may start from one, and mistakes name the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.facts import FaultClass
from policies.history import History
from policies.rules import Rules
from supervisor.errors import UserError
from supervisor.profiles import in_force, load_profile, shipped


def test_those_that_ship() -> None:
    assert shipped() == ["approve", "auto", "bench", "observe"]
    modes = {name: load_profile(name).mode for name in shipped()}
    assert modes == {"approve": "approve", "auto": "auto", "bench": "auto", "observe": "observe"}
    assert load_profile("bench").cleared == frozenset(FaultClass)
    assert load_profile("approve").cleared == load_profile("observe").cleared == frozenset()


@pytest.mark.parametrize("name", ["approve", "auto", "observe"])
def test_we_look_before_the_watchdog_of_nccl_kills(name: str) -> None:
    """NCCL's default is 10 minutes. A stall is confirmed and its evidence kept before that."""
    rules = load_profile(name)
    for limit in (rules.stall.load_s, rules.stall.step_floor_s, rules.stall.save_s, rules.stall.evaluation_s):
        assert limit + rules.stall.confirm_s + rules.evidence.capture_s < 600


def test_a_sites_own_extends_one_that_ships(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('extends = "bench"\nhold_s = 60\n[stall]\nload_s = 99\n')
    rules, base = load_profile(str(own)), load_profile("bench")
    assert (rules.hold_s, rules.stall.load_s) == (60, 99)
    assert rules.stall.save_s == base.stall.save_s
    assert rules.cleared == base.cleared


def complaint(name: str) -> str:
    with pytest.raises(UserError) as caught:
        load_profile(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_name_that_is_not_known() -> None:
    assert complaint("atuo") == (
        "profile atuo: not known; these ship: approve, auto, bench, observe; or give a path to a .toml file"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[stal]\n", ":1: stal: there is no such setting. Did you mean stall?"),
        ("\n[stall]\nstep_flor_s = 3\n", ":3: stall.step_flor_s: there is no such setting. Did you mean step_floor_s?"),
        ('mode = "automatic"\n', ":1: mode = 'automatic': Input should be 'observe', 'approve' or 'auto'"),
        ("[stall]\nload_s = -1\n", ":2: stall.load_s = -1: Input should be greater than or equal to 0"),
        ("[stall]\nload_s = nan\n", ":2: stall.load_s = nan: Input should be"),
        ("extends = 3\n", ": extends: must be the name of a profile or a path"),
    ],
)
def test_a_mistake_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    assert complaint(str(path)).startswith(f"{path}{said}")


def test_a_circle_ends(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f'extends = "{path}"\n')
    assert "extends more than 5 others" in complaint(str(path))


def test_rules_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Rules().mode = "auto"  # type: ignore[misc]


def test_who_takes_over_goes_on_with_the_rules_that_were_last_in_force() -> None:
    """The first start was in mode auto, a later one in mode approve: who comes next asks too."""
    asks = load_profile("approve")
    assert in_force(History(mode="approve", rules=asks.model_dump_json()), "auto") == asks
    unread = in_force(History(mode="approve", rules='{"of": "another version"}'), "auto")
    assert (unread.mode, unread.stall) == ("approve", load_profile("auto").stall)
    assert in_force(History(), "auto") == load_profile("auto")
