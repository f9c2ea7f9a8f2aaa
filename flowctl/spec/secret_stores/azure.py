"""Azure Key Vault, through its client: the credentials of ``DefaultAzureCredential``, the vault in each name."""

from __future__ import annotations

import logging
import re
from typing import Any

from flowctl.errors import AccessDenied, FlowctlError, TableError, TransientError
from flowctl.spec.secret_stores.store import CONNECT_TIMEOUT, READ_TIMEOUT, SecretStore

_HINT_CREDENTIALS = "Set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run: az login"

_ATTEMPTS: dict[str, Any] = {
    "retry_total": 1, "connection_timeout": CONNECT_TIMEOUT, "read_timeout": READ_TIMEOUT,
}  # fmt: skip
#: What a failed login says if the login service did not answer: the client has one error for all reasons.
_UNREACHABLE = re.compile(
    r"Max retries exceeded|[Cc]onnection (?:refused|reset|aborted)|timed out|Failed to (?:establish|resolve)|ProxyError"
)
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
# Without a handler, Python prints the warnings of each credential that was tried.
for _name in ("azure", "msal"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class KeyVault(SecretStore):
    title = "Azure Key Vault"
    clients = ("azure.keyvault.secrets", "azure.identity")
    name_form = re.compile(r"(?P<vault>[A-Za-z0-9][A-Za-z0-9.-]*)/(?P<secret>[A-Za-z0-9-]+)")
    example = "shop-vault/postgres"

    def __init__(self) -> None:
        from azure.identity import DefaultAzureCredential

        self._credential = DefaultAzureCredential(**_ATTEMPTS)

    def read(self, name: str, version: str) -> str:
        from azure.keyvault.secrets import SecretClient

        url, secret = _address(name)
        with SecretClient(url, self._credential, **_ATTEMPTS) as client:
            return client.get_secret(secret, version or None).value or ""

    @classmethod
    def explain(cls, error: Exception, name: str) -> FlowctlError | None:
        from azure.core import exceptions

        where = f"{cls.title} {_address(name)[0]}"
        match error:
            case exceptions.AzureError() if _UNTRUSTED in str(error):
                hint = "Set REQUESTS_CA_BUNDLE to the certificates of its authorities"
                return TableError(f"the certificate of {where}, or of its login, is not trusted", hint=hint)
            case exceptions.ResourceNotFoundError():
                what = f"{where} has no secret {name.rpartition('/')[2]}, or not in this version"
                return TableError(what, hint="Check the vault, the name and the version")
            case exceptions.ClientAuthenticationError() if _UNREACHABLE.search(str(error)):
                hint = "Check the network and run again"
                return TransientError(f"the login service of {where} cannot be reached", hint=hint)
            case exceptions.ClientAuthenticationError():
                what = f"the credentials for {where} are missing, expired or not accepted"
                return AccessDenied(what, hint=_HINT_CREDENTIALS)
            case exceptions.HttpResponseError(status_code=401 | 403):
                hint = "Grant the role Key Vault Secrets User on it, and check the vault's firewall"
                return AccessDenied(f"{where} refuses access to the secret, or the secret is disabled", hint=hint)
            case exceptions.HttpResponseError(status_code=int() as status):
                if status == 429 or status >= 500:
                    return TransientError(f"{where} is not available ({status})", hint="Try again later")
                return TableError(f"{where} does not give the secret ({status})", hint="Check the name and version")
            case exceptions.ServiceRequestError() | exceptions.ServiceResponseError():
                hint = "Check the vault's name and the network"
                return TransientError(f"{where} cannot be reached", hint=hint)
            case _:
                return None


def _address(name: str) -> tuple[str, str]:
    """The vault's URL, and the name of the secret in it. A vault in another cloud is written with its whole host."""
    vault, _, secret = name.partition("/")
    return f"https://{vault if '.' in vault else f'{vault}.vault.azure.net'}", secret
