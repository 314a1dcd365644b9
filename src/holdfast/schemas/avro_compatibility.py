"""Whether a reader with one Avro schema reads what was written under another: the specification's resolution.

Where the specification leaves it to the data (one branch of a union can be read, another cannot), it is
asked of all data. So string and bytes are not exchanged for one another: not all bytes are text, and in
JSON not all text is bytes. Nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .avro import parsed
from .objection import Objection
from .places import place

PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
}
NAMED = ("enum", "fixed", "record", "error")
LOGICAL = ("logicalType", "precision", "scale")
Path = tuple[str | int, ...]


def unreadable(writer: Any, reader: Any) -> Iterator[Objection]:
    """Why a reader cannot read all that was written."""
    return Resolution(parsed(writer), parsed(reader)).objections()


class Resolution:
    """Two schemas, with the types that have names in each."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer, self._reader = writer, reader
        self._written = dict(types_of(writer))
        self._known = dict(types_of(reader))
        self._begun: set[tuple[str, str]] = set()

    def objections(self) -> Iterator[Objection]:
        """All there are."""
        return self._resolved(self._writer, self._reader, ())

    def _resolved(self, writer: Any, reader: Any, path: Path) -> Iterator[Objection]:
        writer, reader = found(writer, self._written), found(reader, self._known)
        if isinstance(writer, list):
            for branch in writer:
                yield from self._resolved(branch, reader, path)
        elif isinstance(reader, list):
            yield from self._of_union(writer, reader, path)
        elif not self._matches(writer, reader):
            yield Objection(at(path), f"it was {shown(writer)}, and cannot be read as {shown(reader)}")
        else:
            yield from self._inside(writer, reader, path)

    def _of_union(self, writer: Any, reader: list[Any], path: Path) -> Iterator[Objection]:
        branches = [found(branch, self._known) for branch in reader]
        fitting = [branch for branch in branches if self._matches(writer, branch)]
        if not fitting:
            yield Objection(at(path), f"it was {shown(writer)}, which no branch of the union reads")
        # Readers differ in which of several they take.
        for branch in fitting:
            yield from self._inside(writer, branch, path)

    def _matches(self, writer: Any, reader: Any) -> bool:
        """Whether types can be resolved at all, whatever is inside."""
        wrote, reads = type_of(writer), type_of(reader)
        if wrote in NAMED and wrote == reads:
            return short(writer["name"]) in {
                short(name) for name in (reader["name"], *reader.get("aliases", ()))
            }
        return wrote == reads or reads in PROMOTED.get(wrote, ())

    def _inside(self, writer: Any, reader: Any, path: Path) -> Iterator[Objection]:
        yield from logical(writer, reader, path)
        match type_of(writer):
            case "array":
                yield from self._resolved(writer["items"], reader["items"], (*path, "items"))
            case "map":
                yield from self._resolved(writer["values"], reader["values"], (*path, "values"))
            case "fixed" if writer["size"] != reader["size"]:
                yield Objection(at(path), f"it had {writer['size']} bytes, and has {reader['size']}")
            case "enum":
                yield from symbols(writer, reader, path)
            case "record" | "error":
                pair = (writer["name"], reader["name"])
                if pair not in self._begun:
                    self._begun.add(pair)
                    yield from self._fields(writer, reader, path)

    def _fields(self, writer: Any, reader: Any, path: Path) -> Iterator[Objection]:
        written = {field["name"]: field["type"] for field in writer["fields"]}
        for field in reader["fields"]:
            here = (*path, field["name"])
            names = [name for name in (field["name"], *field.get("aliases", ())) if name in written]
            if names:
                yield from self._resolved(written[names[0]], field["type"], here)
            elif "default" not in field:
                yield Objection(at(here), "this field was not there before, and has no default")


def found(schema: Any, names: Mapping[str, Any]) -> Any:
    """A type by its name, or out of its wrapping: {"type": "order"}."""
    if isinstance(schema, str):
        return names.get(schema, schema)
    return names[schema["type"]] if isinstance(schema, dict) and schema["type"] in names else schema


def symbols(writer: Any, reader: Any, path: Path) -> Iterator[Objection]:
    """Symbols that the reader does not know."""
    gone = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
    if gone and "default" not in reader:
        yield Objection(at(path), f"the symbols {', '.join(gone[:5])} are gone, and there is no default")


def logical(writer: Any, reader: Any, path: Path) -> Iterator[Objection]:
    """Another meaning of the same type."""
    meant, means = ([own(schema).get(name) for name in LOGICAL] for schema in (writer, reader))
    if meant != means:
        yield Objection(
            at(path), f"its logical type was {meant[0]}, and is {means[0]}, or of another precision"
        )


def types_of(schema: Any) -> Iterator[tuple[str, Any]]:
    """The types that have names, by their names in full."""
    if isinstance(schema, list):
        for branch in schema:
            yield from types_of(branch)
    elif isinstance(schema, dict):
        if schema["type"] in NAMED:
            yield schema["name"], schema
        for each in (
            schema.get("items"),
            schema.get("values"),
            *(f["type"] for f in schema.get("fields", ())),
        ):
            yield from types_of(each)


def type_of(schema: Any) -> str:
    """The name of a type's kind."""
    if isinstance(schema, dict):
        return str(schema["type"])
    return "union" if isinstance(schema, list) else str(schema)


def own(schema: Any) -> dict[str, Any]:
    """What a type says of itself."""
    return schema if isinstance(schema, dict) else {}


def short(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition(".")[2]


def shown(schema: Any) -> str:
    """A type, for people."""
    kind = type_of(schema)
    return f"{kind} {schema['name']}" if kind in NAMED else kind


def at(path: Path) -> str:
    """Where."""
    return place("definition", path)
