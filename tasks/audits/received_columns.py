"""Columns and keys of a released table as numbers per row: values, how they are written, and what may be hidden in them."""

import itertools
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pass_core.data import IntArray
from pass_core.errors import SchemaMismatch
from tasks.audits.received_numbers import Numbers, bits_of, decimals, lowest_bits, stored_numbers
from tasks.lakes.open import plain

_DAYS, _HOURS = ("month", "day", "day_of_week"), ("hour", "minute", "second")
_TIMES = {
    pa.types.lib.Type_DATE32: _DAYS, pa.types.lib.Type_DATE64: _DAYS, pa.types.lib.Type_TIMESTAMP: (*_DAYS, *_HOURS),
    pa.types.lib.Type_TIME32: _HOURS, pa.types.lib.Type_TIME64: _HOURS,
}  # fmt: skip
MODULI = range(2, 9)
VALUE_MODULI = (3, 5, 7)  # of whole numbers; remainders by two are their lowest bits
ENDS = 8  # characters at each end of a key that are read one by one
MOST_TOKENS = 64  # words, and pairs of neighbouring words, of a column of text
VOCABULARY_ROWS = 20_000  # in which they are sought
RARE = 0.005  # a word in fewer rows, or missing in fewer, is not read
COUNTED = {
    "upper-case letters": r"\p{Lu}", "lower-case letters": r"\p{Ll}", "digits": r"\p{Nd}",
    "spaces": r"[\s\p{Z}]", "double spaces": r"\s\s", "punctuation marks": r"[^\p{L}\p{M}\p{N}\p{Z}\p{C}]",
    "marks and invisible characters": r"[\p{M}\p{Cf}\p{Cc}]", "characters outside ASCII": r"[^\x00-\x7F]",
}  # fmt: skip


def value_ranks(column: pa.Array, name: str) -> IntArray:
    """Ranks among the distinct values; a missing value is last."""
    column = plain(column)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    try:
        distinct = pc.unique(column).drop_null()
        distinct = distinct.take(pc.sort_indices(distinct))
        indices = pc.fill_null(pc.index_in(column, value_set=distinct), len(distinct))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise SchemaMismatch(
            f"column {name!r}: expected text, numbers or dates beside the payload, found {column.type}; do not release it"
        ) from None
    return np.asarray(indices.to_numpy(zero_copy_only=False).astype(np.int64))


def key_numbers(keys: pa.Array) -> Numbers:
    """Rank, the number at the end of a key with its remainders, and single characters."""
    yield "rank", value_ranks(keys, "key")
    texts = keys.cast(pa.string())
    backwards = pc.utf8_reverse(texts)
    digits = pc.struct_field(pc.extract_regex(texts, r"(?P<digits>[0-9]{1,15})$"), "digits")
    numbers = np.nan_to_num(digits.cast(pa.float64()).to_numpy(zero_copy_only=False), nan=-1.0)
    yield "number at the end", numbers
    yield "last digit", numbers % 10
    for modulus in MODULI:
        yield f"number modulo {modulus}", numbers % modulus
    for place in range(ENDS):
        yield f"character {place + 1}", value_ranks(pc.utf8_slice_codeunits(texts, place, place + 1), "key")
        yield f"character {place + 1} from the end", value_ranks(pc.utf8_slice_codeunits(backwards, place, place + 1), "key")


def value_numbers(column: pa.Array, name: str) -> Numbers:
    """The rank of a value, whether it is missing; of numbers the lowest bits, decimals and remainders; of times their parts."""
    yield f"value of {name}", value_ranks(column, name)
    yield f"{name} is missing", column.is_null().to_numpy(zero_copy_only=False)
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        numbers = stored_numbers(column)
        yield from lowest_bits(bits_of(numbers), name)
        yield from decimals(numbers.astype(np.float64), name)
    if pa.types.is_integer(kind):
        for modulus in VALUE_MODULI:
            yield f"{name} modulo {modulus}", numbers % modulus
    for part in _TIMES.get(kind.id, ()):
        found = getattr(pc, part)(column).cast(pa.int64()).fill_null(-1)
        yield f"{part.replace('_', ' ')} of {name}", found.to_numpy(zero_copy_only=False)


def text_numbers(column: pa.Array, name: str) -> Numbers:
    """How a text is written."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return
    texts = column.fill_null("")
    yield f"characters of {name}", pc.utf8_length(texts)
    yield f"bytes of {name}", pc.binary_length(texts)
    for what, pattern in COUNTED.items():
        yield f"{what} of {name}", pc.count_substring_regex(texts, pattern)
    for what, trimmed in (("start", pc.utf8_ltrim_whitespace(texts)), ("end", pc.utf8_rtrim_whitespace(texts))):
        yield f"space at the {what} of {name}", pc.not_equal(trimmed, texts).to_numpy(zero_copy_only=False)
    yield f"first character of {name}", value_ranks(pc.utf8_slice_codeunits(texts, 0, 1), name)
    yield f"last character of {name}", value_ranks(pc.utf8_slice_codeunits(pc.utf8_reverse(texts), 0, 1), name)
    for form in ("NFC", "NFD"):
        same = pc.equal(pc.utf8_normalize(texts, form=form), texts)
        yield f"{name} is in Unicode form {form}", same.to_numpy(zero_copy_only=False)
    yield from _words(texts, name)


def _words(texts: pa.Array, name: str) -> Numbers:
    """Whether a row has a word, or two words in this order; by number, because a report shall not repeat what people wrote."""
    padding = pa.scalar(" ")
    apart = pc.replace_substring_regex(texts, r"[^\p{L}\p{M}\p{N}]+", " ")
    spaced = pc.binary_join_element_wise(padding, apart, padding, "")
    rows = spaced.slice(0, VOCABULARY_ROWS).to_pylist()
    counts: Counter[str] = Counter()
    for row in rows:
        words = row.split()
        counts.update({*words, *(" ".join(pair) for pair in itertools.pairwise(words))})
    shares = {word: count / len(rows) for word, count in counts.items()}
    telling = sorted((word for word, p in shares.items() if RARE <= p <= 1 - RARE), key=lambda w: (abs(shares[w] - 0.5), w))
    for k, word in enumerate(telling[:MOST_TOKENS]):
        yield f"word or pair of words {k + 1} of {name}", pc.match_substring(spaced, f" {word} ").to_numpy(zero_copy_only=False)
