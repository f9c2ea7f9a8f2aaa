"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def spec_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """``SPEC``, the path of one spec file, as ``spec_path``."""
    return click.argument("spec_path", metavar="SPEC", type=click.Path(dir_okay=False))(function)


def variables_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--var name=value``, repeatable, as the map ``variables``."""
    return click.option(
        "--var",
        "variables",
        metavar="NAME=VALUE",
        multiple=True,
        callback=pairs,
        help="A value for one of the spec's `vars`; repeatable.",
    )(function)


def pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """A click callback: repeated ``NAME=VALUE`` as a map."""
    found_pairs = [text.partition("=") for text in values]
    for name, found, _ in found_pairs:
        if not found or not name:
            raise click.BadParameter(f"{name!r} is not NAME=VALUE", context, parameter)
    return {name: value for name, _, value in found_pairs}
