"""The pieces of the client over HTTP: events as they come in pieces, and JSON that is nested deeply."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client._events import Event, Events
from holdfast.wire.nesting import DEEP, cut_deep

STREAM = (
    "retry: 1500\n\n"
    ": hb\n\n"
    'event: message\nid: 7\ndata: {"a": "x\u2028y\u0085z"}\n\n'
    "data: one\ndata: two\n\n"
    "event: end\r\ndata: {}\r\n\r\n"
    "event: message\ndata: never finished\n"
).encode()
EVENTS = [
    Event("message", '{"a": "x\u2028y\u0085z"}'.encode()),
    Event("message", b"one\ntwo"),
    Event("end", b"{}"),
]


@given(st.lists(st.integers(0, len(STREAM))))
def test_events_are_the_same_however_they_are_cut(places: list[int]) -> None:
    cuts = [0, *sorted(places), len(STREAM)]
    events = Events()

    found = [
        event
        for start, end in pairwise(cuts)
        for event in events.feed(STREAM[start:end])
    ]

    assert found == EVENTS
    assert events.retry == 1.5


def nested(levels: int) -> str:
    """A value with so many brackets around it."""
    return "[" * levels + "1" + "]" * levels


@pytest.mark.parametrize("level", [1, 3])
def test_deep_values_are_cut_out_and_all_others_stay(level: int) -> None:
    deep, flat = nested(DEEP + 1), nested(DEEP)
    record = f'{{"a": {deep}, "b": {flat}, "c": "]}}]\\"[", "d": {{"e": {deep}}}, "f": 1}}'
    document = record if level == 1 else f'{{"messages": [{record}, {{"a": {deep}}}]}}'

    cut = cut_deep(document.encode(), level)

    shown = json.loads(cut.document, parse_float=str)
    first = shown if level == 1 else shown["messages"][0]
    assert (first["a"], first["c"], first["d"], first["f"]) == ("0e0", ']}]"[', "0e1", 1)
    assert json.dumps(first["b"]) == flat
    assert cut.values[:2] == [deep.encode(), f'{{"e": {deep}}}'.encode()]
    assert len(cut.values) == (2 if level == 1 else 3)


JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(JSON)
def test_what_is_not_deep_is_left_as_it_is(value: object) -> None:
    document = json.dumps({"payload": value}, ensure_ascii=False).encode()

    assert cut_deep(document, 1).document == document
