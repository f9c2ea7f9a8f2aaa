"""The tables a SQL table reads, and the names of the columns it gives."""

from __future__ import annotations

import pytest

from flowctl.sql.refs import names_all_it_reads, output_names, referenced, with_names


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


@pytest.mark.parametrize(
    ("sql", "names_all"),
    [
        ("SELECT id, amount * 2 AS twice, count(*) AS n FROM {{ref:a}} GROUP BY ALL", True),
        ("FROM {{ref:a}} SELECT id", True),
        ("WITH c (x) AS (SELECT id FROM {{ref:a}}) SELECT x FROM c JOIN {{ref:b}} USING (x)", True),
        ("SELECT x FROM {{ref:a}} LATERAL VIEW explode(items) AS x", True),
        ("SELECT id, k FROM {{ref:a}} JOIN (VALUES (1, 2)) AS v (id, k) USING (id)", True),
        ("SELECT *, count(*) OVER () FROM {{ref:a}}", False),
        ("SELECT * EXCEPT (id) FROM {{ref:a}}", False),
        ("SELECT item.* FROM {{ref:a}}", False),
        ("SELECT count(a.*) AS n FROM {{ref:a}} AS a", False),
        ("SELECT count(DISTINCT *) AS n FROM {{ref:a}}", False),
        ("SELECT to_json(struct(*)) AS all FROM {{ref:a}}", False),
        ("SELECT id FROM {{ref:a}} UNION ALL BY NAME SELECT * FROM {{ref:b}}", False),
        ("TABLE {{ref:a}}", False),
        ("SELECT id FROM {{ref:a}} UNION TABLE {{ref:b}}", False),
        ("WITH c AS (TABLE {{ref:a}}) SELECT id FROM c", False),
        ("WITH c (x, y) AS (table {{ref:a}}) SELECT x FROM c", False),
        ("SELECT x FROM (TABLE {{ref:a}}) AS t (x, y)", False),
        ("SELECT id FROM f(TABLE({{ref:a}}))", False),
        ("FROM {{ref:a}}", False),
        ("SELECT count(1) AS n FROM (FROM {{ref:a}})", False),
        ("FROM {{ref:a}} |> WHERE id > 1", False),
        ("SELECT x FROM {{ref:a}} AS t (x, y)", False),
        ("SELECT x FROM ({{ref:a}} NATURAL JOIN {{ref:b}}) AS t (x, y)", False),
        ("SELECT IDENTIFIER('amo' || 'unt') AS x FROM {{ref:a}}", False),
        ("SELECT id FROM {{ref:a}} WHERE", False),
    ],
)
def test_whether_all_columns_that_are_read_are_named(sql, names_all):
    assert names_all_it_reads(sql) is names_all
