"""Notes of what was read of the source for every published partition, so that a change is noticed."""

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pass_core.errors import DataError
from tasks.production.file_states import State
from tasks.production.manifest import Manifest
from tasks.production.source_files import Notes, SourceFiles, notes_digest
from tasks.storage.files import read_json, sync_folder, write_json


class Inputs:
    """Notes of the inputs of published partitions, in a private folder."""

    def __init__(self, folder: Path, source: SourceFiles, *, rehash: bool) -> None:
        """`rehash` reads all bytes again, whatever the states are."""
        self.folder, self._source, self._rehash = folder, source, rehash
        self._index: dict[str, str] | None = None
        self._renewed: dict[str, tuple[Notes, Notes]] = {}  # of partitions whose files were written without a change

    def changed(self, listed: Mapping[str, Mapping[str, State | None]], manifest: Manifest | None) -> set[str]:
        """Published partitions whose files (`listed` with their states) have other bytes than were read."""
        published = manifest.partitions if manifest else {}
        return {n for n in listed if n in published and not self._unchanged(n, listed[n], published[n].input_digest)}

    def _unchanged(self, name: str, states: Mapping[str, State | None], digest: str) -> bool:
        """Whether a partition, whose files have these states, is still what was read, by the digest in its receipt."""
        table, recordings = noted = self._load(name)
        numbers = {path: self._source.number(path) for path in states}
        unread = {
            path: state
            for path, state in states.items()
            if self._rehash or table.get(numbers[path], (None,))[0] != self._source.state_word(state)
        }
        read = self._source.note_table(unread)
        table = {number: read.get(number) or table[number] for number in numbers.values()}
        recordings = self._now(recordings, reread=self._rehash)
        if notes_digest(table, recordings) != digest:
            return False
        if (table, recordings) != noted:
            self._renewed[name] = table, recordings
        return True

    def current(self, recordings: Notes) -> bool:
        """Whether recordings have not changed since they were read."""
        return notes_digest({}, self._now(recordings, reread=False)) == notes_digest({}, recordings)

    def save(self, name: str, table: Notes, recordings: Notes) -> None:
        """Keeps the notes of a partition that is published."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(self._path(name), {"table": table, "recordings": recordings}, sync=True)

    def settle(self) -> None:
        """Keeps the states of files that were written without a change."""
        for name, (table, recordings) in self._renewed.items():
            self.save(name, table, recordings)
        if self.folder.exists():
            sync_folder(self.folder)
        self._renewed = {}

    def _now(self, recordings: Notes, *, reread: bool) -> Notes:
        if recordings and self._index is None:
            self._index = self._source.index()  # once: there may be a million recordings
        return self._source.renewed(recordings, self._index or {}, reread=reread) if recordings else {}

    def _load(self, name: str) -> tuple[Notes, Notes]:
        """The notes of a partition; none where they are lost or damaged: then its files are read again."""
        with contextlib.suppress(DataError, KeyError, TypeError, ValueError, AttributeError):
            return notes_of(read_json(self._path(name)))
        return {}, {}

    def _path(self, name: str) -> Path:
        return self.folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.json"


def notes_of(raw: Mapping[str, Mapping[str, Iterable[str]]]) -> tuple[Notes, Notes]:
    """Notes of table and recordings as JSON holds them."""
    table, recordings = ({number: (s, c) for number, (s, c) in raw[kind].items()} for kind in ("table", "recordings"))
    return table, recordings
