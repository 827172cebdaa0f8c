"""Draw keys: made, found, rejected, never printed."""

import stat
from pathlib import Path

import pytest

from pass_core.channel.draws import experiment_key, key_id
from pass_core.errors import ConfigError
from tasks.production.draw_key import KEY, KEY_FILE, find_key, new_key
from tests.tasks.production.lakes import DRAW_KEY


def test_a_new_key_is_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "draw"
    made = new_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key_id(find_key(path, {})) == made
    assert find_key(None, {KEY_FILE: str(path)}) == find_key(path, {})
    with pytest.raises(ConfigError, match="choose another name"):
        new_key(path)
    assert new_key(tmp_path / "other") != made


def test_sources_of_a_key() -> None:
    assert find_key(None, {KEY: DRAW_KEY.hex()}) == DRAW_KEY
    assert find_key(None, {}, DRAW_KEY.hex() + "\n") == DRAW_KEY
    with pytest.raises(ConfigError, match="found none"):
        find_key(None, {})


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o666])
def test_a_file_that_others_can_read_is_rejected(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    new_key(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="only its owner can read"):
        find_key(path, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("7", "a seed can be guessed"),
        ("-12345", "a seed can be guessed"),
        ("ab" * 16, "found 128"),
        ("ab" * 33, "found 264"),
        ("not hexadecimal", "64 hexadecimal digits"),
        ("", "found 0"),
        ("00" * 32, "can be guessed"),
        (experiment_key(7).hex(), "can be guessed"),
        (experiment_key(40_000).hex(), "can be guessed"),
    ],
)
def test_what_is_no_key_is_rejected_and_not_repeated(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        find_key(None, {KEY: text})
    assert len(text) < 3 or text not in str(error.value)
