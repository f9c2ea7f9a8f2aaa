module flowctl.test/vault

go 1.25.3

require (
	github.com/hashicorp/vault v1.21.4
	github.com/hashicorp/vault-plugin-secrets-kv v0.25.0
)

// As in Vault's own go.mod: its SDK under the version that it was published as.
replace (
	github.com/hashicorp/vault/sdk => github.com/hashicorp/vault/sdk v0.20.0
	github.com/ma314smith/signedxml v1.1.1 => github.com/moov-io/signedxml v1.1.1
)
