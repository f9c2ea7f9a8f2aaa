"""What an exception means to the runner, and what a user reads of it."""

from __future__ import annotations

import pytest

from flowctl.diagnostics import Mark
from flowctl.errors import AccessDenied, LeaseLost, TableError, TransientError
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
        "OSError: [Errno 16] Reduce your request rate.",
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


LOST = (
    "An error occurred while calling o76.sql.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "
    "Task 1 in stage 4.0 failed 4 times, most recent failure: Lost task 1.3 in stage 4.0 (TID 12) (h executor 3): "
    "ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: Command exited with code 137\n"
    "Driver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$2(DAGScheduler.scala:2935)\n"
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (LOST, "executor 3 exited"),
        (
            "Job aborted due to stage failure: ShuffleMapStage 3 failed: org.apache.spark.shuffle.FetchFailedException",
            "Fetch",
        ),
        ("org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location for shuffle 0", "Missing"),
        ("Executor heartbeat timed out after 127104 ms; executor 2 was lost", "heartbeat"),
    ],
)
def test_lost_executors_are_tried_again_and_the_cause_is_named(text: str, cause: str) -> None:
    found = translate(RuntimeError(text), MARK)
    assert isinstance(found, TransientError)
    assert cause in found.message
    assert "error occurred" not in found.message


def test_a_java_error_without_a_cause_has_its_own_first_line() -> None:
    assert headline("An error occurred while calling o76.sql.\n: java.lang.IllegalStateException: no\n\tat x.Y") == "no"


def test_nothing_is_said_of_a_commit_that_nobody_asked_for() -> None:
    assert "committed" not in translate(RuntimeError(JAVA), MARK).describe()


HADOOP = (
    "java.nio.file.AccessDeniedException: s3a://lake/orders/part-0.parquet: PUT 0-byte object: software.amazon.awssdk."
    "services.s3.model.S3Exception: The provided token has expired. (Service: S3, Status Code: 403, Request ID: ABC)"
)
OBJECT_STORE = (
    "Generic S3 error: Error performing PUT http://h/lake/x in 3ms - Server returned non-2xx status code: 403 "
    'Forbidden: <?xml version="1.0"?><Error><Code>ExpiredToken</Code><Message>x</Message></Error>'
)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError(HADOOP), "s3://lake refuses access: the credentials have expired"),
        (OSError(OBJECT_STORE), "the store refuses access: the credentials have expired"),
        (PermissionError("Access Denied"), "the store refuses access: these credentials lack the permission"),
        (
            RuntimeError("\x1b[31mSignatureDoesNotMatch\x1b[0m"),
            "the store refuses access: the secret key is wrong",
        ),
        (
            PermissionError(13, "Permission denied", "/lake/x"),
            "the store refuses access: this user may not use /lake/x",
        ),
    ],
)
def test_refused_access_is_permanent_and_one_plain_line(error: Exception, words: str) -> None:
    found = translate(error, MARK)
    assert isinstance(found, AccessDenied)
    assert found.message.startswith(words)
    assert "<" not in found.describe() and "\x1b" not in found.describe()
    assert found.hint.startswith("Renew the credentials")


def test_a_database_that_misses_a_grant_is_no_refused_store() -> None:
    found = translate(
        RuntimeError("org.postgresql.util.PSQLException: ERROR: permission denied for table orders"), MARK
    )
    assert not isinstance(found, AccessDenied)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "Generic LocalFileSystem error: Unable to copy data to file: No space left on device (os error 28)"
        ),
        OSError(28, "No space left on device"),
    ],
)
def test_a_full_disk_fails_its_table_and_says_what_to_do(error: Exception) -> None:
    found = translate(error, MARK)
    assert type(found) is TableError and found.hint.startswith("Make room where the target")


SPARK = """An error occurred while calling o61.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030
\tat org.apache.spark.X
Caused by: {cause} SQLSTATE: {state}
== SQL (line 1, position 1) ==
CAST(n AS INT)
\tat org.apache.spark.Y
"""


@pytest.mark.parametrize(
    ("cause", "state", "told"),
    [
        (
            "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'a\nsecret' of the type "
            '"STRING" cannot be cast to "INT" because it is malformed.',
            "22018",
            '[CAST_INVALID_INPUT] a value of the type "STRING" cannot be cast to "INT"',
        ),
        (
            "org.apache.spark.SparkIllegalArgumentException: [INVALID_URL] The url is invalid: secret.",
            "22P02",
            "[INVALID_URL] an expression fails for a row",
        ),
        (
            "org.apache.spark.X: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records: [null]. "
            "SQLSTATE: 22023\nCaused by: com.fasterxml.JsonParseException: Unrecognized token 'secret'",
            "22023",
            "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] an expression fails for a row",
        ),
        (
            'org.apache.spark.X: [INVALID_FORMAT.MISMATCH_INPUT] The input "STRING" secret does not match the format.',
            "42601",
            "[INVALID_FORMAT.MISMATCH_INPUT] an expression fails for a row",
        ),
    ],
)
def test_what_spark_refuses_a_value_for_is_told_without_it(cause: str, state: str, told: str) -> None:
    error = translate(RuntimeError(SPARK.format(cause=cause, state=state)), MARK)
    assert (type(error), error.message, error.mark) == (TableError, told, MARK)
    assert "secret" not in error.describe() and "try_" in error.hint
