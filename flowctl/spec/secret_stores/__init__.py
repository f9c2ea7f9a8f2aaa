"""The stores that secrets are read from, by the name that a reference gives them."""

from __future__ import annotations

from flowctl.spec.secret_stores.aws import SecretsManager
from flowctl.spec.secret_stores.azure import KeyVault
from flowctl.spec.secret_stores.gcp import SecretManager
from flowctl.spec.secret_stores.store import SecretStore
from flowctl.spec.secret_stores.vault import Vault

STORES: dict[str, type[SecretStore]] = {
    "vault": Vault,
    "aws": SecretsManager,
    "gcp": SecretManager,
    "azure": KeyVault,
}
