"""relight.toml and settings.json: a mistake is one line that says what, where, and what would be right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policies.layout import Layout
from supervisor.errors import UserError
from supervisor.prepare import Wishes, is_taken_as_it_was, prepare
from supervisor.settings import Settings, freeze, frozen, read_settings
from supervisor.toml_files import line_of


def write(folder: Path, text: str) -> str:
    path = folder / "relight.toml"
    path.write_text(text)
    return str(path)


def complaint(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(UserError) as caught:
        read_settings(path)
    assert caught.value.exit_code == 2
    said = str(caught.value)
    assert said.startswith(path)
    assert "\n" not in said
    return said.removeprefix(path)


def test_everything_has_a_default(tmp_path: Path) -> None:
    assert read_settings(write(tmp_path, "")) == Settings()
    assert Settings().nodes == ("n000",)


def test_a_layout_and_its_nodes(tmp_path: Path) -> None:
    text = "[layout]\ntp = 2\npp = 2\ndp = 2\nranks_per_node = 2\n[cluster]\nspares = 1\n"
    settings = read_settings(write(tmp_path, text))
    assert settings.shape() == Layout(2, 2, 2, 2)
    assert settings.nodes == ("n000", "n001", "n002", "n003", "n004")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "# the run\n[layout]\ntp = 8\npp = 1\ndp = 3\nranks_per_node = 16\n",
            ":5: layout.dp = 3: 8 x 1 x 3 ranks do not fill nodes of 16. Did you mean dp = 4?",
        ),
        (
            "[layout]\norder = 'dp-tp-pp'\n",
            ":2: layout.order = 'dp-tp-pp': not known; the one that is known is 'tp-dp-pp'",
        ),
        ("[layout]\ntpp = 8\n", ":2: layout.tpp: there is no such setting. Did you mean tp?"),
        ("[run]\nprofil = 'auto'\n", ":2: run.profil: there is no such setting. Did you mean profile?"),
        ("[lay_out]\ntp = 1\n", ":1: lay_out: there is no such setting. Did you mean layout?"),
        (
            "zzz = 1\n",
            ":1: zzz: there is no such setting. Known here: run, layout, cluster, checkpoints, archive, notify, health, env, command, cwd.",
        ),
        ("[layout]\n\ntp = 0\n", ":3: layout.tp = 0: Input should be greater than or equal to 1"),
        (
            "[layout]\ntp = 'two'\n",
            ":2: layout.tp = 'two': Input should be a valid integer, unable to parse string as an integer",
        ),
        ("[cluster]\nkind = 'pbs'\n", ":2: cluster.kind = 'pbs': Input should be 'auto', 'local' or 'slurm'"),
        (
            "[run]\nname = '../x'\n",
            ":2: run.name = '../x': String should match pattern '^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$'",
        ),
        ("[env]\nA = 1\n", ":2: env.A = 1: Input should be a valid string"),
    ],
)
def test_a_mistake_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    assert complaint(tmp_path, text) == said


@pytest.mark.parametrize("text", ["[layout\n", "a = \n", "tp = 1\ntp = 2\n"])
def test_what_is_no_toml_says_where(text: str, tmp_path: Path) -> None:
    assert "line" in complaint(tmp_path, text)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "relight.toml").write_bytes(b"\xff")
    with pytest.raises(UserError, match="utf-8"):
        read_settings(str(tmp_path / "relight.toml"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        read_settings(str(tmp_path / "other.toml"))


@pytest.mark.parametrize(
    ("keys", "line"),
    [(("a", "x"), 3), (("a", "y"), 2), (("b", "c", "x"), 5), (("b", "c"), 4), (("x",), 1), (("none", "x"), None)],
)
def test_the_line_of_a_key_or_of_its_section(keys: tuple[str, ...], line: int | None) -> None:
    assert line_of("x = 0\n[a]\n  x=1\n[ b.c ]\nx = 2\n", keys) == line


def test_the_first_start_freezes_and_a_changed_layout_is_refused(tmp_path: Path) -> None:
    first = Settings.model_validate({"layout": {"dp": 3}, "cluster": {"spares": 1}})
    assert freeze(str(tmp_path), first) == first
    assert frozen(str(tmp_path)) == first
    for what, changed, words in (
        ("layout", {"layout": {"dp": 4, "tp": 2}, "cluster": {"spares": 1}}, "tp 1 -> 2, dp 3 -> 4"),
        ("cluster", {"layout": {"dp": 3}, "cluster": {"spares": 2}}, "spares 1 -> 2"),
    ):
        with pytest.raises(UserError) as caught:
            freeze(str(tmp_path), Settings.model_validate(changed))
        assert str(caught.value) == (
            f"{what} has changed since this run began ({words}): a run keeps its {what}. "
            "Put it back, or start another run (another --run-dir)"
        )
    assert frozen(str(tmp_path)) == first


def test_a_changed_name_is_refused(tmp_path: Path) -> None:
    """The cluster shows what runs by the name of the run: under another one it would not be found, nor stopped."""
    freeze(str(tmp_path), Settings())
    with pytest.raises(UserError, match=r"run.name has changed since this run began \(run -> other\)"):
        freeze(str(tmp_path), Settings.model_validate({"run": {"name": "other"}}))


@pytest.mark.parametrize(
    "text",
    ['[env]\n"A=B" = "x"\n', '[env]\nA = "x\\u0000y"\n', 'command = ["a\\u0000b"]\n', 'cwd = "/dev/null/nowhere"\n'],
)
def test_what_no_process_could_be_started_with_is_refused_at_once(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError):
        prepare(Wishes(None, path, None, str(tmp_path / "run"), ("true",)))
    assert not (tmp_path / "run").exists()


def test_a_store_beside_us_is_meant_wherever_the_ranks_stand(tmp_path: Path) -> None:
    path = write(tmp_path, 'cwd = "/"\n[checkpoints]\ndir = "store"\n')
    _, settings, _ = prepare(Wishes(None, path, None, str(tmp_path / "run"), ("true",)))
    assert settings.checkpoints.dir == str(Path.cwd() / "store")


def test_what_is_not_fixed_may_change(tmp_path: Path) -> None:
    freeze(str(tmp_path), Settings())
    other = Settings.model_validate({"run": {"profile": "auto"}, "command": ["python", "x.py"]})
    assert freeze(str(tmp_path), other) == other


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"layout":{"tp":"x"}}', b"\xff"])
def test_frozen_settings_that_cannot_be_understood_are_told(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_bytes(raw)
    with pytest.raises(UserError) as caught:
        frozen(str(tmp_path))
    assert str(caught.value).startswith(str(tmp_path / "settings.json"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("typed", "runs"), [((), ("python", "x.py")), (("python", "y.py"), ("python", "y.py"))])
def test_the_command_of_the_settings_counts_where_none_is_typed(typed, runs, tmp_path: Path) -> None:
    path = write(tmp_path, 'command = ["python", "x.py"]\n')
    _, settings, _ = prepare(Wishes(None, path, None, str(tmp_path / "run"), typed))
    assert settings.command == runs


def test_a_run_is_taken_over_with_its_own_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing need be typed but where it is; a command that is typed counts, and a first start without one is refused."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(home)
    text = '[run]\nname = "mine"\nprofile = "own.toml"\n[layout]\ndp = 2\n[notify]\ncommand = ["./page", "x"]\n'
    write(home, text)
    (home / "own.toml").write_text('extends = "auto"\n')
    with pytest.raises(UserError, match="no command: give it after --"):
        prepare(Wishes(None, None, None, None, ()))
    run, first, rules = prepare(Wishes(None, None, None, None, ("python", "x.py")))
    assert first.notify.command == (str(home / "page"), "x")

    assert prepare(Wishes(None, None, None, None, ())) == (run, first, rules)
    assert not is_taken_as_it_was(Wishes(None, None, None, None, ()))
    monkeypatch.chdir(elsewhere)
    by_place = Wishes(None, None, None, run.root, ())
    assert prepare(by_place) == (run, first, rules)
    assert is_taken_as_it_was(by_place)
    write(elsewhere, '[run]\nname = "another"\n')  # another run's settings, which lie where somebody stands
    assert prepare(by_place) == (run, first, rules)
    write(elsewhere, 'command = ["other"]\n[run]\nname = "mine"\n[layout]\ndp = 2\n')  # of that name, and elsewhere
    assert prepare(by_place) == (run, first, rules)
    write(elsewhere, '[run]\nname = "another"\n')
    with pytest.raises(UserError, match=r"run\.name has changed"):
        prepare(Wishes(None, None, None, run.root, ("python", "y.py")))
    with pytest.raises(UserError, match=r"run\.name has changed"):  # it was asked for by name
        prepare(Wishes(None, "relight.toml", None, run.root, ()))


def test_a_run_without_settings_of_its_own_is_taken_over_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run, first, _ = prepare(Wishes(None, None, None, None, ("python", "x.py")))
    assert prepare(Wishes(None, None, None, None, ()))[:2] == (run, first)
    assert prepare(Wishes(None, None, None, None, ("python", "y.py")))[1].command == ("python", "y.py")


def test_no_run_is_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run of relight is here"):
        frozen(str(tmp_path))


def test_frozen_settings_have_a_schema(tmp_path: Path) -> None:
    freeze(str(tmp_path), Settings())
    assert json.loads((tmp_path / "settings.json").read_bytes())["schema"] == 1
