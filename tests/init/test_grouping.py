"""Which files of a folder are one table, by their paths."""

from __future__ import annotations

import pytest

from flowctl.connectors.files.grouping import groups_of
from flowctl.init.names import table_ids


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["customers.csv", "orders.csv"], {"customers": "customers.csv", "orders": "orders.csv"}),
        (["orders_2026-01.csv", "orders_2027-02.csv"], {"orders": "orders_*.csv"}),
        (["2026-01.csv", "2026-02.csv"], {"table": "*.csv"}),
        (["events/part-0001.parquet", "events/part-0002.parquet"], {"events": "events/*.parquet"}),
        (["events/2026-01-01.jsonl.gz"], {"events": "events/*.jsonl.gz"}),
        (["raw/events/year=2026/month=01/a.parquet"], {"events": "raw/events/**/*.parquet"}),
        (["events/2026/01/a.csv", "events/2026/02/b.csv"], {"events": "events/**/*.csv"}),
        (["shop/names.csv", "shop/places.csv"], {"names": "shop/names.csv", "places": "shop/places.csv"}),
        (["a/x.csv", "b/x.csv"], {"a_x": "a/x.csv", "b_x": "b/x.csv"}),
        (["x.csv", "x.parquet"], {"x": "x.csv", "x_2": "x.parquet"}),
        (["a[1]*?.csv"], {"a_1": "a[[]1][*][?].csv"}),
        (["order_1.csv", "order_2.csv", "order_x.csv"], None),
        (["v1.2.csv", "v1.3.csv"], {"v": "v*.csv"}),
        (["30b5d2c8-7c1f-4f0e-9d3a-000000000001.csv"], {"_30b5d2c8_7c1f_4f0e_9d3a_000000000001": None}),
        (["été.csv", "数.csv"], {"ete": "été.csv", "table": "数.csv"}),
    ],
)
def test_groups(paths: list[str], expected: dict[str, str | None] | None) -> None:
    groups = groups_of(paths)
    found = dict(zip(table_ids([group.name for group in groups]), (group.pattern for group in groups), strict=True))
    assert sorted(path for group in groups for path in group.paths) == sorted(paths)
    if expected is None:  # order_*.csv would match all three
        assert {group.pattern for group in groups} == set(paths)
    else:
        assert found == {id: pattern or paths[0] for id, pattern in expected.items()}
