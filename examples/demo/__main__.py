"""The demo, from end to end. `make demo` runs it, on the embedded server or on HOLDFAST_DATABASE_URL.

    python -m examples.demo [--orders 200000] [--folder .demo]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from examples.demo import orders
from examples.demo.fleet import FleetError, work_off
from holdfast import Holdfast, HoldfastError
from holdfast.database import URL_VARIABLE, database
from holdfast.migrate import migrate

QUEUE = "demo.orders"
GRAVE = f"{QUEUE}.dlq"
CONFIGURATION = {
    "ordering": "key",
    "max_deliveries": 3,
    "keep": ["done", "discarded"],
}
BAD_AMOUNT = "payload ->> 'amount' like '%,%'"
REPAIR = "payload.amount = replace(payload:amount::string, ',', '.')"
UNLUCKY = "did not answer"
SAMPLE_SECONDS = 90
console = Console(highlight=False)


class DemoError(Exception):
    """The demo did not do what it is there to show."""


class Demo:
    """The steps, in their order."""

    def __init__(self, url: str, holdfast: Holdfast, number: int, folder: Path) -> None:
        self.url = url
        self.holdfast = holdfast
        self.number = number
        self.folder = folder

    def run(self) -> None:
        """All of it."""
        title(f"Write {self.number:,} orders as JSON lines, and make a queue for them")
        self.prepare()
        title("Load the files with Spark: validated, nothing twice")
        self.command(
            *("pipeline", "run", "load", f"{self.folder}/orders", "--to", QUEUE),
            *("--map", "ordering_key=company"),
        )
        title("Four consumers work them off, the orders of a company one after the other")
        work_off(self.url, QUEUE)
        title("What failed three times is dead")
        self.command("dead", "list", QUEUE, "--limit", "5")
        title("Repair amounts that have a decimal comma, and send them back")
        self.command(
            *("pipeline", "run", "redrive", QUEUE, "--where", BAD_AMOUNT, "--set", REPAIR),
        )
        title("Those that only had bad luck go back as they are")
        self.command("dead", "redrive", QUEUE, "--error", UNLUCKY)
        work_off(self.url, QUEUE)
        title("Nobody can repair orders without a country: discard them")
        self.discard_dead()
        both = ("--queue", QUEUE, "--queue", GRAVE)
        lake, report = self.folder / "lake", self.folder / "report.html"
        title("Move all that has ended to a lake of Parquet files")
        self.command("pipeline", "run", "archive", "--to", str(lake), *both)
        title("Look at it: one HTML file")
        self.await_sample()
        self.command(
            *("pipeline", "run", "insights", *both, "--lake", str(lake), "--since", "10m"),
            *("--objective", f"{QUEUE}: processing p95 < 1s", "--report", str(report)),
        )
        title("Done")
        console.print(f"The report: [bold]{report.resolve().as_uri()}[/]", soft_wrap=True)
        console.print("Look around: holdfast stats, holdfast pipeline history")

    def prepare(self) -> None:
        """Files to load, and an empty queue to load them into."""
        shutil.rmtree(self.folder, ignore_errors=True)
        size = orders.write(self.folder / "orders", self.number)
        console.print(f"{self.folder}/orders has {size / 1_000_000:,.1f} MB")
        for queue in (GRAVE, QUEUE):
            self.holdfast.drop_queue(queue)
        self.command("queue", "create", QUEUE, "--config", json.dumps(CONFIGURATION))

    def discard_dead(self) -> None:
        """End what is left among the dead letters, and keep it: the queue in which they lie decides."""
        self.holdfast.configure_queue(GRAVE, {"keep": ["discarded"]})
        total = 0
        while dead := self.holdfast.browse(QUEUE, "dead", limit=1_000):
            total += len(self.holdfast.discard(QUEUE, [entry.id for entry in dead]))
        console.print(f"{total:,} discarded")

    def await_sample(self) -> None:
        """Wait for the sample of this minute: how many died is nowhere else."""
        now = self.holdfast.now()
        with console.status("waiting for the sample of this minute"):
            for _ in range(SAMPLE_SECONDS):
                self.holdfast.maintain()
                if any(sample.ended >= now for sample in self.holdfast.samples(QUEUE)):
                    return
                time.sleep(1)

    def command(self, *words: str) -> None:
        """Show a command of holdfast, and run it."""
        console.print(f"[dim]$[/] holdfast {escape(' '.join(map(quoted, words)))}", soft_wrap=True)
        environment = {**os.environ, URL_VARIABLE: self.url}
        program = [str(Path(sys.executable).with_name("holdfast")), *words]
        if code := subprocess.run(program, env=environment, check=False).returncode:
            raise DemoError(f"holdfast {words[0]} ended with {code}")


def quoted(word: str) -> str:
    """A word as people type it for a shell: in double quotes, where it has single ones."""
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\') else shlex.quote(word)


def title(text: str) -> None:
    """What comes next."""
    console.print(f"\n[bold]{escape(text)}[/]")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--orders", type=int, default=200_000, metavar="N", help="how many orders")
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="for its files; emptied first")
    told = parser.parse_args()
    with database() as url:
        migrate(url)
        with Holdfast(url) as holdfast:
            Demo(url, holdfast, told.orders, told.folder).run()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (DemoError, FleetError, HoldfastError) as error:
        sys.exit(str(error))
