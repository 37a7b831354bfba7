"""A site's own kinds of lines: they are used, and a bad row is told with its file, its number and what would be right."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from logcases import head, steps, timeouts, traceback

from supervisor.commands.diagnose import command
from supervisor.errors import UserError
from supervisor.evidence.site import site_table
from supervisor.evidence.table import table

ROW = """
[[signature]]
kind = "our-filer"
pattern = 'filer9: lease of (?P<node>[\\w-]+) lost'
role = "root"
grade = 4
category = "storage.io"
source = "our filer"
example = "filer9: lease of gx-03 lost"
"""


def run(*arguments):
    return CliRunner().invoke(command, [str(one) for one in arguments], standalone_mode=False)


def test_a_sites_row_says_what_ended_the_job(tmp_path):
    site, logs = tmp_path / "our.toml", tmp_path / "logs"
    site.write_text(ROW)
    logs.mkdir()
    text = head() + steps() + "filer9: lease of gx-03 lost\n" + traceback(6, "KeyError: 'x'") + timeouts((6,))
    (logs / "slurm-77.out").write_text(text)
    without, got = (json.loads(run("--json", *site_, logs).output) for site_ in ((), ("--site", site)))
    assert (without["category"], got["category"]) == ("software.user", "storage.io")
    assert (got["first_error"]["line"], got["first_error"]["node"]) == (11, "gx-03")


def test_a_sites_rows_stand_first(tmp_path):
    path = tmp_path / "our.toml"
    path.write_text(ROW)
    assert [row.kind for row in site_table(str(path))] == ["our-filer", *(row.kind for row in table())]


@pytest.mark.parametrize(
    ("change", "to", "told"),
    [
        ('role = "root"', 'role = "guilty"', "signature 2 ('our-filer'): role 'guilty': one of root, cascade, context, benign"),
        ("grade = 4", "grade = 9", "signature 2 ('our-filer'): grade 9: one of 1, 2, 3, 4 is wanted"),
        ("storage.io", "storage.oi", "Did you mean 'storage.io'?"),
        ("source", "sources", "there is no column 'sources'. Did you mean 'source'?"),
        ("'filer9: lease", "'(filer9: lease", "signature 2 ('our-filer'): pattern: "),
        ("kind =", "find = 'lost$(?=x)'\nkind =", "signature 2 ('our-filer'): the engine cannot look for"),
        ("kind =", "find = 'filer8'\nkind =", "no line of this kind would be looked at"),
        ("pattern = 'filer9: lease of (?P<node>[\\w-]+) lost'", "pattern = '(filer9)*'", "it fits every line"),
        ('example = "filer9: lease of gx-03 lost"', "", "an example is wanted"),
        ("lease of gx-03", "no lease of gx-03", "pattern does not fit the example"),
        ('kind = "our-filer"', 'kind = "exception"', "signature 'exception' is there twice"),
        ('kind = "our-filer"', 'kind = "layout-ours"', "choose another name"),
        ('kind = "our-filer"', "", "signature 2: kind and pattern must be there"),
        ("[[signature]]", "[signature]", "must be an array of tables"),
        ('role = "root"', 'role = root"', "line "),
    ],
)  # fmt: skip
def test_a_bad_row_is_told(tmp_path, change, to, told):
    path = tmp_path / "our.toml"
    assert change in ROW
    good = ROW.replace("our-filer", "other-filer").replace("filer9", "filer7") if "[[" not in change else ""
    path.write_text(good + ROW.replace(change, to))
    done = run("--site", path, tmp_path)
    assert isinstance(done.exception, UserError)
    assert (str(done.exception).startswith(f"{path}: "), done.exception.exit_code) == (True, 2)
    assert told in str(done.exception)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"title = 'x'\n"])
def test_a_file_that_is_no_table(tmp_path, content):
    path = tmp_path / "our.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"our\.toml: "):
        site_table(str(path))
