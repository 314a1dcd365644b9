"""Pieces: batches of one size, and names that tell how far a replay is."""

from __future__ import annotations

import pyarrow as pa
import pytest

from holdfast.spark.pipelines._pieces import cut, is_piece, spot_name, spot_of
from holdfast.spark.transforms.replay import Spot


def batches(*sizes: int) -> list[pa.RecordBatch]:
    edges = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    rows = [list(range(edges[number], edges[number + 1])) for number in range(len(sizes))]
    return [pa.RecordBatch.from_pydict({"n": pa.array(each, pa.int64())}) for each in rows]


@pytest.mark.parametrize(
    ("sizes", "size", "pieces"),
    [
        ((10,), 4, [4, 4, 2]),
        ((3, 3, 3), 4, [4, 4, 1]),
        ((1, 1, 1, 1), 2, [2, 2]),
        ((0, 5, 0), 10, [5]),
        ((4,), 4, [4]),
        ((), 4, []),
    ],
)
def test_rows_are_cut_into_pieces_of_one_size(sizes: tuple[int, ...], size: int, pieces: list[int]) -> None:
    found = list(cut(batches(*sizes), size))

    assert [each.num_rows for each in found] == pieces
    assert [n for each in found for n in each["n"].to_pylist()] == list(range(sum(sizes)))


def test_a_name_tells_where_a_piece_ends() -> None:
    spot = Spot(1_900_000_000_000_000, 1_800_000_000_000_000, 3 << 40)

    assert spot_of(spot_name("replay-1/7", spot)) == spot


def test_other_writes_are_no_pieces() -> None:
    piece = spot_name("w/00000000000000007", Spot(1, 2, 3))

    assert is_piece(piece, "w")
    assert not any(is_piece(name, "w") for name in ("w/64-3/000001", "w/all", f"w/{piece}", piece[:-1]))
    assert not is_piece(piece, "w/00000000000000007")


def test_names_sort_as_their_spots_do() -> None:
    year = 31_536_000_000_000
    late = Spot(60 * year, 0, 0)
    spots = [Spot(99, 5, 1), Spot(99, year, 1), Spot(year, 1, 9), Spot(year, 1, 1 << 50), late]

    assert sorted(spots) == spots
    assert sorted(spot_name("w", spot) for spot in spots) == [spot_name("w", spot) for spot in spots]
