"""`relight diagnose` as people and programs call it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from logcases import head, steps, timeouts, traceback

from supervisor.commands.diagnose import command
from supervisor.errors import UserError
from supervisor.evidence.folder import read_layout
from supervisor.evidence.table import CATEGORIES
from supervisor.evidence.tell import page
from supervisor.telling import runbooks

KEYS = {
    "schema",
    "failed",
    "first_error",
    "category",
    "suspect_nodes",
    "restart_ok",
    "confidence",
    "evidence",
    "cascade",
    "why",
    "lines",
}


@pytest.fixture
def logs(tmp_path):
    text = (
        head()
        + steps()
        + traceback(6, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
        + timeouts((6,))
    )
    (tmp_path / "slurm-77.out").write_text(text)
    return tmp_path


def test_json_has_the_promised_form(logs):
    done = CliRunner().invoke(command, ["--json", str(logs)], standalone_mode=False)
    assert done.return_value == 0
    got = json.loads(done.output)
    assert set(got) >= KEYS
    assert set(got["first_error"]) == {"file", "line", "rank", "node"}
    assert (got["schema"], got["failed"], got["suspect_nodes"]) == (1, True, ["gx-02"])


def test_people_get_the_line_the_place_and_the_page(logs):
    text = CliRunner().invoke(command, [str(logs)], standalone_mode=False).output
    assert text.startswith("gx-02, rank 6: hardware.gpu_memory (high confidence, explicit)\n  slurm-77.out:13  ")
    assert "will not help" in text
    assert "relight runbook node-lost" in text  # hardware: the page of a node that is no good


def test_people_are_told_that_it_cannot_be_told(tmp_path):
    said = CliRunner().invoke(command, [str(tmp_path)], standalone_mode=False).output
    assert said.startswith("Cannot tell whether it failed. Nothing in these files is of a training job")
    assert "Whether a restart helps is not known." in said
    (tmp_path / "slurm-77.out").write_text(head() + steps())
    said = CliRunner().invoke(command, [str(tmp_path)], standalone_mode=False).output
    assert said.startswith("Cannot tell whether it failed. The logs end after step 105")
    assert "  the last line: slurm-77.out:10  " in said
    assert "relight runbook" not in said  # no page is of a job of which nothing is known
    assert "sacct" in said


def test_one_file_is_a_folder_of_one(logs):
    (logs / "other.out").write_text(traceback(0, "ValueError: of another job"))
    one = CliRunner().invoke(command, [str(logs / "slurm-77.out")], standalone_mode=False).output
    assert one.startswith("gx-02, rank 6: hardware.gpu_memory (high confidence, explicit)\n  slurm-77.out:13  ")
    assert "Read: 1 file, " in one


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: [a]", ":1: JSON is wanted (Expecting value): {"),
        ('{"nodes": [],\n x}', ":2: JSON is wanted (Expecting property name enclosed in double quotes): {"),
    ],
)
def test_a_layout_that_is_no_json_is_told_what_is_wanted(text, said, tmp_path):
    path = tmp_path / "layout"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_layout(str(path))
    assert str(caught.value).startswith(f"{path}{said}")


def test_a_folder_that_is_not_there_is_named_once():
    done = CliRunner().invoke(command, ["/no/such/folder"], standalone_mode=False)
    assert str(done.exception) == "/no/such/folder: there is no such folder"


def test_a_terminal_is_not_obeyed(tmp_path):
    (tmp_path / "x.out").write_text("[rank1]: ValueError: \x1b]0;owned\x07\x1b[2Jbad\u202e sample\n")
    text = CliRunner().invoke(command, [str(tmp_path)], standalone_mode=False).output
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "bad" in text


@pytest.mark.parametrize("arguments", [["/no/such/folder"], ["--layout", "/no/such/file", "."]])
def test_what_can_not_be_read_is_a_mistake_of_the_caller(arguments):
    done = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert isinstance(done.exception, UserError)
    assert done.exception.exit_code == 2


@pytest.mark.parametrize("content", ["[1]", "{", "nodes: [a]"])
def test_a_layout_that_is_none(tmp_path, content):
    path = tmp_path / "layout.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"layout\.json"):
        read_layout(str(path))


def test_every_category_has_a_page():
    assert {page(category) for category in CATEGORIES} <= set(runbooks.names())
