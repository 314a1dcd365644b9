"""queue-ti: UUIDs that hold ids, and nothing else that does."""

from __future__ import annotations

from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from holdfast.dialects.queue_ti.ids import LARGEST, id_of, uuid_of
from tests.dialects.pins import pins

IDS = st.integers(0, LARGEST)


@pins(1)
@given(IDS)
def test_an_id_comes_back_from_its_uuid_which_is_of_version_8(id: int) -> None:
    uuid = UUID(uuid_of(id))

    assert (uuid.version, uuid.variant) == (8, "specified in RFC 4122")
    assert id_of(str(uuid)) == id_of(str(uuid).upper()) == id


@given(IDS, IDS)
def test_uuids_sort_as_ids_do(one: int, other: int) -> None:
    assert (uuid_of(one) < uuid_of(other)) == (one < other)


@given(IDS, st.integers(0, 57))
def test_a_uuid_with_another_mark_is_none_of_ours(id: int, bit: int) -> None:
    assert id_of(str(UUID(int=UUID(uuid_of(id)).int ^ 1 << bit))) is None


def test_what_is_no_uuid_or_another_s_is_none_of_ours() -> None:
    assert [id_of(text) for text in ("", "1", "abc123", str(uuid4()), "f" * 32)] == [None] * 5
