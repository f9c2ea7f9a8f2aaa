"""Credentials, buckets and servers that are wrong: named in words, at once, without any secret."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.delta.location import TableLocation
from flowctl.errors import FlowctlError, TransientError
from flowctl.storage.folders import look_at
from flowctl.storage.options import open_store
from tests.e2e.flows import Flow, sqlite_script
from tests.services.azurite import AzureServer
from tests.services.processes import HOST, free_port
from tests.services.web import Handler, serving
from tests.storage.stores import Bucket

OTHER_KEY = "b3RoZXIta2V5LW9mLXRoZS10ZXN0cw=="
SPEC = """
version: 1
flow: shop
state: {url}/_flowctl
storage: {{"{url}": {{account: shopaccount, account_key: "${{secret:env:KEY}}", endpoint: "{endpoint}"}}}}
connections:
  src: {{type: sqlite, path: source.db}}
  dst: {{type: sqlite, path: target.db}}
spark: {{url: sail}}
tables:
  orders: {{from: src:orders, to: dst:copy, mode: truncate}}
"""


def refusal(url: str, options: dict[str, Any], use: str = "write") -> FlowctlError:
    """The error of the state's store, or of a connection's with ``use`` "look"."""
    storage = {url: options}
    with pytest.raises(FlowctlError) as caught:
        look_at(url, storage) if use == "look" else open_store(f"{url}/state", storage).create("1.json", b"{}")
    return caught.value


def signature(server: AzureServer, key: str, days: int) -> str:
    """A shared access signature that ends so many days from now."""
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    kinds, rights = ResourceTypes(service=True, container=True, object=True), AccountSasPermissions.from_string("rwl")
    ends = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    return str(generate_account_sas(server.account, key, kinds, rights, ends, ends - dt.timedelta(days=30)))


@pytest.mark.parametrize("use", ["write", "look"])
def test_a_wrong_key_or_signature_is_named(azure_server: AzureServer, use: str) -> None:
    url, options = azure_server.make_bucket("refused-" + use), azure_server.storage()
    wrong_key = refusal(url, options | {"account_key": OTHER_KEY}, use)
    assert "refuses access: the account key or the token is wrong or has expired" in wrong_key.message
    del options["account_key"]
    wrong = refusal(url, options | {"sas_token": signature(azure_server, OTHER_KEY, 10)}, use)
    assert "refuses access: the account key or the token is wrong or has expired" in wrong.message
    late = refusal(url, options | {"sas_token": signature(azure_server, azure_server.account_key, -1)}, use)
    assert re.fullmatch(rf"the shared access signature of {url}\S* expired on \d{{4}}-\S+", late.message)
    for error in (wrong_key, wrong, late):
        assert "sig=" not in error.sentences and OTHER_KEY not in error.sentences and "<?xml" not in error.sentences


def test_a_signature_that_is_right_is_enough(azure_server: AzureServer) -> None:
    url, options = azure_server.make_bucket("signed"), azure_server.storage()
    del options["account_key"]
    options["sas_token"] = signature(azure_server, azure_server.account_key, 1)
    store = open_store(f"{url}/state", {url: options})
    assert store.create("1.json", b"{}") and store.get("1.json") == b"{}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"account": "shop", "account_key": "not*base64"}, "the account key of az://lake/state is not base64"),
        ({"account_key": OTHER_KEY}, "the storage account of az://lake/state is not known"),
        ({"connection_string": "not*base64"}, "the connection string of the storage account cannot be read"),
    ],
)
def test_what_cannot_be_right_is_not_sent(options: dict[str, str], message: str) -> None:
    error = refusal("az://lake", options)
    assert message in error.message and error.hint
    assert "not*base64" not in error.sentences and OTHER_KEY not in error.sentences


def test_a_missing_bucket_is_named(bucket: Bucket) -> None:
    missing = bucket.url + "-missing"
    error = refusal(missing, bucket.server.storage())
    assert re.fullmatch(
        rf"{missing}/state: there is no (bucket|container) {missing.partition('://')[2]}", error.message
    )


@pytest.mark.full
@pytest.mark.parametrize("url", ["az://lake", "gs://lake"])
def test_a_server_that_is_down_is_given_up_in_time(url: str) -> None:
    endpoint = f"http://{HOST}:{free_port()}"
    kinds = {"az": {"account": "shop", "account_key": OTHER_KEY}, "gs": {"anonymous": True}}
    error = refusal(url, {**kinds[url[:2]], "endpoint": endpoint})
    assert f"cannot write {url}/state/" in error.message and endpoint.partition("://")[2] in error.message


@pytest.fixture(scope="module")
def private_key() -> str:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture
def service_account(private_key: str) -> Iterator[Callable[..., str]]:
    """A service account's key, whose tokens are asked for at a server that knows none."""

    class Refusing(Handler):
        def respond(self) -> None:
            self.answer(400, b'{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}')

    with serving(Refusing) as port:
        key = {"type": "service_account", "client_email": "etl@shop", "token_uri": f"http://{HOST}:{port}/token"}
        yield lambda **changes: json.dumps({**key, "private_key_id": "1", "private_key": private_key, **changes})


def test_a_service_account_that_is_refused_or_damaged_is_named(
    service_account: Callable[..., str], private_key: str, tmp_path: Path
) -> None:
    damaged = private_key[:100] + private_key[200:]
    missing = tmp_path / "key.json"
    errors = {
        "refuses access: the service account's key is not valid any more": {"service_account_key": service_account()},
        "key for gs:// is damaged or not whole": {"service_account_key": service_account(private_key=damaged)},
        "key for gs:// is not JSON": {"service_account_key": private_key},
        f"key file {missing} cannot be read: No such file": {"service_account_file": str(missing)},
    }
    for message, options in errors.items():
        error = refusal("gs://lake", options)
        assert message in error.message and error.hint
        assert not any(line in error.sentences for line in private_key.splitlines())


def test_a_command_shows_the_line_of_the_spec(azure_server: AzureServer, tmp_path: Path) -> None:
    url = azure_server.make_bucket("shown")
    flow = Flow(tmp_path, {"KEY": OTHER_KEY})
    sqlite_script(tmp_path / "source.db", "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    flow.write(SPEC.format(url=url, endpoint=azure_server.endpoint))
    done = flow.run("plan", "flow.yaml", expect=1)
    assert f"error: flow.yaml:4:8: {url}/_flowctl/shop refuses access" in done.words
    assert "Renew the credentials" in done.words and OTHER_KEY not in done.words


def test_a_delta_table_is_refused_by_errors_of_the_system(bucket: Bucket) -> None:
    missing = bucket.url + "-missing"
    table = TableLocation(f"{missing}/lake/orders", {missing: bucket.server.storage()})
    with pytest.raises(OSError, match=r".+"):
        table.read_file("_delta_log/_last_checkpoint")
    with pytest.raises(OSError, match=r".+"):
        table.write_file("part-0.parquet", b"")
    with pytest.raises(TransientError, match="could not be written"):
        table.create_file("_delta_log/0.json", b"{}")
