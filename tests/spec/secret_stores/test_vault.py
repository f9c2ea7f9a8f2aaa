"""Vault's logins, engines and namespaces, and what it says of tokens, paths and its own state."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flowctl.errors import AccessDenied, TableError, TransientError
from flowctl.redaction import REDACTOR
from tests.services import vault
from tests.services.vault import VaultServer
from tests.spec.secret_stores.conftest import VAULTS
from tests.spec.secret_stores.places import Place, Vault, fail_to_read, read

SHOP = "vault:secret/shop/pg"
#: For what is known of Vault itself, and for what only the edge in ``tests/services`` shows.
both = pytest.mark.parametrize("opened", VAULTS, indirect=True)
edge = pytest.mark.parametrize("opened", ["vault"], indirect=True)
pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture
def shop(place: Place) -> Vault:
    """``secret/shop/pg`` and ``old/pg`` have passwords."""
    assert isinstance(place, Vault)
    place.put_unversioned("pg", {"password": "s3cret-of-kv-1"})
    place.put("pg", '{"password": "s3cret-value"}')
    return place


@pytest.fixture
def server(shop: Vault) -> VaultServer:
    server: VaultServer = shop.server
    server.requests.clear()
    server.tokens = {vault.TOKEN}
    return server


@both
def test_paths_are_those_of_vault_kv_get() -> None:
    assert read(f"{SHOP}#password") == "s3cret-value"
    assert read("vault:old/pg#password") == "s3cret-of-kv-1"
    error = fail_to_read("vault:secret/data/shop/pg#password")
    assert error.hint == "Write the path as for `vault kv get`, without `data/`"
    assert fail_to_read("vault:old/pg?version=1").hint == "Remove `?version=…`"


@edge
def test_every_request_names_the_namespace(server: VaultServer) -> None:
    read(f"{SHOP}#password")
    assert server.namespaces == {vault.NAMESPACE}


@edge
def test_parallel_threads_cause_one_read(server: VaultServer) -> None:
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(read, [f"{SHOP}#password"] * 64)) == {"s3cret-value"}
    assert server.requests == ["sys/internal/ui/mounts/secret/shop/pg", "secret/data/shop/pg"]


@edge
def test_generated_user_and_password_belong_together(server: VaultServer) -> None:
    user, password = read("vault:database/creds/etl#username"), read("vault:database/creds/etl#password")
    assert server.requests.count("database/creds/etl") == 1
    assert user.startswith("v-") and password.startswith("pw-")


@edge
def test_a_role_logs_in_once(server: VaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VAULT_TOKEN")
    monkeypatch.setenv("VAULT_AUTH_METHOD", "approle")
    monkeypatch.setenv("VAULT_ROLE_ID", vault.ROLE)
    monkeypatch.setenv("VAULT_SECRET_ID", vault.SECRET_ID)
    assert read(f"{SHOP}#password") == "s3cret-value"
    assert read("vault:old/pg#password") == "s3cret-of-kv-1"
    assert server.requests.count("auth/approle/login") == 1
    assert REDACTOR.redact(" ".join([vault.SECRET_ID, *server.tokens - {vault.TOKEN}])) == "*** ***"


@both
def test_a_role_reads_what_its_policy_allows(shop: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    role, secret = shop.role()
    monkeypatch.delenv("VAULT_TOKEN")
    monkeypatch.setenv("VAULT_AUTH_METHOD", "approle")
    monkeypatch.setenv("VAULT_ROLE_ID", role)
    monkeypatch.setenv("VAULT_SECRET_ID", secret)
    assert read(f"{SHOP}#password") == "s3cret-value"
    assert REDACTOR.redact(f"with {secret}") == "with ***"


@edge
def test_a_pod_logs_in_with_its_service_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VAULT_TOKEN")
    (tmp_path / "token").write_text(vault.JWT + "\n")
    monkeypatch.setenv("VAULT_AUTH_METHOD", "kubernetes")
    monkeypatch.setenv("VAULT_ROLE_ID", vault.ROLE)
    monkeypatch.setenv("VAULT_LOGIN_MOUNT_POINT", "pods")
    error = fail_to_read(f"{SHOP}#password")
    assert "/var/run/secrets/kubernetes.io" in error.message
    monkeypatch.setenv("VAULT_KUBERNETES_JWT_TOKEN_PATH", str(tmp_path / "token"))
    assert read(f"{SHOP}#password") == "s3cret-value"


@both
def test_a_login_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_AUTH_METHOD", "approle")
    error = fail_to_read(f"{SHOP}#password")
    assert type(error) is TableError and error.hint == "Set VAULT_ROLE_ID"
    monkeypatch.setenv("VAULT_ROLE_ID", "another")
    monkeypatch.setenv("VAULT_SECRET_ID", "secret-id-of-another")
    error = fail_to_read(f"{SHOP}#password", "secret-id-of-another")
    assert type(error) is AccessDenied and "refuses the login" in error.message and "VAULT_SECRET_ID" in error.hint
    monkeypatch.setenv("VAULT_AUTH_METHOD", "magic")
    assert fail_to_read(SHOP).hint == "Set it to token, approle or kubernetes"


@both
def test_a_token_that_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_TOKEN", "hvs.expired-token")
    error = fail_to_read(f"{SHOP}#password", "hvs.expired-token")
    assert type(error) is AccessDenied and "has expired" in error.message and "vault login" in error.hint


@both
def test_no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VAULT_TOKEN")
    monkeypatch.setenv("HOME", str(tmp_path))
    error = fail_to_read(f"{SHOP}#password")
    assert type(error) is AccessDenied and "there is no token" in error.message


@both
def test_a_path_that_no_engine_has() -> None:
    error = fail_to_read("vault:kv/shop/pg")
    assert type(error) is AccessDenied and "refuses access to kv/shop/pg" in error.message and "path" in error.hint


@edge
def test_a_sealed_vault_is_tried_again(server: VaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "failing", 503)
    error = fail_to_read(f"{SHOP}#password")
    assert type(error) is TransientError and "sealed" in error.message
    assert server.url.removeprefix("http://") in error.message


@both
def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_ADDR", "vault.shop")
    error = fail_to_read(SHOP)
    assert type(error) is TableError and error.message == "VAULT_ADDR is not a URL"
