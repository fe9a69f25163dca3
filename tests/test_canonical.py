"""The fast writers of canonical JSON and of the chain write, byte for byte, what the plain ones do."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.canonical import chain, dumps
from ledger.errors import EventError

numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=12) | st.text(st.characters(max_codepoint=0x7F), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=500, deadline=None)
@given(values)
def test_it_is_rfc_8785(value: Any) -> None:
    assert dumps(value) == rfc8785.dumps(value).decode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.0, "4"), (-0.0, "0"), (1e16, "10000000000000000"), (1e-7, "1e-7"), (0.0001, "0.0001"), (1e21, "1e+21"),
        (123456789.125, "123456789.125"), (5e-324, "5e-324"), ({"\ufb33": 1, "\U0001f600": 2}, '{"😀":2,"\ufb33":1}'),
        ("\x7f\u2028\x1f", '"\x7f\u2028\\u001f"'),
    ],
)  # fmt: skip
def test_numbers_and_keys_as_the_rfc_has_them(value: Any, text: str) -> None:
    assert dumps([value]) == f"[{text}]"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, "\ud800", {1: 2}, b"x"])
def test_what_json_cannot_carry_is_an_error(value: Any) -> None:
    with pytest.raises(EventError, match="cannot carry"):
        dumps({"a": value})


@settings(max_examples=300, deadline=None)
@given(st.lists(st.none() | st.integers(-(2**63), 2**64) | st.text(st.characters(), max_size=20), max_size=14))
def test_the_chain_is_the_hash_of_one_json_array(columns: list[Any]) -> None:
    text = json.dumps(["before", *columns], ensure_ascii=False, separators=(",", ":"))
    assert chain("before", columns) == hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
