"""`flowctl spark-server`: a Spark Connect server with flowctl's jars and settings, in the foreground."""

from __future__ import annotations

import click

from flowctl.cli import output
from flowctl.cli.arguments import pairs


@click.command("spark-server")
@click.option("--port", type=click.IntRange(0, 65535), default=15002, show_default=True, help="0 chooses a free port.")
@click.option(
    "--bind",
    "host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. Spark Connect has no passwords: use any other address in isolated networks only.",
)
@click.option("--url", default="local[*]", show_default=True, metavar="MASTER", help="Where Spark runs.")
@click.option(
    "--conf",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pairs,
    help="A Spark setting, as in a spec's spark.conf; repeatable.",
)
def command(port: int, host: str, url: str, conf: dict[str, str]) -> int:
    """Run a Spark Connect server for many short runs: one warm JVM with the jars of all connectors.

    Specs use it with `spark: {url: sc://HOST:PORT}`. SIGTERM or Ctrl-C ends it; active runs then fail and are
    finished by the next ones.
    """
    from flowctl.connectors import registry
    from flowctl.engine.conf import is_connect, is_sail
    from flowctl.engine.server import Address, serve
    from flowctl.spec.spec import SparkSettings

    if is_connect(url) or is_sail(url):
        raise click.BadParameter(f"a server cannot start {url}", param_hint="--url")
    settings = output.settings()

    def ready(at: str) -> None:
        if settings.format == "json":
            output.write_json({"format": 1, "url": at})
        else:
            output.write_result(f"Spark Connect at {at} (Ctrl-C ends it)")

    address = Address(host, port)
    serve(
        SparkSettings(url, conf),
        address,
        ready,
        extensions=registry.extensions(),
        verbose=settings.verbose,
        say=output.write_line,
    )
    return 0
