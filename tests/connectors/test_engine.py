"""Sessions that compile queries, and what is spared from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flowctl.connectors.engine import INTERPRETED, compiles, interpreted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_settings_are_put_back_as_they_were(spark: SparkSession) -> None:
    before = {name: spark.conf.get(name, None) for name in INTERPRETED}
    with pytest.raises(ZeroDivisionError), interpreted(spark):
        assert not compiles(spark)
        raise ZeroDivisionError
    assert {name: spark.conf.get(name, None) for name in INTERPRETED} == before
