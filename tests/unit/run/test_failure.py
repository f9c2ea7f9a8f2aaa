"""What an exception means to the runner, and what a user reads of it."""

from __future__ import annotations

import pytest

from flowctl.diagnostics import Mark
from flowctl.errors import LeaseLost, TableError, TransientError
from flowctl.run.failure import CHECK_PREFIX, headline, translate

MARK = Mark("flow.yaml", 12, 3)
JAVA = """An error occurred while calling o61.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:2844)
Caused by: org.postgresql.util.PSQLException: ERROR: column "vat" does not exist
\tat org.postgresql.core.v3.QueryExecutorImpl.receive(QueryExecutorImpl.java:2725)
\t... 12 more
"""


def test_the_innermost_cause_is_what_people_read() -> None:
    assert headline(JAVA) == 'ERROR: column "vat" does not exist'


PYTHON = """Job aborted: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "copying.py", line 1, in copy
    raise RuntimeError(told(error))
          ^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: SQLSTATE 22012: ERROR: division by zero

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
"""


@pytest.mark.parametrize("text", [PYTHON, PYTHON[PYTHON.index("Traceback") :]])
def test_what_python_workers_raise_is_told_in_their_words(text: str) -> None:
    assert headline(text) == "SQLSTATE 22012: ERROR: division by zero"


def test_a_java_error_fails_its_table_and_names_the_spec_line() -> None:
    error = translate(RuntimeError(JAVA), MARK)
    assert type(error) is TableError
    assert error.mark == MARK
    assert "at org." not in error.describe()


@pytest.mark.parametrize(
    "text",
    [
        "io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND] files were added",
        "org.postgresql.util.PSQLException: Connection to 127.0.0.1:5432 refused. Check that the host is right",
        "FATAL: terminating connection due to administrator command (SQLSTATE 57P01)",
        "deadlock detected (SQLSTATE: 40P01)",
        "sqlite3.OperationalError: database is locked",
        "An error occurred (SlowDown) when calling the PutObject operation",
    ],
)
def test_what_may_go_away_by_itself_is_retried(text: str) -> None:
    assert isinstance(translate(RuntimeError(text), MARK), TransientError)


def test_a_failed_row_check_is_told_in_its_own_words() -> None:
    java = f"org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] {CHECK_PREFIX}id: not_null | Mend the rows"
    error = translate(RuntimeError(f"{java} SQLSTATE: P0001\n\tat org.apache.spark.X"), MARK)
    assert (error.message, error.hint) == ("id: not_null", "Mend the rows")


def test_flowctls_own_errors_stay_what_they_are() -> None:
    lost = LeaseLost("the lease was lost")
    assert translate(lost, MARK) is lost
    assert lost.mark == MARK


def test_a_call_that_nobody_answers_is_told_in_one_line() -> None:
    dump = (
        "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n"
        '\tdetails = "failed to connect to all addresses"\n\tdebug_error_string = "UNKNOWN:x"\n>'
    )
    found = translate(RuntimeError(dump), None)
    assert isinstance(found, TransientError)
    assert found.message == "Spark does not answer: failed to connect to all addresses"
