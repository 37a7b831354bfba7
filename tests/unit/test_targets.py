"""Who is told: URLs hold secrets, so they stand in private files and nowhere else."""

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.commands.run import command, say_whom_to_tell
from supervisor.errors import UserError
from supervisor.settings import Settings, freeze, read_settings
from supervisor.telling import targets
from supervisor.telling.targets import Targets, gather, leave, must_be_understood, read

SECRET = "XoXb-5ecret"  # noqa: S105
WHOLE = f"""[notify]
command = ["page", "--now"]
urls = ["slack://{SECRET}/B/C", "mailtos://u:{SECRET}@example.org"]
escalate_urls = ["tgram://{SECRET}/1"]
link = "https://ops:8440"
heartbeat_url = "https://beat.example/{SECRET}"
guard_heartbeat_url = "https://beat.example/{SECRET}/guard"
heartbeat_s = 30
"""


def written(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_all_of_it_is_read_left_for_the_run_and_read_there(tmp_path):
    config = written(tmp_path / "relight.toml", WHOLE)
    whom = gather(read_settings(config).notify, config)
    assert whom.urls == (f"slack://{SECRET}/B/C", f"mailtos://u:{SECRET}@example.org")
    assert (whom.command, whom.link, whom.heartbeat_s) == (("page", "--now"), "https://ops:8440", 30)
    leave(str(tmp_path), whom)
    assert stat.S_IMODE(os.stat(tmp_path / "notify.json").st_mode) == 0o600
    assert read(str(tmp_path)) == whom
    assert whom.any
    assert not Targets().any
    assert list(whom.named(escalates=False)) == ["command", "slack (urls 1)", "mailtos (urls 2)"]
    assert list(whom.named(escalates=True))[3:] == ["tgram (escalate_urls 1)"]


def test_a_secret_is_in_no_repr_and_not_in_settings_json(tmp_path):
    config = written(tmp_path / "relight.toml", WHOLE)
    settings = read_settings(config)
    freeze(str(tmp_path), settings)
    assert SECRET not in (tmp_path / "settings.json").read_text()
    assert "page" in (tmp_path / "settings.json").read_text()
    assert SECRET not in repr(settings)
    assert SECRET not in repr(gather(settings.notify, config))
    assert not [name for name in gather(settings.notify, config).named(escalates=True) if SECRET in name]


def test_the_secrets_may_stand_in_a_file_of_their_own(tmp_path):
    beside = written(tmp_path / "secret.toml", f'urls = ["slack://{SECRET}/B/C"]\n')
    config = written(tmp_path / "relight.toml", f'[notify]\nurls_file = "{beside}"\nlink = "http://x"\n', 0o644)
    assert gather(read_settings(config).notify, config).urls == (f"slack://{SECRET}/B/C",)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_with_secrets_that_others_can_read_is_refused(mode, tmp_path):
    beside = written(tmp_path / "secret.toml", f'urls = ["slack://{SECRET}/B/C"]\n', mode)
    plain = written(tmp_path / "plain.toml", f'[notify]\nurls_file = "{beside}"\n', 0o644)
    own = written(tmp_path / "relight.toml", WHOLE, mode)
    for config in (plain, own):
        with pytest.raises(UserError, match="others can read it") as told:
            gather(read_settings(config).notify, config)
        assert SECRET not in str(told.value)
        assert "chmod 600" in str(told.value)


def test_without_secrets_anybody_may_read_the_settings(tmp_path):
    config = written(tmp_path / "relight.toml", '[notify]\ncommand = ["page"]\n', 0o644)
    assert gather(read_settings(config).notify, config) == Targets(("page",))


@pytest.mark.parametrize(
    "text",
    [
        f'[notify]\nurls = "slack://{SECRET}"\n',
        f'[notify]\nurls = ["{SECRET}"]\n',
        f'[notify]\nescalate_urls = [["{SECRET}"]]\n',
        f'[notify]\nheartbeat_url = "{SECRET}"\n',
        f'[notify]\nheartbeat_url = "ftp://{SECRET}"\n',
        f'[notify]\nguard_heartbeat_url = ["{SECRET}"]\n',
        f'[notify]\nurls = {{a = "{SECRET}"}}\n',
        f'[notify]\nheartbeat_url = "https://{SECRET}{"x" * 2000}"\n',
    ],
)
def test_a_mistake_is_told_without_the_secret(text, tmp_path):
    config = written(tmp_path / "relight.toml", text)
    with pytest.raises(UserError, match="notify") as told:
        gather(read_settings(config).notify, config)
    assert SECRET not in str(told.value)


def test_a_mistake_elsewhere_is_still_told_with_its_value(tmp_path):
    with pytest.raises(UserError, match="ftp://x"):
        read_settings(written(tmp_path / "relight.toml", '[notify]\nlink = "ftp://x"\n'))


def test_a_gateway_that_apprise_does_not_know_is_refused_at_the_start(tmp_path):
    config = written(tmp_path / "relight.toml", f'[notify]\nurls = ["json://127.0.0.1", "slak://{SECRET}"]\n')
    with pytest.raises(UserError) as told:
        must_be_understood(gather(read_settings(config).notify, config))
    assert str(told.value) == "notify: slak (urls 2): apprise does not understand this URL"
    run = CliRunner().invoke(command, ["--config", config, "--run-dir", str(tmp_path / "run"), "--", "true"])
    assert "slak (urls 2)" in str(run.exception)
    assert not (tmp_path / "run" / "notify.json").exists()


def test_a_run_that_is_taken_over_as_it_was_keeps_whom_it_tells(tmp_path):
    """The frozen settings hold no secrets: what they say of it would take everybody out."""
    left = Targets(link="https://ops:8440")
    leave(str(tmp_path), left)
    say_whom_to_tell(str(tmp_path), Settings(), None, as_it_was=True)
    assert read(str(tmp_path)) == left
    say_whom_to_tell(str(tmp_path), Settings(), None, as_it_was=False)
    assert read(str(tmp_path)) == Targets()


@pytest.mark.parametrize("raw", ["", "[]", "{}", '{"command": 1}', '{"urls": []}'])
def test_what_was_left_and_cannot_be_believed_is_nobody(raw, tmp_path):
    written(tmp_path / targets.FILE, raw)
    assert read(str(tmp_path)) is None


def test_what_others_could_have_changed_is_not_believed(tmp_path):
    leave(str(tmp_path), Targets(("page",)))
    assert read(str(tmp_path)) == Targets(("page",))
    (tmp_path / targets.FILE).chmod(0o660)
    assert read(str(tmp_path)) is None


def test_settings_keep_what_is_not_secret(tmp_path):
    dumped = json.loads(Settings.model_validate({"notify": {"link": "https://x"}}).model_dump_json())
    assert dumped["notify"]["link"] == "https://x"
    assert not {"urls", "escalate_urls", "heartbeat_url", "guard_heartbeat_url"} & set(dumped["notify"])
