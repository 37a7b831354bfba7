"""Tokens: shown once, kept as hashes, of one role, taken away at once; and who may stand where with them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.console import serve, tokens
from supervisor.console.serve import Where
from supervisor.console.tokens import Role, Tokens
from supervisor.errors import UserError

NOW = 1000.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "conf" / "tokens.json")


def test_a_token_is_found_and_only_its_hash_is_kept(path: str) -> None:
    token = tokens.add(path, "li.wei", Role.APPROVER, NOW)
    found = Tokens(path).find(token)
    assert found is not None
    assert (found.name, found.role) == ("li.wei", Role.APPROVER)
    kept = Path(path).read_text()
    assert token not in kept
    assert token.split("_", 2)[2] not in kept  # the secret itself may have an underscore
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700


def test_what_is_not_the_token_is_not_let_in(path: str) -> None:
    token = tokens.add(path, "li.wei", Role.APPROVER, NOW)
    other = tokens.add(path, "ops", Role.VIEWER, NOW)
    door = Tokens(path)
    last = "A" if token[-1] != "A" else "B"
    mixed = f"relight_{other.split('_')[1]}_{token.split('_', 2)[2]}"
    for wrong in ("", token[:-1], token[:-1] + last, token + "A", token.upper(), mixed, token + "\n", "relight_"):
        assert door.find(wrong) is None, wrong
    assert door.find(token) is not None


def test_a_token_that_was_taken_away_holds_no_longer(path: str) -> None:
    token = tokens.add(path, "li.wei", Role.APPROVER, NOW)
    door = Tokens(path)
    grant = door.find(token)
    assert grant is not None
    assert door.still(grant)
    tokens.remove(path, "li.wei")
    assert door.find(token) is None
    assert not door.still(grant)


def test_a_token_expires(path: str) -> None:
    token = tokens.add(path, "guest", Role.VIEWER, NOW, days=1)
    assert Tokens(path, lambda: NOW + 86_399).find(token) is not None
    assert Tokens(path, lambda: NOW + 86_400).find(token) is None


def test_a_viewer_may_less(path: str) -> None:
    viewer, approver = (Tokens(path).find(tokens.add(path, role.value, role, NOW)) for role in Role)
    assert viewer is not None
    assert approver is not None
    assert [viewer.may(Role.VIEWER), viewer.may(Role.APPROVER)] == [True, False]
    assert [approver.may(Role.VIEWER), approver.may(Role.APPROVER)] == [True, True]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o602])
def test_a_file_that_others_may_touch_lets_nobody_in(path: str, mode: int) -> None:
    token = tokens.add(path, "li.wei", Role.APPROVER, NOW)
    os.chmod(path, mode)
    with pytest.raises(UserError, match="chmod 600"):
        tokens.read_grants(path)
    assert Tokens(path).find(token) is None
    os.chmod(path, 0o600)
    assert Tokens(path).find(token) is not None


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"tokens": 1}', '{"tokens": [{"name": "x"}]}', "[" * 100_000])
def test_a_file_that_is_none_lets_nobody_in(path: str, content: str) -> None:
    token = tokens.add(path, "li.wei", Role.APPROVER, NOW)
    door = Tokens(path)
    assert door.find(token) is not None
    Path(path).write_text(content)
    with pytest.raises(UserError, match="no file of tokens"):
        tokens.read_grants(path)
    assert door.find(token) is None


def test_one_name_has_one_token(path: str) -> None:
    tokens.add(path, "ops", Role.VIEWER, NOW)
    with pytest.raises(UserError, match="token remove ops"):
        tokens.add(path, "ops", Role.APPROVER, NOW)
    with pytest.raises(UserError, match=r"there is no token of 'nobody'; these have one: ops$"):
        tokens.remove(path, "nobody")
    with pytest.raises(UserError, match="a name is"):
        tokens.add(path, "a\nb", Role.VIEWER, NOW)


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["relight", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def test_the_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: str) -> None:
    monkeypatch.setenv("RELIGHT_TOKENS", path)
    assert call(monkeypatch, capsys, "token", "list")[0] == 1
    for name in ("add", "list", "remove"):
        assert f"  relight token {name}" in call(monkeypatch, capsys, "token", name, "--help")[1].split("Example")[1]
    code, out, err = call(monkeypatch, capsys, "token", "add", "li.wei", "--role", "approver")
    assert (code, out.count("\n")) == (0, 1)
    assert "shown once" in err
    assert Tokens(path).find(out.strip()) is not None
    code, out, _ = call(monkeypatch, capsys, "token", "list")
    assert (code, out.split()[:2]) == (0, ["li.wei", "approver"])
    assert call(monkeypatch, capsys, "token", "remove", "li.wei")[0] == 0
    assert json.loads(Path(path).read_text())["tokens"] == []


def test_a_place_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    tokens.add(path, "ops", Role.VIEWER, NOW)
    code, out, err = call(monkeypatch, capsys, "console", "/no/such/place", "--tokens", path)
    assert (code, out) == (2, "")
    assert err == "relight: /no/such/place: there is no such folder. Give run directories, or folders of them\n"


# --- where it may stand --------------------------------------------------------------------------------------------


def test_nobody_could_come_in_without_tokens(path: str) -> None:
    with pytest.raises(UserError, match="relight token add"):
        serve.check(Where(("x",), tokens=path))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "login1", "127.0.0.1.example.org"])  # noqa: S104
def test_where_others_come_it_takes_tls_or_a_word(path: str, tmp_path: Path, host: str) -> None:
    tokens.add(path, "ops", Role.VIEWER, NOW)
    with pytest.raises(UserError, match="reads the tokens"):
        serve.check(Where(("x",), host, tokens=path))
    serve.check(Where(("x",), host, tokens=path, plain=True))
    key = tmp_path / "key.pem"
    key.write_text("")
    key.chmod(0o604)
    with pytest.raises(UserError, match="chmod 600"):
        serve.check(Where(("x",), host, tokens=path, cert="c", key=str(key)))
    key.chmod(0o600)
    serve.check(Where(("x",), host, tokens=path, cert="c", key=str(key)))
    with pytest.raises(UserError, match="go together"):
        serve.check(Where(("x",), host, tokens=path, cert="c"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_at_home_it_takes_tokens_alone(path: str, host: str) -> None:
    tokens.add(path, "ops", Role.VIEWER, NOW)
    serve.check(Where(("x",), host, tokens=path))


def test_a_certificate_that_is_none_is_told(path: str, tmp_path: Path) -> None:
    tokens.add(path, "ops", Role.VIEWER, NOW)
    for name in ("c", "k"):
        (tmp_path / name).write_text("no PEM")
        (tmp_path / name).chmod(0o600)
    where = Where(("x",), tokens=path, audit=str(tmp_path / "a"), cert=str(tmp_path / "c"), key=str(tmp_path / "k"))
    with pytest.raises(UserError, match="cannot start"):
        serve.server(where)


@pytest.mark.parametrize("given", ["1:2:3", "host:", "host:99999", "[::1", "host:x", ""])
def test_an_address_that_is_none_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    code, _, err = call(monkeypatch, capsys, "console", "--listen", given)
    assert (code, err.count("\n")) == (2, 1)
    assert "HOST:PORT" in err
