"""The object that names a target's live version. It is replaced only while it is what its writer has read: compare and swap."""

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from pass_core.errors import ConfigError, DataError, StorageError
from tasks.storage.files import json_digest, read_json, sync_file, write_json

LOST = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"}  # the pointer is another one by now


class Pointer(Protocol):
    """A JSON object with a tag that changes whenever it is replaced."""

    def read(self) -> tuple[dict[str, Any] | None, str]:
        """The object and its tag; None before it is made."""

    def replace(self, value: dict[str, Any], tag: str) -> bool:
        """Replaces the object with this tag; False when it is another one by now."""

    def check(self) -> None:
        """Raises a StorageError unless the store can be written and compares tags."""


def open_pointer(url: str, files: pafs.FileSystem, path: str) -> Pointer:
    """The pointer at a URL; stores without conditional writes are refused, since two writers could not be kept apart there."""
    if isinstance(files, pafs.LocalFileSystem):
        return FilePointer(Path(path))
    if url.startswith("s3://"):
        return S3Pointer(url)
    scheme = url.split("://", 1)[0]
    expected = f"expected s3:// or a folder for a Parquet target, which needs conditional writes, found {scheme}://"
    raise ConfigError(f"{url}: {expected}; choose another target, or --target-format delta where Delta supports it")


class FilePointer:
    """A file, for the holder of the target's lock."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[dict[str, Any] | None, str]:
        value = dict(read_json(self._path)) if self._path.exists() else None
        return value, json_digest(value)

    def replace(self, value: dict[str, Any], tag: str) -> bool:
        if self.read()[1] != tag:
            return False
        write_json(self._path, value)
        sync_file(self._path)
        return True

    def check(self) -> None:
        """The lock was just made beside it."""


class S3Pointer:
    """An object of a store with S3's conditional writes: If-Match, If-None-Match."""

    def __init__(self, url: str) -> None:
        import botocore.session
        from botocore.config import Config

        parts = urlsplit(url)
        if parts.query or "@" in parts.netloc:
            raise ConfigError("target: expected credentials and endpoint in AWS_... variables, found some in the URL; move them")
        self._url, self._at = url, {"Bucket": parts.netloc, "Key": parts.path.lstrip("/")}
        own = any(name in os.environ for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"))  # another vendor's
        config = Config(s3={"addressing_style": "path" if own else "auto"}, request_checksum_calculation="when_required")
        region = os.environ.get("AWS_REGION")
        self._client = botocore.session.get_session().create_client("s3", region_name=region, config=config)

    def read(self) -> tuple[dict[str, Any] | None, str]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            found = self._client.get_object(**self._at)
            return dict(json.loads(found["Body"].read())), str(found["ETag"])
        except ClientError as error:
            if _code(error) == "NoSuchKey":
                return None, ""
            raise StorageError(f"{self._url}: cannot be read now ({_code(error)}); check access, then run again") from None
        except BotoCoreError as error:
            raise StorageError(f"{self._url}: cannot be read now ({type(error).__name__}); run again") from None
        except (ValueError, TypeError):
            raise DataError(f"{self._url}: expected JSON, found a damaged file; restore it") from None

    def replace(self, value: dict[str, Any], tag: str) -> bool:
        body = json.dumps(value, indent=2, ensure_ascii=False).encode()
        if self._put(self._at["Key"], body, {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}):
            return True
        return self.read()[0] == value  # a repetition whose first answer was lost finds its own object

    def check(self) -> None:
        probe = f"{self._at['Key']}.{secrets.token_hex(4)}.check"
        made = [self._put(probe, b"{}", {"IfNoneMatch": "*"}) for _ in range(2)]
        with contextlib.suppress(Exception):  # a store that was only partly written to says so below
            self._client.delete_object(Bucket=self._at["Bucket"], Key=probe)
        if made != [True, False]:
            expected = "expected a store with conditional writes (If-None-Match), found one that ignores them"
            raise ConfigError(f"{self._url}: {expected}; update the store, or choose another target")

    def _put(self, key: str, body: bytes, condition: dict[str, str]) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._client.put_object(Bucket=self._at["Bucket"], Key=key, Body=body, ContentType="application/json", **condition)
        except ClientError as error:
            if _code(error) in LOST:
                return False
            found = f"cannot be written ({_code(error)})"
            raise StorageError(f"{self._url}: {found}; give this run the right to write, then run again") from None
        except BotoCoreError as error:
            raise StorageError(f"{self._url}: cannot be written now ({type(error).__name__}); run again") from None
        return True


def _code(error: Any) -> str:
    return str(error.response["Error"]["Code"])
