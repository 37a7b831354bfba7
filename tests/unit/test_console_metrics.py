"""Metrics: named and typed as Prometheus has it; absent where unknown; and the alert rules speak of metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from builders import training
from console_run import journaled, shown, waiting
from prometheus_client.parser import text_string_to_metric_families

from policies.facts import UNKNOWN
from supervisor.cli import COMMANDS
from supervisor.console.metrics import GAUGES, exposition
from supervisor.console.reading import Runs
from supervisor.drill_files import Drill, keep
from supervisor.rundir import RunDir
from supervisor.telling import runbooks

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "supervisor" / "console" / "alerts.yml"
BOARD = RULES.with_name("board.json")


def values(root: Path) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(exposition(Runs((str(root),))).decode())
    return {
        (s.name, ",".join(f"{k}={v}" for k, v in sorted(s.labels.items()) if k != "run")): s.value
        for family in families
        for s in family.samples
    }


def test_an_open_plan_in_numbers(tmp_path: Path) -> None:
    scene = waiting()
    journaled(tmp_path, scene)
    got = values(tmp_path)
    assert got["relight_decision_waiting", ""] == 1
    assert got["relight_decision_waiting_since_timestamp_seconds", ""] == scene.history.decided_at
    assert got["relight_incidents_total", "class=node-lost"] == 1
    assert got["relight_incidents_total", "class=stall"] == 0
    assert (got["relight_step", ""], got["relight_attempt", ""]) == (45, 1)
    assert (got["relight_samples", ""], got["relight_tokens", ""]) == (360, 3600)
    assert (got["relight_slots", ""], got["relight_slots_up", ""], got["relight_spares_ready", ""]) == (3, 2, 1)
    assert got["relight_checkpoint_saved_timestamp_seconds", ""] == 40
    assert got["relight_incident_time_seconds_total", "part=noticing"] > 5
    assert 0 <= got["relight_effective_time_ratio", ""] <= 1
    assert got["relight_status_written_timestamp_seconds", ""] == pytest.approx(scene.now)


def test_what_is_not_known_is_absent(tmp_path: Path) -> None:
    scene = training()
    scene.view = replace(scene.view, nodes=UNKNOWN, checkpoints=UNKNOWN)
    run = journaled(tmp_path, scene)
    got = values(tmp_path)
    for name in (
        "relight_slots_up",
        "relight_spares_ready",
        "relight_checkpoint_step",
        "relight_decision_waiting_since_timestamp_seconds",
    ):
        assert (name, "") not in got
    assert got["relight_decision_waiting", ""] == 0
    Path(run.path("status.json")).write_text("{")
    torn = values(tmp_path)
    assert ("relight_status_written_timestamp_seconds", "") not in torn
    assert torn["relight_run_readable", ""] == 1
    shown(run, scene)
    assert ("relight_status_written_timestamp_seconds", "") in values(tmp_path)


def test_names_and_helps_follow_the_conventions(tmp_path: Path) -> None:
    journaled(tmp_path, waiting())
    families = list(text_string_to_metric_families(exposition(Runs((str(tmp_path),))).decode()))
    for family in families:
        assert re.fullmatch(r"relight_[a-z_]+", family.name), family.name
        assert family.documentation.endswith("."), family.name
        assert family.type in {"gauge", "counter"}
        assert all(s.labels["run"] == "demo" for s in family.samples)
        assert (family.type == "counter") == all(
            s.name.endswith("_total") for s in family.samples
        ) or not family.samples
        assert not re.search(r"_(ms|minutes|hours|kb|mb|percent)(_|$)", family.name)
    assert len({family.name for family in families}) == len(families)


def drilled(root: Path, ended_at: float) -> None:
    one = Drill(
        number=1,
        kind="archive",
        level="load",
        began_at=0.0,
        ended_at=ended_at,
        parts={"fetch": 2.0, "load": 5.5},
        ok=True,
    )
    keep(RunDir(str(next(root.rglob("settings.json")).parent)), one)


def test_the_last_good_drill(tmp_path: Path) -> None:
    journaled(tmp_path, waiting())
    assert not [name for name, _ in values(tmp_path) if "drill" in name]
    drilled(tmp_path, 1000.0)
    got = values(tmp_path)
    assert got["relight_drill_timestamp_seconds", "kind=archive"] == 1000.0
    assert got["relight_drill_seconds", "kind=archive"] == 7.5


def told_of(rules: str) -> set[str]:
    return set(
        re.findall(
            r"\brelight_[a-z_]+", "\n".join(re.findall(r"expr: (?:>-\n)?((?:.|\n)*?)\n\s+(?:for|labels):", rules))
        )
    )


def test_the_alerts_speak_of_metrics_that_exist(tmp_path: Path) -> None:
    journaled(tmp_path, waiting())
    drilled(tmp_path, 1000.0)
    exist = {name for name, _ in values(tmp_path)} | {name for name, _, _ in GAUGES}
    rules = RULES.read_text()
    assert len(told_of(rules)) > 10
    assert told_of(rules) <= exist
    assert not told_of(rules.replace("relight_halted", "relight_hated")) <= exist  # and a wrong name is seen


def test_the_alerts_lead_to_pages_and_commands_that_exist() -> None:
    actions = re.findall(r'action: "relight ([a-z]+)(?: ([a-z-]+))?', RULES.read_text())
    assert len(actions) == RULES.read_text().count("- alert:")
    for command, page in actions:
        assert command in COMMANDS
        assert command != "runbook" or page in runbooks.names()


def questions(board: str) -> list[str]:
    return [target["expr"] for panel in json.loads(board)["panels"] for target in panel["targets"]]


def test_the_board_shows_metrics_that_exist_each_of_the_chosen_run(tmp_path: Path) -> None:
    journaled(tmp_path, waiting())
    exist = {name for name, _ in values(tmp_path)} | {name for name, _, _ in GAUGES}
    asked = questions(BOARD.read_text())
    told = {name for one in asked for name in re.findall(r"relight_[a-z_]+", one)}
    assert len(told) > 15
    assert told <= exist
    assert all(one.count("relight_") == one.count('{run=~"$run"}') for one in asked)
    panels = json.loads(BOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for p in (panel["gridPos"] for panel in panels)
        for x in range(p["x"], p["x"] + p["w"])
        for y in range(p["y"], p["y"] + p["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here (Debian: the package prometheus)")
def test_the_metrics_and_the_board_are_understood_by_prometheus(tmp_path: Path) -> None:
    journaled(tmp_path, waiting())
    said = exposition(Runs((str(tmp_path),)))
    linted = subprocess.run(["promtool", "check", "metrics"], input=said, capture_output=True, check=False)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    planted = said.replace(b"relight_loss", b"relight_loss_milliseconds")
    assert subprocess.run(["promtool", "check", "metrics"], input=planted, capture_output=True, check=False).returncode
    rules = [{"record": f"a:{n}", "expr": one} for n, one in enumerate(questions(BOARD.read_text()))]
    made = tmp_path / "rules.yml"
    made.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    assert subprocess.run(["promtool", "check", "rules", str(made)], capture_output=True, check=False).returncode == 0
    made.write_text(made.read_text().replace("time() - ", "time( - "))
    assert subprocess.run(["promtool", "check", "rules", str(made)], capture_output=True, check=False).returncode != 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here (Debian: the package prometheus)")
def test_the_alerts_fire_when_they_should(tmp_path: Path) -> None:
    cases = HERE / "console_alerts_test.yml"
    good = subprocess.run(["promtool", "test", "rules", str(cases)], capture_output=True, text=True, check=False)
    assert good.returncode == 0, good.stdout + good.stderr
    (tmp_path / "alerts.yml").write_text(
        RULES.read_text().replace("relight_decision_waiting == 1", "relight_decision_waiting == 2")
    )
    planted = tmp_path / "cases.yml"
    planted.write_text(cases.read_text().replace("../../supervisor/console/alerts.yml", "alerts.yml"))
    bad = subprocess.run(["promtool", "test", "rules", str(planted)], capture_output=True, text=True, check=False)
    assert bad.returncode != 0
