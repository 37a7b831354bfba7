"""A common state that is hostile or damaged is read by a process of its own, runs nothing, and answers nothing."""

import random

import pytest
from speccases import LARGE, common_state, whole, write

from supervisor.bench import fake_saves
from supervisor.checkpoints.reading.folder import locate
from supervisor.checkpoints.reading.verifying import Options, verify_save
from supervisor.checkpoints.spec.checking import SpecCheck
from supervisor.checkpoints.spec.items import State
from supervisor.checkpoints.spec.megatron import document_of

DOCUMENT = document_of(LARGE)
STATED = whole(DOCUMENT, random.Random(0)).facts


def checked(folder, state):
    """A save that holds all that is asked, with this common state."""
    save = folder / "iter_0000040"
    write(str(save), whole(DOCUMENT, random.Random(0)), state)
    check = SpecCheck(DOCUMENT, locate(str(save)).folder)
    report = verify_save(locate(str(save)), Options(lag_s=0.0, content=False, extra_checks=(check,)))
    return report, check


def test_the_same_state_is_read(tmp_path):
    report, check = checked(tmp_path, common_state(STATED))
    assert report.verdict.value == "complete"
    assert check.stated["arguments.data_path"] == ["corpus-v3"]
    assert check.comparison.differences == ()


@pytest.mark.parametrize("module", ["posix", "builtins", "subprocess"])
def test_a_state_that_would_run_something_runs_nothing(tmp_path, module):
    mark = tmp_path / "ran"
    name = {"posix": "system", "builtins": "eval", "subprocess": "getoutput"}[module]
    text = f"open({str(mark)!r}, 'w')" if module == "builtins" else f"touch {mark}"
    report, check = checked(tmp_path, fake_saves.whole(fake_saves.called(module, name, text)))
    assert not mark.exists()
    assert report.verdict.value == "broken"
    assert "BAD_COMMON_STATE" in {finding.code for finding in report.findings}
    # What it would have said is not known, and no item of the spec is called missing for it.
    assert check.stated is None
    assert check.comparison.differences == ()
    assert check.comparison.counts[State.UNREAD] > 20


def test_only_plain_values_come_through(tmp_path):
    deep = [[1]]
    for _ in range(50):
        deep = [deep]
    odd = {"arguments.deep": deep, "arguments.long": "x" * 5000, "arguments.nan": float("nan"), "arguments.fine": 7}
    _, check = checked(tmp_path, common_state({**STATED, **odd}))
    assert check.stated["arguments.fine"] == 7
    assert not {"arguments.deep", "arguments.long", "arguments.nan"} & set(check.stated)


def test_a_state_of_another_kind_says_nothing_and_that_is_a_difference(tmp_path):
    report, check = checked(tmp_path, fake_saves.whole(fake_saves.value(["no", "state"])))
    assert report.verdict.value == "broken"
    assert {item.kind for item in check.comparison.differences} == {"need"}
