"""The lineage of a protect run: source, model and pool, and the version that it published."""

import contextlib
import uuid
from pathlib import Path

import pyarrow as pa

from pass_core.errors import PassError
from tasks.production.croissant import folder_columns
from tasks.production.history import open_target
from tasks.production.manifest import Manifest
from tasks.production.options import ProtectOptions, absolute
from tasks.production.troubles import public_place
from tasks.running.layout import Layout
from tasks.running.lineage import Happened, Lineage, LineageDataset
from tasks.sections.running import LineageConfig
from tasks.storage.files import json_digest


class Trace:
    """Sends the events of a protect run."""

    def __init__(self, options: ProtectOptions, run: str) -> None:
        self._options, config = options, LineageConfig()
        with contextlib.suppress(PassError):  # its defaults where the parameters are what is wrong
            config = options.load_config().lineage
        target = absolute(options.target)
        job = f"protect-{options.dataset}-{json_digest([options.dataset, target])[:8]}"  # one per target, as deployments are
        self._models = Layout(Path(options.models).resolve())  # as they are when the run starts
        self._source, self._target = public_place(absolute(options.source)), public_place(target)
        self._lineage = Lineage(job, config, Path(options.params).resolve().parent, uuid.UUID(run))

    def start(self) -> None:
        """Sends START."""
        self.end("START", None)

    def end(self, happened: Happened, manifest: Manifest | None, reason: str | None = None) -> None:
        """Sends how the run ended, with what it published."""
        if self._lineage.enabled:
            self._lineage.send(happened, self._inputs(manifest), [self._output(manifest)], reason)

    def _inputs(self, manifest: Manifest | None) -> list[LineageDataset]:
        found = [LineageDataset(place=self._source, columns={**manifest.schema, **manifest.added} if manifest else {})]
        layout, key = self._models, self._options.key
        judged = manifest.audit.get("digests", {}) if manifest else {}
        return found + [LineageDataset(place=str(layout.artefact(n, key)), version=judged.get(n)) for n in ("model", "pool")]

    def _output(self, manifest: Manifest | None) -> LineageDataset:
        """What is published; without its columns where they cannot be read now."""
        if manifest is None:
            return LineageDataset(place=self._target)
        columns: dict[str, str] = {}
        with contextlib.suppress(PassError, OSError, pa.ArrowException):
            target = open_target(self._options.target, self._options.state, self._options.target_format)
            schema = target.published_schema(manifest, {}, None)
            columns = {field.name: str(field.type) for field in schema or ()}
            columns |= dict.fromkeys(folder_columns(manifest), "string")
        receipts = manifest.partitions.values()
        files = [file for one in receipts for file in one.files]
        return LineageDataset(
            place=self._target,
            version=str(manifest.version),
            columns=columns,
            rows=sum(one.rows for one in receipts),
            files=len(files),
            bytes=sum(file.bytes for file in files),
        )
