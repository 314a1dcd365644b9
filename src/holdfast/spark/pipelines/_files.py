"""Files to load: which there are, what they are, and how they are read so that chunks stay the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.spark._paths import GLOB, literal
from holdfast.spark.transforms import csv
from holdfast.spark.transforms.load import BROKEN, FILE, LINE, checked, elements, filled, quoted

from ._pipeline import PipelineError
from ._storage import Storage

FORMATS = ("json", "json-array", "csv", "parquet")
SUFFIXES: Mapping[str, str] = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
PACKED = frozenset({".gz", ".bz2", ".zst", ".zstd", ".lz4", ".snappy", ".deflate", ".xz"})
QUOTING = {"quote": '"', "escape": '"'}  # as RFC 4180 has it; Spark would take a backslash
OF_LINES = frozenset(
    {"header", "enforceschema", "comment", "linesep", "encoding", "charset"}
)  # of the options
UTF8, BYTES = ("UTF-8", "UTF8"), "ISO-8859-1"


@dataclass(frozen=True, slots=True, order=True)
class File:
    """A file, and what shows that it is still the same."""

    path: str
    size: int
    modified: str


def listed(spark: SparkSession, paths: Sequence[str]) -> list[File]:
    """The files that paths, folders and globs name, in the order of their paths."""
    found = spark.read.format("binaryFile").option("recursiveFileLookup", True).load(list(paths))
    modified = F.col("modificationTime").cast("string").alias("modified")
    rows = found.select("path", "length", modified).collect()
    files = sorted({File(row.path, row.length, row.modified) for row in rows if row.length})
    if not files:
        raise PipelineError(f"{', '.join(paths)}: expected files that are not empty, found none")
    return files


def format_of(files: Sequence[File]) -> str:
    """The format that the names of the files tell."""
    formats = {_format(file.path) for file in files}
    if len(formats) == 1 and (only := formats.pop()) is not None:
        return only
    unknown = next((file.path for file in files if _format(file.path) is None), None)
    got = f"{unknown}, whose name does not tell" if unknown else "files of several formats"
    raise PipelineError(f"got {got}; expected --format, one of {', '.join(FORMATS)}")


def read(
    spark: SparkSession, kind: str, files: Sequence[File], roots: Sequence[str], options: Mapping[str, str]
) -> DataFrame:
    """The rows of files: LINE, REASON and FILE of JSON, else columns, FILE, and of CSV REASON and CONTENT."""
    paths = [literal(file.path) for file in files]
    if kind in ("json", "json-array"):
        return _lines(spark, kind, paths, options)
    if kind == "parquet":
        reader = spark.read.options(**{**_base(spark, files, roots), **options})
        return reader.parquet(*paths).select("*", F.col("_metadata.file_path").alias(FILE))
    return _table(spark, files, paths, options)


def _lines(spark: SparkSession, kind: str, paths: list[str], options: Mapping[str, str]) -> DataFrame:
    whole = kind == "json-array"
    text = spark.read.options(**options).text(paths, wholetext=whole)
    lines = checked(text.select(F.col("value").alias(LINE), F.col("_metadata.file_path").alias(FILE)))
    return elements(lines) if whole else filled(lines)


def _table(
    spark: SparkSession, files: Sequence[File], paths: list[str], options: Mapping[str, str]
) -> DataFrame:
    """CSV, all columns text: the types are the transforms' work, which can say what is wrong."""
    given = {name.lower(): value for name, value in options.items()}  # as Spark reads them
    chosen = {**QUOTING, "header": "true", "enforceschema": "false", **_separator(files), **given}
    names = spark.read.options(**chosen).option("inferSchema", False).csv(paths[:1]).columns
    utf8 = chosen.get("encoding", chosen.get("charset", "UTF-8")).upper() in UTF8
    if chosen.get("multiline", "").lower() == "true":
        return csv.records(_with_file(spark, chosen, names, paths), names, utf8=utf8)
    return csv.fields(checked(_table_lines(spark, paths, chosen, utf8=utf8)), names, chosen)


def _table_lines(
    spark: SparkSession, paths: list[str], options: Mapping[str, str], *, utf8: bool
) -> DataFrame:
    """The lines of CSV below the headers: LINE, FILE.

    To Spark they are tables of one column, in which nothing is quoted, and what separates is in no text. It
    would mend what is not UTF-8; so it reads bytes, each as one character, and they become text here.
    """
    whole = {name: value for name, value in options.items() if name in OF_LINES}
    whole |= {"sep": "\x01", "quote": "", "escape": "", **({"encoding": BYTES} if utf8 else {})}
    header = spark.read.options(**whole).csv(paths[:1]).columns
    line = F.coalesce(BROKEN, quoted(header[0]))
    text = F.encode(line, BYTES).cast("string") if utf8 else line
    return _with_file(spark, whole, header, paths).select(text.alias(LINE), FILE)


def _with_file(
    spark: SparkSession, options: Mapping[str, str], names: Sequence[str], paths: list[str]
) -> DataFrame:
    """What Spark's reader makes of CSV: the columns, BROKEN if there are others, FILE."""
    schema = csv.text_columns([*names, BROKEN])
    rows = spark.read.options(**options).csv(paths, schema=schema, columnNameOfCorruptRecord=BROKEN)
    return rows.select("*", F.col("_metadata.file_path").alias(FILE))


def _separator(files: Sequence[File]) -> dict[str, str]:
    return {"sep": "\t"} if all(".tsv" in PurePosixPath(file.path).suffixes for file in files) else {}


def _base(spark: SparkSession, files: Sequence[File], roots: Sequence[str]) -> dict[str, str]:
    """Folders below the one that was named may be columns: /data/orders/year=2030/…"""
    if len(roots) > 1 or GLOB.search(roots[0]):
        return {}
    root = str(Storage(spark, roots[0]))
    return {} if root == files[0].path else {"basePath": root}


def _format(path: str) -> str | None:
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes]
    while suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return SUFFIXES.get(suffixes[-1]) if suffixes else None
