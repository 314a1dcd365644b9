"""The orders of the demo: most are good, a few were written down with a comma, and fewer have no country.

    python -m examples.demo.orders FOLDER NUMBER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

FILES = 8
COUNTRIES = ("DE", "FR", "IT", "NL", "PL", "ES")
COMPANIES = 200
COMMA_SHARE = 0.004  # amounts such as 12,50: the handler fails on them, and they can be repaired
NOWHERE_SHARE = 0.0005  # no country: nobody can repair that


def write(folder: Path, number: int) -> int:
    """Write so many orders as JSON lines, into a few files; returns how many bytes that took."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [range(start, number, FILES) for start in range(FILES)]
    for place, some in enumerate(numbers):
        with (folder / f"orders-{place}.json").open("w") as file:
            file.writelines(f"{json.dumps(order)}\n" for order in orders(some))
    return sum(file.stat().st_size for file in folder.iterdir())


def orders(numbers: range) -> Iterator[dict[str, Any]]:
    """Orders of these numbers: the same each time."""
    random = Random(numbers.start)
    for number in numbers:
        amount = f"{random.uniform(1, 500):.2f}"
        yield {
            "order": number,
            "amount": amount.replace(".", ",") if random.random() < COMMA_SHARE else amount,
            "country": None if random.random() < NOWHERE_SHARE else random.choice(COUNTRIES),
            "company": company(random),
            "items": [{"article": random.randrange(10_000), "pieces": random.randrange(1, 5)} for _ in "ab"],
        }


def company(random: Random) -> str | None:
    """One order in seven is a company's; some companies order far more than others."""
    if random.random() < 6 / 7:
        return None
    return f"company-{int(COMPANIES * random.random() ** 2):03}"


if __name__ == "__main__":
    place, count = Path(sys.argv[1]), int(sys.argv[2])
    print(f"{count:,} orders, {write(place, count) / 1_000_000:,.1f} MB, in {place}")
