"""No protection: the released record is the original. The control on which every attack must succeed."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from pass_core.checks import NoSettings
from pass_core.data import FloatArray, Records, Rng
from pass_core.methods.base import RecordMaker, ReleaseContext


def unchanged(records: FloatArray, _: Rng) -> FloatArray:
    """The records themselves."""
    return records


class Identity:
    """No protection."""

    summary: ClassVar[str] = "no protection: the control that every attack must break"
    config_type: ClassVar[type[NoSettings]] = NoSettings

    def fit(self, data: Records, **_: object) -> RecordMaker:
        return RecordMaker(unchanged, {})

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: NoSettings) -> RecordMaker:
        return RecordMaker(unchanged, {})


METHOD = Identity()
