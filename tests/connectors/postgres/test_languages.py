"""Servers that do not speak English."""

from __future__ import annotations

import pytest

from flowctl.connectors.postgres.executors import without_values


@pytest.mark.parametrize(
    "message",
    [
        'invalid input syntax for type integer: "geheim"',
        "ungültige Eingabesyntax für Typ integer: »geheim«",
        "syntaxe en entrée invalide pour le type integer : « geheim »",
        "неверный синтаксис для типа integer: geheim",
    ],
)
def test_no_language_shows_a_value(message: str) -> None:
    assert "geheim" not in without_values("22P02", message)
