"""Writes the tables of docs/http.md: every route with what it takes, answers with and refuses; and the types.

python -m tools.describe_http            write them
python -m tools.describe_http --check    fail if they are not what the server has
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from holdfast.server.endpoint import ANY, Endpoint
from holdfast.server.fields import TAGS
from holdfast.server.refusals import OF_VERBS
from holdfast.server.routes import BOOKS
from holdfast.server.routes.documents import written

PAGE = Path(__file__).parents[1] / "docs" / "http.md"
START, END = "<!-- routes:start -->\n", "<!-- routes:end -->\n"
FEW = 5  # fields that are told in the table of routes
CONFIG = "fields of the [configuration](configuration.md)"
HEAD = "| route | scope | what it does | takes | answers with | errors |\n|---|---|---|---|---|---|\n"
TYPES = (
    "### Types\n\nTimes are text, as in `2040-01-01T00:00:00Z`; ids and tokens are text, too, "
    "and so are those in `origin`.\n\n"
)

Json = dict[str, Any]


def tables() -> str:
    """All tables."""
    document: Json = json.loads(written())
    books = [book for book in BOOKS if book.endpoints]
    parts = [
        f"### {book.noun.capitalize()}\n\n{TAGS[book.noun]}\n\n{HEAD}"
        + "".join(row(endpoint, document) for endpoint in book.endpoints)
        for book in books
    ]
    return "\n".join(parts) + f"\n{TYPES}{types(document)}"


def row(endpoint: Endpoint, document: Json) -> str:
    """One route."""
    told = document["paths"].get(endpoint.path, {}).get(endpoint.method.lower())
    scope = {None: "none", ANY: "any key"}.get(endpoint.scope, endpoint.scope)
    errors = sorted(OF_VERBS.get(endpoint.name, "").split())
    cells = [
        f"`{endpoint.method} {endpoint.path}`",
        str(scope),
        endpoint.summary.removesuffix(".").replace("|", "\\|"),
        takes(endpoint, told, document) if told else "",
        answers(told, document) if told else "a file",
        ", ".join(errors),
    ]
    return f"| {' | '.join(cells)} |\n"


def takes(endpoint: Endpoint, told: Json, document: Json) -> str:
    """The fields of a body or a query; those that it needs are bold."""
    if endpoint.body is not None:
        schema = told["requestBody"]["content"]["application/json"]["schema"]
        if "$ref" not in schema:
            return CONFIG
        struct = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        return ", ".join(
            shown(name, name in struct["required"]) + listed(field)
            for name, field in struct["properties"].items()
        )
    asked = [each for each in told.get("parameters", []) if each["in"] == "query"]
    return ", ".join(shown(each["name"], each["required"]) for each in asked)


def shown(name: str, needed: bool) -> str:
    """The name of a field."""
    return f"**`{name}`**" if needed else f"`{name}`"


def answers(told: Json, document: Json) -> str:
    """What an answer holds: fields, and the type of what is in a list."""
    status, answer = next(iter(told["responses"].items()))
    content = answer["content"]
    if "text/event-stream" in content:
        return "[events](#work-that-comes-by-itself)"
    if "application/json" not in content:
        return "text for Prometheus"
    return ("201: " if status == "201" else "") + in_json(content, document)


def in_json(content: Json, document: Json) -> str:
    """What an answer in JSON holds."""
    reference = content["application/json"]["schema"].get("$ref")
    if reference is None:
        return "an object"
    name: str = reference.rsplit("/", 1)[1]
    fields = document["components"]["schemas"][name]["properties"]
    if len(fields) > FEW:
        return name
    return ", ".join(f"`{field}`{listed(schema)}" for field, schema in fields.items())


def listed(schema: Json) -> str:
    """What a list holds."""
    name = item(schema)
    return f" (of {name.removesuffix('Request')})" if name else ""


def item(schema: Json) -> str | None:
    """The type of what is in a list, if it has a name."""
    found = re.search(r"schemas/(\w+)", schema.get("items", {}).get("$ref", ""))
    return found[1] if found else None


def types(document: Json) -> str:
    """The types that are told by their names."""
    schemas: Json = document["components"]["schemas"]
    of_lists = {item(field) for schema in schemas.values() for field in schema["properties"].values()}
    named = [name for name, schema in schemas.items() if name in of_lists or is_large(name, schema)]
    rows = [
        f"| {name.removesuffix('Request')} | {first_sentence(schemas[name])} | "
        f"{', '.join(f'`{field}`' for field in schemas[name]['properties'])} |\n"
        for name in sorted(named)
    ]
    return "| type | what it is | fields |\n|---|---|---|\n" + "".join(rows)


def is_large(name: str, schema: Json) -> bool:
    """Whether an answer has more fields than the table of routes has room for."""
    return len(schema["properties"]) > FEW and not name.endswith("Request")


def first_sentence(schema: Json) -> str:
    """What a type is."""
    said: str = schema.get("description", "")
    return said.split("\n")[0].removesuffix(".")


def main(arguments: list[str] | None = None) -> int:
    """Write the tables, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    options = parser.parse_args(arguments)
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    wanted = f"{before}{START}\n{tables()}\n{END}{after}"
    if not options.check:
        PAGE.write_text(wanted, encoding="utf-8")
    elif text != wanted:
        print("docs/http.md is not what the server has. Run: make generate/http-reference", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
