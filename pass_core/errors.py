"""Everything the project raises on purpose.

PassError
├── ConfigError          a parameter is unknown, of the wrong type or out of range
├── DataError            a file or table is not what it should be
│   ├── SchemaMismatch       columns or types differ
│   ├── ValidationFailed     a data expectation does not hold
│   └── ChecksumMismatch     bytes differ from what was recorded
├── MethodError          an obfuscation method cannot work on this input
├── AuditError           an audit cannot be computed
│   └── AuditFailed          an audit did not pass, and so nothing was published
├── TransientError       something outside failed: trying again may help
│   ├── StorageError         a disk is full, read-only or busy
│   └── TrackingError        the MLflow store cannot be used
└── StageFailed          a pipeline stage ended with an error

A message says what was expected, what was found and what to do, and never holds a value of a record.
"""


class PassError(Exception):
    """Base of all errors that are shown to the user as one line."""


class ConfigError(PassError, ValueError):  # a ValueError, so that the config parser adds the parameter's path to it
    """A parameter is unknown, of the wrong type or out of range."""


class DataError(PassError):
    """A file or table is not what it should be."""


class SchemaMismatch(DataError):
    """Columns or types of a table differ from what is expected."""


class ValidationFailed(DataError):
    """A data expectation does not hold."""


class ChecksumMismatch(DataError):
    """Bytes differ from the digest recorded for them."""


class MethodError(PassError):
    """An obfuscation method cannot work on this input."""


class AuditError(PassError):
    """An audit cannot be computed."""


class AuditFailed(AuditError):
    """An audit did not pass: what it looked at is not published."""


class TransientError(PassError):
    """Something outside (a disk, a server) failed: trying again may help."""


class StorageError(TransientError):
    """A disk is full, read-only, or another run holds it."""


class TrackingError(TransientError):
    """The MLflow store cannot be used."""


class StageFailed(PassError):
    """A pipeline stage ended with an error."""
