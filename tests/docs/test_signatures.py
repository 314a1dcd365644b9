"""docs/client.md lists every verb of the client as it is called."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

from holdfast import Holdfast
from tests.docs.pages import BLOCK, sections, text_of

OF_THE_CLIENT = {"close", "transaction"}  # told where clients are made
WIDTH = 120
ANNOTATION = re.compile(r"(: |-> )'([^']*)'")
TIED = "\N{NO-BREAK SPACE}"


def verbs() -> Iterator[str]:
    """The verbs with their arguments and what they return, a parameter never parted."""
    for name, function in inspect.getmembers(Holdfast, inspect.isfunction):
        if name.startswith("_") or name in OF_THE_CLIENT:
            continue
        signature = inspect.signature(function)
        _, *parameters = signature.parameters.values()
        called = ANNOTATION.sub(r"\1\2", str(signature.replace(parameters=parameters)))
        tied = re.sub(rf",{TIED}(?![^\[]*\])", ", ", f"{name}{called}".replace(" ", TIED))
        yield textwrap.fill(tied, WIDTH, subsequent_indent=" " * 4).replace(TIED, " ")


def test_every_verb_is_listed_as_it_is_called() -> None:
    section = sections(text_of("client.md"), 2)["Every verb"]
    listed = [text for _, text in BLOCK.findall(section)]

    assert listed == ["\n".join(verbs()) + "\n"]
