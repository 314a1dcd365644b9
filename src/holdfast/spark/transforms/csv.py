"""CSV as rows of text, each with the reason if it is none: columns, REASON, CONTENT, FILE.

Lines are taken apart here, not by Spark's reader: it accepts a quote that is never closed, and gives what it
swallowed as if it were the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .load import BROKEN, CONTENT, FILE, LINE, NO_TEXT, REASON, quoted

ROW, END = "_load_row", "_load_end"
UNEVEN = "expected as many columns as the header has, and quotes that end in the line"


def fields(lines: DataFrame, names: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """Lines as rows. A column is put behind them, which an open quote swallows and a row too long hides."""
    ended = F.concat(F.col(LINE), F.lit(separator(options) + END))
    how = {**options, "mode": "PERMISSIVE", "columnnameofcorruptrecord": BROKEN}
    rows = lines.select("*", F.from_csv(ended, text_columns([*names, END, BROKEN]), how).alias(ROW))
    uneven = F.col(f"{ROW}.{BROKEN}").isNotNull() | ~F.col(f"{ROW}.{END}").eqNullSafe(END)
    columns = [F.col(ROW)[name].alias(name) for name in names]
    reason = F.coalesce(REASON, F.when(uneven, F.lit(UNEVEN)))
    return _judged(rows, columns, reason, F.col(LINE))


def records(rows: DataFrame, names: Sequence[str], *, utf8: bool) -> DataFrame:
    """Rows that Spark's reader has made, since their values may have line breaks: the columns, and BROKEN.

    It puts U+FFFD in the place of bytes that are not UTF-8, and that is all that is left to see of them.
    """
    columns = [quoted(name) for name in names]
    mended = F.contains(F.concat_ws("", *columns), F.lit("\ufffd")) & F.lit(utf8)
    uneven = F.when(F.col(BROKEN).isNotNull(), F.lit(UNEVEN))
    reason = F.coalesce(F.when(mended, F.lit(NO_TEXT)), uneven)
    return _judged(rows, columns, reason, F.col(BROKEN))


def text_columns(names: Sequence[str]) -> str:
    """A schema of text, as DDL."""
    return ", ".join(f"`{name.replace('`', '``')}` string" for name in names)


def separator(options: Mapping[str, str]) -> str:
    r"""What stands between columns; Spark reads \t as a tab."""
    found = options.get("sep", options.get("delimiter", ","))
    return found.encode().decode("unicode_escape") if found.startswith("\\") else found


def _judged(rows: DataFrame, columns: Sequence[Column], reason: Column, content: Column) -> DataFrame:
    about = F.when(reason.isNotNull(), content)
    return rows.select(*columns, reason.alias(REASON), about.alias(CONTENT), FILE)
