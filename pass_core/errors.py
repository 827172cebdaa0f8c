"""Everything the project raises on purpose.

A message says what was expected, what was found and what to do, and never holds a value of a record.
Each class has the exit code with which `pass-pipeline` and `python -m tasks` end: 2 error, 3 failed audit,
4 published without some partitions, 75 try again.
"""

from typing import ClassVar

EXIT_ERROR = 2
EXIT_FAILED_AUDIT = 3
EXIT_QUARANTINED = 4  # published, but without some partitions
EXIT_TRANSIENT = 75  # EX_TEMPFAIL of sysexits.h: something outside failed, and another attempt may succeed
EXIT_INTERRUPTED = 130  # as shells report a process that Ctrl-C ended


class PassError(Exception):
    """Base of all errors that are shown to the user as one line."""

    exit_code: ClassVar[int] = EXIT_ERROR


class ConfigError(PassError, ValueError):  # a ValueError, so that the config parser adds the parameter's path to it
    """A parameter is unknown, of the wrong type or out of range."""


class DrawsRefused(ConfigError):
    """Records would be drawn more often than is allowed: an attacker could average their draws."""


class DataError(PassError):
    """A file or table is not what it should be."""


class SchemaMismatch(DataError):
    """Columns or types of a table differ from what is expected."""


class SchemaPaused(SchemaMismatch):
    """Columns differ, and nothing may be published until somebody has looked (protect.on_schema_change: pause)."""


class ValidationFailed(DataError):
    """A data expectation does not hold."""


class ChecksumMismatch(DataError):
    """Bytes differ from the digest recorded for them."""


class PartitionsQuarantined(DataError):
    """Some partitions of a lake could not be protected; the others are published."""

    exit_code = EXIT_QUARANTINED


class MethodError(PassError):
    """An obfuscation method cannot work on this input."""


class AuditError(PassError):
    """An audit cannot be computed."""


class AuditFailed(AuditError):
    """An audit did not pass: the audited release is not published."""

    exit_code = EXIT_FAILED_AUDIT


class DriftFound(AuditFailed):
    """New records differ from those that the audit examined; nothing else speaks against them."""


class TransientError(PassError):
    """Something outside (a disk, a server) failed: trying again may help."""

    exit_code = EXIT_TRANSIENT


class StorageError(TransientError):
    """A disk is full, read-only, or another run holds it."""


class TrackingError(TransientError):
    """The MLflow store cannot be used."""


class StageFailed(PassError):
    """A pipeline stage ended with an error."""
