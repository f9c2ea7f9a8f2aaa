"""The tables a SQL table reads, and the names of the columns it gives."""

from __future__ import annotations

import pytest

from flowctl.sql.refs import output_names, referenced, with_names


def test_markers_become_the_names_that_spark_knows():
    sql = "SELECT * FROM {{ref:orders}} o JOIN {{ref:raw.lines}} USING (id) JOIN {{ref:orders}} p USING (id)"
    assert referenced(sql) == ("orders", "raw.lines")
    assert with_names(sql, {"orders": "v0", "raw.lines": "v`1"}) == (
        "SELECT * FROM `v0` o JOIN `v``1` USING (id) JOIN `v0` p USING (id)"
    )


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT date(at) AS day, sum(x) total, id FROM {{ref:a}} GROUP BY 1", ("day", "total", "id")),
        ("SELECT a FROM {{ref:a}} UNION ALL SELECT b FROM {{ref:b}}", ("a",)),
        ("WITH t AS (SELECT 1 AS one) SELECT one FROM t", ("one",)),
        ("SELECT * FROM {{ref:a}}", None),
        ("SELECT sum(x) FROM {{ref:a}}", None),
        ("SELEKT 1 1", None),
    ],
)
def test_output_names_are_known_or_left_to_spark(sql, names):
    assert output_names(sql) == names
