"""Draw keys: 256 bits from the environment, a private file or a secret store. Only a key's id is ever written."""

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from pass_core.channel.draws import KEY_BYTES, experiment_key, key_id
from pass_core.errors import ConfigError

KEY, KEY_FILE = "PASS_DRAW_KEY", "PASS_DRAW_KEY_FILE"  # environment: the key in hex, or the path of its file
GUESSABLE_SEEDS = 2**16  # whose keys are rejected: anyone can try them
ADVICE = "make one with `pass-pipeline lake key new FILE`"


def new_key(path: Path) -> str:
    """Writes a new key that only its owner can read, and returns its id; never replaces a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path}: expected no file, found one: a lost key cannot be restored; choose another name") from None
    key = secrets.token_bytes(KEY_BYTES)
    with os.fdopen(descriptor, "w") as file:
        file.write(key.hex() + "\n")
        file.flush()
        os.fsync(descriptor)
    return key_id(key)


def find_key(file: Path | None, environment: Mapping[str, str], given: str | None = None) -> bytes:
    """The draw key: `given` by a secret store, else from a file, else from the environment; rejects one that others can guess."""
    if given is not None:
        return _parsed(given, "the secret")
    if file is None and KEY in environment:
        return _parsed(environment[KEY], KEY)
    if file is None and KEY_FILE in environment:
        file = Path(environment[KEY_FILE])
    if file is None:
        raise ConfigError(f"draw key: expected {KEY}, {KEY_FILE} or --key-file, found none; {ADVICE}")
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if not stat.S_ISREG(mode) or mode & 0o077:
                raise ConfigError(f"{file}: expected a file that only its owner can read, found {mode & 0o777:o}; chmod 600 it")
            return _parsed(opened.read(1024).decode(errors="replace"), str(file))
    except FileNotFoundError:
        raise ConfigError(f"{file}: expected a key file, found none; {ADVICE}") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read as a key file ({error.strerror}); {ADVICE}") from None


def _parsed(text: str, place: str) -> bytes:
    """Messages never repeat the text: it may be a key with one digit missing."""
    text = text.strip()
    if text.lstrip("-").isdigit() and len(text) < 2 * KEY_BYTES:
        raise ConfigError(f"{place}: expected a 256-bit key, found a number: a seed can be guessed; {ADVICE}")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        raise ConfigError(f"{place}: expected {2 * KEY_BYTES} hexadecimal digits, found something else; {ADVICE}") from None
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{place}: expected a key of {8 * KEY_BYTES} bits, found {8 * len(key)}; {ADVICE}")
    if len(set(key)) < KEY_BYTES // 4 or any(key == experiment_key(seed) for seed in range(GUESSABLE_SEEDS)):
        raise ConfigError(f"{place}: expected a random key, found one that can be guessed; {ADVICE}")
    return key
