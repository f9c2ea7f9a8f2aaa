"""Sessions that compile queries, and what is spared from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flowctl.engine.session import INTERPRETED, compiles, interpreted
from flowctl.run.connect import missing_modules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_settings_are_put_back_as_they_were(spark: SparkSession) -> None:
    before = {name: spark.conf.get(name, None) for name in INTERPRETED}
    with pytest.raises(ZeroDivisionError), interpreted(spark):
        assert not compiles(spark)
        raise ZeroDivisionError
    assert {name: spark.conf.get(name, None) for name in INTERPRETED} == before


def test_an_executor_names_the_modules_that_it_lacks(spark: SparkSession) -> None:
    assert missing_modules(spark, ["psycopg", "no_such_module", "pyarrow"]) == ["no_such_module"]
