"""Errors of Spark, Python and Java as the one line that helps. The texts are Spark's, shortened."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from holdfast.client import QueueNotFoundError
from holdfast.spark.pipelines._explain import Problem, explain
from holdfast.spark.pipelines._pipeline import PipelineError
from holdfast.spark.pipelines._storage import Storage

OF_A_SINK = """[PYTHON_DATA_SOURCE_ERROR] Failed to write: Traceback (most recent call last):
  File "/site-packages/pyspark/sql/worker/write_into_data_source.py", line 210, in main
    writer = data_source.writer(schema=schema, overwrite=overwrite)
  File "/src/holdfast/spark/_outgoing.py", line 129, in check_columns
    raise ColumnError("...")
holdfast.spark._outgoing.ColumnError: column payload: got int; expected string. SQLSTATE: 38000
"""
OF_A_TASK = """An error occurred while calling o99.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times:
Traceback (most recent call last):
  File "/worker.py", line 1, in main
    process()
  File "/shop.py", line 3, in price
    raise ValueError("no price")
ValueError: no price

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
OF_OURS = """Job aborted due to stage failure: Traceback (most recent call last):
  File "/sink.py", line 1, in fill
    raise error
holdfast.client._errors.QueueNotFoundError: queue "nowhere" does not exist [QH101]
Detail: Queues are made explicitly.
Hint: Create it with holdfast.create_queue, or check the spelling.

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
"""
OF_JAVA = """An error occurred while calling o55.json.
: org.apache.spark.SparkException: [FAILED_READ_FILE] Error while reading file a.csv. SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:920)
Caused by: java.lang.IllegalArgumentException: CSV header does not conform to the schema.
 Header: name, id
"""
OF_A_FILE_SYSTEM = """An error occurred while calling o51.rename.
: java.io.IOException: Mkdirs failed to create file:/lake
\tat org.apache.hadoop.fs.RawLocalFileSystem.rename(RawLocalFileSystem.java:480)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
OF_A_DISK = """An error occurred while calling o52.open.
: java.io.UncheckedIOException: wrapped
\tat org.apache.hadoop.fs.FileSystem.open(FileSystem.java:1)
Caused by: java.nio.file.AccessDeniedException: /lake/a
\t... 3 more
"""
OF_NOTHING_SAID = """An error occurred while calling o53.exists.
: java.lang.NullPointerException
\tat org.apache.hadoop.fs.FileSystem.exists(FileSystem.java:1)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (OF_A_SINK, Problem("column payload: got int; expected string")),
        (OF_A_TASK, Problem("ValueError: no price")),
        (
            OF_OURS,
            Problem(
                'queue "nowhere" does not exist',
                "QH101",
                "Queues are made explicitly.",
                "Create it with holdfast.create_queue, or check the spelling.",
            ),
        ),
        (OF_JAVA, Problem("CSV header does not conform to the schema.")),
        (OF_A_FILE_SYSTEM, Problem("IOException: Mkdirs failed to create file:/lake")),
        (OF_A_DISK, Problem("AccessDeniedException: /lake/a")),
        (OF_NOTHING_SAID, Problem("NullPointerException")),
    ],
    ids=["sink", "task", "ours", "java", "file system", "disk", "nothing said"],
)
def test_what_lies_below_many_lines_is_told(text: str, told: Problem) -> None:
    assert explain(PySparkException(text)) == told


def test_an_error_of_spark_is_its_first_line_without_the_code() -> None:
    error = AnalysisException("[PATH_NOT_FOUND] Path does not exist: file:/none. SQLSTATE: 42K03;\n'Project")

    assert explain(error).message.startswith("[PATH_NOT_FOUND] Path does not exist: file:/none")
    assert "\n" not in explain(error).message


def test_errors_of_ours_speak_for_themselves_and_others_name_their_kind() -> None:
    missing = QueueNotFoundError("QH101", "no such queue", "There is none.", "Make it.")

    assert explain(missing) == Problem("no such queue", "QH101", "There is none.", "Make it.")
    assert explain(PipelineError("--map: got a")) == Problem("--map: got a")
    assert explain(KeyError("price")) == Problem("KeyError: 'price'")
    assert explain(ValueError()) == Problem("ValueError")


def test_a_problem_as_text_has_its_code() -> None:
    assert str(Problem("no such queue", "QH101")) == "no such queue [QH101]"


@pytest.mark.verify
def test_an_error_of_a_file_system_says_what_happened(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Py4JJavaError) as refused:
        Storage(spark, str(tmp_path / "file")).write("a", "text")

    assert explain(refused.value).message.startswith("FileAlreadyExistsException: Destination exists")
