"""Every reason has its page, every page its reason; what the pages name exists."""

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from console_run import journaled, waiting

from policies.reasons import Reason
from policies.rules import Rules
from supervisor.cli import COMMANDS, group
from supervisor.commands.runbook import command
from supervisor.errors import UserError
from supervisor.telling import runbooks

ROOT = Path(__file__).parents[2]
HEADINGS = ["Seen", "Means", "Check", "Do", "Undo", "Escalate"]
PAGES = sorted([*(r.value for r in Reason), *runbooks.BESIDE])


def faults(name: str, text: str) -> list[str]:
    """What is wrong with a page, in words."""
    found = []
    if not text.startswith(f"# {name}\n"):
        found.append("its title is not its name")
    if re.findall(r"^## (.*)$", text, re.MULTILINE) != HEADINGS:
        found.append("its headings are not the six, in order")
    parts = re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]
    if any(not part.strip() for part in parts):
        found.append("a part is empty")
    found += unknown_names(text)
    if re.search(r"relight resume RUN(?! --because \")", text):
        found.append("resume without its reason")
    if re.search(r"relight refuse RUN --plan PLAN(?! --because \")", text):
        found.append("refuse without its reason")
    found += [
        f"`relight {c}` without RUN" for c in re.findall(r"relight (approve|refuse|plan|pause|halt)\b(?! RUN)", text)
    ]
    found += [f"`relight {c}` without a plan" for c in re.findall(r"relight (approve|refuse) RUN(?! --plan)", text)]
    return found


def unknown_names(text: str) -> list[str]:
    """Commands, thresholds and pages that a text names and that do not exist."""
    found = [f"no command {c}" for c in re.findall(r"relight ([a-z]+)", quoted(text)) if c not in COMMANDS]
    sections = {
        name: set(type(getattr(Rules(), name)).model_fields)
        for name in Rules.model_fields
        if hasattr(getattr(Rules(), name), "model_fields_set")
    }
    for section, key in re.findall(r"`([a-z]+)\.([a-z_]+)`", text):
        if section in sections and key not in sections[section]:
            found.append(f"no threshold {section}.{key}")
    return found + [f"no page {p}" for p in re.findall(r"relight runbook ([a-z-]+)", text) if p not in PAGES]


def quoted(text: str) -> str:
    return "\n".join(re.findall(r"`([^`]*)`", text))


def test_pages_and_reasons_are_the_same_set():
    assert list(runbooks.names()) == PAGES


@pytest.mark.parametrize("reason", PAGES)
def test_a_page_has_its_parts_and_names_what_exists(reason):
    assert faults(reason, runbooks.find(reason)) == []


def test_the_index_lists_every_page_and_names_what_exists():
    index = runbooks.find(runbooks.INDEX)
    listed = [
        n for row in re.findall(r"^\| (?!when|---)[^|]*\| ([^|]*) \|$", index, re.MULTILINE) for n in row.split(", ")
    ]
    assert sorted(listed) == PAGES
    assert unknown_names(index) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("# stall", "# stal"), "its title is not its name"),
        (("## Undo", "## Back"), "its headings are not the six, in order"),
        (("relight status RUN", "relight state RUN"), "no command state"),
        (("`stall.x`", "`stall.step_faktor`"), "no threshold stall.step_faktor"),
        (("--plan PLAN", ""), "`relight approve` without a plan"),
        (("relight approve RUN", "relight approve"), "`relight approve` without RUN"),
        (("## Escalate\n", "## Escalate\n`relight resume RUN`\n"), "resume without its reason"),
        (('PLAN --because "..."', "PLAN"), "refuse without its reason"),
        (("## Escalate\n", "## Escalate\nSee `relight runbook stal`.\n"), "no page stal"),
    ],
)
def test_the_checker_sees_a_planted_fault(change, fault):
    page = runbooks.find("stall").replace("raise that of the phase", "raise `stall.x`")
    assert change[0] in page
    assert fault in faults("stall", page.replace(*change))


def lost_tests(text: str) -> list[str]:
    """Tests that a text names as file.py::test and that do not exist."""
    found = re.findall(r"`([a-z]+/test_[a-z_]+\.py)::(test_[a-z_]+)`", text)
    assert found
    files = {file: ROOT / "tests" / file for file, _ in found}
    return [f"{f}::{t}" for f, t in found if not files[f].is_file() or f"def {t}(" not in files[f].read_text("utf-8")]


def test_what_the_readme_and_the_design_page_name_exists():
    design = (ROOT / "docs/design.md").read_text("utf-8")
    assert lost_tests(design) == []
    assert unknown_names(design) == []
    assert unknown_names((ROOT / "README.md").read_text("utf-8")) == []
    assert lost_tests(design.replace("test_the_ladder", "test_a_ladder")) == [
        "property/test_ladder_properties.py::test_a_ladder"
    ]


def lost_pages(text: str) -> list[str]:
    """Pages that an error message or a notice sends people to and that do not exist."""
    return [p for p in re.findall(r"relight runbook ([a-z]+(?:-[a-z]+)*)", text) if p not in PAGES]


def test_every_page_that_the_code_sends_people_to_exists():
    source = "".join(f.read_text("utf-8") for room in ("supervisor", "slurm") for f in (ROOT / room).rglob("*.py"))
    assert "relight runbook journal-damaged" in source
    assert lost_pages(source) == []
    assert lost_pages("See: relight runbook no-drain-rights") == ["no-drain-rights"]


def test_an_empty_part_is_seen():
    page = re.sub(r"## Undo\n.*?## Esc", "## Undo\n\n## Esc", runbooks.find("stall"), flags=re.DOTALL)
    assert faults("stall", page) == ["a part is empty"]


def test_the_wheel_comes_before_the_checkout_and_a_path_is_no_name(tmp_path):
    wheel, checkout, secret = tmp_path / "_runbooks", tmp_path / "runbooks", tmp_path / "secret.md"
    secret.write_text("not a page")
    for place, text in ((wheel, "from the wheel"), (checkout, "from the checkout")):
        place.mkdir()
        (place / "README.md").write_text("index")
        (place / "stall.md").write_text(text)
    places = (str(wheel), str(checkout))
    assert runbooks.find("stall", places) == "from the wheel"
    assert runbooks.find("stall", places[1:]) == "from the checkout"
    with pytest.raises(LookupError):
        runbooks.find("../secret", places)
    with pytest.raises(FileNotFoundError, match="not whole"):
        runbooks.names((str(tmp_path / "none"),))


def test_the_command_prints_the_page_as_it_lies_there():
    result = CliRunner().invoke(command, ["node-lost"])
    assert (result.exit_code, result.output) == (0, runbooks.find("node-lost"))


def test_without_a_reason_it_lists_all_pages():
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == PAGES
    assert all(line.endswith(".") for line in result.output.splitlines())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("no-spre", "Did you mean no-spare?"),
        ("zzzz", "`relight runbook` lists them."),
        ("../README", "no runbook page"),
    ],
)
def test_an_unknown_reason_is_bad_usage(asked, said):
    result = CliRunner().invoke(command, [asked])
    assert result.exit_code == 2
    assert said in result.output


def test_escapes_in_a_reason_do_not_reach_the_terminal():
    result = CliRunner().invoke(command, ["\x1b[31mstall\x1b]0;x\x07"])
    assert result.exit_code == 2
    assert "\x1b" not in result.output


def test_an_installation_without_pages_says_so(tmp_path):
    files = (
        "telling/__init__.py",
        "telling/runbooks.py",
        "telling/say.py",
        "errors.py",
        "commands/__init__.py",
        "commands/runbook.py",
    )
    for name in ("__init__.py", *files):
        (tmp_path / "supervisor" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "supervisor" / name, tmp_path / "supervisor" / name)
    code = "import sys; sys.path.insert(0, sys.argv.pop()); from supervisor.commands.runbook import command; command()"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 70
    assert "this installation of relight is not whole" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_on_a_terminal_the_markdown_is_drawn():
    main, side = pty.openpty()
    code = "from supervisor.commands.runbook import command; command(['stall'])"
    done = subprocess.Popen([sys.executable, "-c", code], stdout=side, env={**os.environ, "TERM": "xterm-256color"})
    os.close(side)
    seen = b""
    try:
        while part := os.read(main, 65536):
            seen += part
    except OSError:  # the far end of a terminal ends with EIO
        pass
    finally:
        os.close(main)
    assert done.wait() == 0
    assert b"\x1b[" in seen
    assert b"## Seen" not in seen
    assert b"Seen" in seen


def lost_options(text: str) -> list[tuple[str, str]]:
    """Each command with an option that a text gives it and that it does not have."""
    found = re.findall(r"relight ([a-z]+)([^`\n]*)", quoted(text))
    named = {(name, option) for name, rest in found for option in re.findall(r"--[a-z-]+", rest)}
    return sorted((n, o) for n, o in named if o not in options_of(import_module(COMMANDS[n][0]).command))


def options_of(command: click.Command) -> set[str]:
    """Of a command, or of all commands of a group: which of them takes it is seen where the line is parsed."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return {name for parameter in command.params for name in parameter.opts}.union(*map(options_of, below))


def test_the_options_that_the_pages_name_exist():
    pages = [runbooks.find(name) for name in (*PAGES, runbooks.INDEX)]
    assert [lost_options(page) for page in pages] == [[]] * len(pages)
    assert lost_options(runbooks.find("stall").replace("--plan", "--digest")) == [
        ("approve", "--digest"),
        ("refuse", "--digest"),
    ]


# --- the commands are tried ----------------------------------------------------------------------------------------

STANDS_FOR = {
    "RUN": "demo",
    "PLAN": "8f3a1c",
    "NODE": "n1",
    "ID": "a0001-i0000040",
    "REASON": "stall",
    "FIRST:END": "1:9",
}
READING = ("status", "explain", "plan", "runbook")
"""Commands that only read: they are carried out. The others are parsed by their own parser and no more."""


def typed(text: str) -> list[list[str]]:
    """Every command of relight that a page has in backticks or in a block, word by word, with names in the place of RUN, PLAN, ..."""
    pieces = [*re.findall(r"```sh\n(.*?)```", text, re.DOTALL), *re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
    lines = [line for piece in pieces for line in piece.splitlines() if line.startswith("relight ")]
    return [[STANDS_FOR.get(word, word) for word in shlex.split(line)] for line in lines]


def refused(words: list[str]) -> str:
    """Why the command line would not take it; empty where it would. Nothing is done."""
    name, *rest = words[1:]
    if name == "run" and not rest:
        return ""  # "with the command as before"
    try:
        node = group.get_command(click.Context(group), name)
        assert node is not None, f"no command {name}"
        while isinstance(node, click.Group):
            name, *rest = rest
            node = node.get_command(click.Context(node), name)
            assert node is not None, f"no command {name}"
        node.make_context(name, rest)
    except click.ClickException as error:
        return error.format_message()
    except (AssertionError, ValueError) as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """./relight-runs/demo: an incident, and a plan that waits."""
    root = tmp_path_factory.mktemp("work")
    (root / "relight-runs").mkdir()
    journaled(root / "relight-runs", waiting())
    return root


@pytest.mark.parametrize("page", [*PAGES, runbooks.INDEX])
def test_every_command_of_a_page_can_be_typed(page, made_up, monkeypatch):
    monkeypatch.chdir(made_up)
    commands = typed(runbooks.find(page))
    assert [(" ".join(words), why) for words in commands if (why := refused(words))] == []
    for words in commands:
        asks = set(words) & {"--keep-node", "--spare", "--checkpoint", "--skip-samples"}
        if words[1] in READING and not asks:
            done = CliRunner().invoke(group, words[1:], standalone_mode=False)
            assert not isinstance(done.exception, (UserError, click.ClickException)), (words, done.exception)
            assert done.exception is None, done.exc_info
            assert done.output


@pytest.mark.parametrize(
    ("page", "right", "wrong", "why"),
    [
        ("stall", "relight approve RUN --plan PLAN", "relight approve RUN --plan", "requires an argument"),
        ("stall", "relight approve RUN --plan PLAN", "relight approve RUN --digest PLAN", "No such option"),
        ("stall", "relight explain RUN", "relight explain", "Missing argument 'RUN'"),
        ("stall", "relight status RUN", "relight staus RUN", "No such command 'staus'"),
        ("notice-not-delivered", "relight guard RUN --try", "relight guard RUN --dry", "No such option"),
        ("journal-damaged", "`relight run --run-dir DIR`", "```sh\nrelight explain RUN x\n```", "not a valid integer"),
    ],
)
def test_a_page_with_a_wrong_command_is_found(page, right, wrong, why):
    text = runbooks.find(page)
    assert right in text
    found = [refused(words) for words in typed(text.replace(right, wrong))]
    assert [one for one in found if why in one], found


def test_most_pages_have_commands_to_try():
    assert sum(bool(typed(runbooks.find(page))) for page in PAGES) > len(PAGES) * 0.8
