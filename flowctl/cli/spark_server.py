"""`flowctl spark-server`: a Spark Connect server with flowctl's jars and settings, in the foreground."""

from __future__ import annotations

import click

from flowctl.cli import output
from flowctl.cli.arguments import pairs


@click.command("spark-server")
@click.option("--port", type=click.IntRange(0, 65535), default=15002, show_default=True, help="0 is any free one.")
@click.option(
    "--bind",
    "host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Where to listen. Spark Connect has no passwords: any other address is for networks that keep others out.",
)
@click.option("--url", default="local[*]", show_default=True, metavar="MASTER", help="Where Spark runs.")
@click.option(
    "--conf",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pairs,
    help="A setting of Spark, as in a spec's spark.conf; repeatable.",
)
def command(port: int, host: str, url: str, conf: dict[str, str]) -> int:
    """Run a Spark Connect server for many short runs: one warm JVM with the jars of all connectors.

    Specs use it with `spark: {url: sc://HOST:PORT}`. It ends with SIGTERM or Ctrl-C; runs under way then fail and are
    finished by the next ones.
    """
    from flowctl.engine.conf import is_connect, is_sail
    from flowctl.engine.server import Address, serve
    from flowctl.spec.spec import SparkSettings

    if is_connect(url) or is_sail(url):
        raise click.BadParameter(f"{url} is no Spark that a server can start", param_hint="--url")
    settings = output.settings()

    def ready(at: str) -> None:
        if settings.format == "json":
            output.write_json({"format": 1, "url": at})
        else:
            output.write_result(f"Spark Connect at {at} (Ctrl-C ends it)")

    serve(SparkSettings(url, conf), Address(host, port), ready, verbose=settings.verbose, say=output.write_line)
    return 0
