"""Tests of the contract suites that cannot hold on Sail, each with its reason: the one list.

What users meet of these is refused by name (:data:`flowctl.resolve.sail.GAPS`).
"""

from __future__ import annotations

from collections.abc import Mapping

#: The start of a test's id below ``tests/connectors/``, and why it is left out.
GAPS: Mapping[str, str] = {
    "files/test_source.py::test_texts_become_the_declared_type[jsonl-": "JSON lines are refused",
    "files/test_source.py::test_a_text_that_is_not_exactly_that_is_refused[jsonl-": "JSON lines are refused",
    "files/test_source.py::test_json_numbers": "JSON lines are refused",
    "files/test_source.py::test_a_line_that_is_not_one_object": "JSON lines are refused",
    "files/test_source.py::test_orc_brings": "ORC is refused",
    "files/test_source.py::test_columns_are_told_by_name[jsonl": "JSON lines are refused",
    "files/test_source.py::test_columns_of_all_files": "files of other types are refused",
    "delta/test_statistics.py::test_a_clustered_table_with_columns": "clustering is refused",
    "delta/test_features.py::test_columns_widen_in_place": "widening is refused",
    "delta/test_features.py::test_a_sidecar_takes": "Spark's DDL; columns come with the commit there",
    "delta/test_target.py::test_a_new_table_is": "asks Spark what its CREATE TABLE makes",
    "delta/test_target.py::test_a_clustered_table": "clustering is refused",
    "delta/test_target.py::test_a_column_added_by_a_try": "columns come with the commit: no try leaves one behind",
    "delta/test_target.py::test_settings_of_a_number": "needs INSERT by another client; there are no such settings",
    "delta/test_target.py::test_the_record_survives": "needs INSERT by another client; logs are read without an engine",
    "delta/test_target.py::test_a_restored_table": "needs RESTORE by another client; logs are read without an engine",
    "delta/test_target.py::test_a_table_restored_to": "needs RESTORE by another client",
    "delta/test_target.py::test_a_table_that_somebody": "needs CREATE TABLE by another client",
    "delta/test_target.py::test_an_empty_table_that_somebody": "needs CREATE TABLE by another client",
    "delta/test_target.py::test_the_empty_table_of_an_interrupted_try_is_told_from_others[cl": "clustering is refused",
    "delta/test_target.py::test_a_table_that_forgets": "needs ALTER TABLE by another client",
    "delta/test_target.py::test_a_table_on_s3": "Sail gets credentials as it starts: see tests/e2e",
    "delta/test_target.py::test_names_that_need": "asks Spark's CREATE TABLE whether it agrees",
}
