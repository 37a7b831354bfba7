"""`relight console [PLACE...]`."""

from __future__ import annotations

import os
import re

import click

from supervisor.errors import UserError

DEFAULT_PORT = 8440
PORT_MAX = 65_535


def _address(given: str) -> tuple[str, int]:
    """HOST:PORT, or HOST alone; an address of IPv6 stands in brackets. Raises UserError."""
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::(\d{1,5}))?", given, re.ASCII)
    port = int(found[2] or DEFAULT_PORT) if found else -1
    if found is None or port > PORT_MAX:
        raise UserError(f"--listen {given}: wanted HOST:PORT, such as 127.0.0.1:{DEFAULT_PORT} or [::1]:{DEFAULT_PORT}")
    return found[1].strip("[]"), port


@click.command(
    "console",
    epilog="""\b
Examples:
  relight token add li.wei --role approver
  relight console
  relight console /data/runs --listen 10.0.0.7:8440 --cert host.pem --key host.key
  ssh -L 8440:127.0.0.1:8440 login1      then http://127.0.0.1:8440/""",
)
@click.argument("places", nargs=-1, type=click.Path())
@click.option("--listen", default=f"127.0.0.1:{DEFAULT_PORT}", show_default=True, metavar="HOST:PORT")
@click.option("--cert", default="", type=click.Path(), help="TLS certificate, PEM.")
@click.option("--key", default="", type=click.Path(), help="Its private key, PEM.")
@click.option(
    "--plain-http",
    is_flag=True,
    help="No TLS on an address that others reach. Whoever is on the wire reads the tokens and may approve with them.",
)
@click.option("--tokens", default="", type=click.Path(), help="The file of tokens; default: that of `relight token`.")
@click.option("--audit", default="", type=click.Path(), help="The audit log; default: ~/.local/state/relight/.")
@click.option("--proxy", default="", metavar="ADDRESS", help="Believe X-Forwarded-For of this reverse proxy.")
def command(
    places: tuple[str, ...], listen: str, cert: str, key: str, plain_http: bool, tokens: str, audit: str, proxy: str
) -> int:
    """Serve the runs at PLACE over HTTP: run directories, or folders of them; default ./relight-runs.

    It reads them and files requests, as the other commands do.
    """
    try:
        from supervisor.console import serve  # noqa: PLC0415 - an extra that may not be installed
    except ImportError as error:
        raise UserError(f"the console needs {error.name}: pip install 'relight[console]'") from None

    host, port = _address(listen)
    for place in places:
        if not os.path.isdir(place):
            raise UserError(f"{place}: there is no such folder. Give run directories, or folders of them")
    where = serve.Where(places or ("relight-runs",), host, port, cert, key, plain_http, tokens, audit, proxy)

    def listening(at: str) -> None:
        click.echo(f"relight console on {at} (tokens: relight token list)")
        if not places and not os.path.isdir("relight-runs"):
            click.echo("No run is below ./relight-runs yet: one is shown as soon as it is there.", err=True)

    return serve.run(where, listening)
