"""The files of a source, as notes show them: keyed numbers only.

Names of files may be private, and whoever knows all but one value of a file could guess that value by the file's digest.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow.fs as pafs

from pass_core.channel.draws import keyed_words
from tasks.production.file_states import State, content_digests, file_state, file_states
from tasks.storage.files import json_digest

Notes = dict[str, tuple[str, str]]  # number of a file -> its state and its content, under the key
NONE = ""  # the content of a file that does not exist or cannot be read


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files of a source: those of the table, by their path below it, and recordings that a column of paths names."""

    files: pafs.FileSystem
    folder: str
    versioned: bool  # files of a Delta table: they never change under their name
    key: bytes = field(repr=False)

    def number(self, path: str) -> str:
        """The number of a file in notes and messages."""
        return file_number(self.key, path)

    def state(self, path: str) -> State | None:
        """What changes whenever a recording is written."""
        return file_state(self.files, self._whole(path))

    def states(self, paths: Iterable[str]) -> dict[str, State | None]:
        """The states of files of the table."""
        if self.versioned:
            return {path: [] for path in paths}
        return {self._below(path): state for path, state in file_states(self.files, map(self._whole, paths)).items()}

    def note_table(self, states: Mapping[str, State | None]) -> Notes:
        """Notes of files of the table in these states; reads their bytes, unless the store names these by an ETag."""
        named = {path: str(state[-1]) for path, state in states.items() if state and isinstance(state[-1], str) and state[-1]}
        named |= dict.fromkeys(states, "versioned") if self.versioned else {}
        read = content_digests(self.files, [self._whole(path) for path in states if path not in named])
        contents = {path: named.get(path) or read[self._whole(path)] for path in states}
        return {self.number(path): (self.state_word(states[path]), self.content_word(contents[path])) for path in states}

    def index(self) -> dict[str, str]:
        """Number -> path of all files of the source."""
        selector = pafs.FileSelector(self.folder, recursive=True, allow_not_found=True)
        found = [self._below(info.path) for info in self.files.get_file_info(selector) if info.type == pafs.FileType.File]
        return dict(zip(self._words("source file", found), found, strict=True))

    def renewed(self, noted: Notes, index: Mapping[str, str], *, reread: bool) -> Notes:
        """Notes of these recordings as they are now; only those whose state differs are read."""
        known = {number: index[number] for number in noted if number in index}
        raw = file_states(self.files, map(self._whole, known.values()))
        states = {number: self.state_word(raw[self._whole(path)]) for number, path in known.items()}
        changed = [number for number in known if reread or states[number] != noted[number][0]]
        read = content_digests(self.files, [self._whole(known[number]) for number in changed])
        contents = {number: self.content_word(read[self._whole(known[number])]) for number in changed}
        gone = (self.state_word(None), NONE)
        return {n: (states[n], contents.get(n, content)) if n in known else gone for n, (_, content) in noted.items()}

    def state_word(self, state: State | None) -> str:
        return self._words("source state", [json.dumps(state)])[0]

    def content_word(self, digest: str | None) -> str:
        return self._words("source content", [digest])[0] if digest else NONE

    def _words(self, purpose: str, texts: Iterable[str]) -> list[str]:
        return [f"{word:016x}" for word in keyed_words(self.key, purpose, (), texts).tolist()]

    def _whole(self, path: str) -> str:
        return f"{self.folder}/{path}" if path else self.folder

    def _below(self, path: str) -> str:
        return path.removeprefix(self.folder).lstrip("/")


def file_number(key: bytes, path: str) -> str:
    """The number of a source file in notes and messages: without the key, it reveals nothing about the path."""
    return f"{int(keyed_words(key, 'source file', (), [path])[0]):016x}"


def notes_digest(table: Notes, recordings: Notes) -> str:
    """Names what a partition was made from: which files, with which bytes."""
    return json_digest([sorted((number, content) for number, (_, content) in notes.items()) for notes in (table, recordings)])
