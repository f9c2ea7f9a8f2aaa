// HashiCorp Vault for tests: its own core and HTTP API with KV and AppRole, in memory, initialized and unsealed.
//
//	vault ADDRESS TOKEN_FILE
package main

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/hashicorp/go-hclog"
	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/builtin/credential/approle"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

var engines = map[string]logical.Factory{"kv": kv.Factory}
var logins = map[string]logical.Factory{"approle": approle.Factory}

// plugins is the catalog: all of them are compiled in.
type plugins struct{}

func (plugins) Get(name string, kind consts.PluginType) (func() (any, error), bool) {
	factory, found := of(kind)[name]
	return func() (any, error) { return factory, nil }, found
}

func (plugins) Contains(name string, kind consts.PluginType) bool {
	_, found := of(kind)[name]
	return found
}

func (plugins) Keys(kind consts.PluginType) (names []string) {
	for name := range of(kind) {
		names = append(names, name)
	}
	return names
}

func (p plugins) DeprecationStatus(name string, kind consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, p.Contains(name, kind)
}

func (plugins) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }

func of(kind consts.PluginType) map[string]logical.Factory {
	switch kind {
	case consts.PluginTypeSecrets:
		return engines
	case consts.PluginTypeCredential:
		return logins
	}
	return nil
}

func main() {
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Error})
	memory, err := inmem.NewInmem(nil, logger)
	check(err)
	core, err := vault.NewCore(&vault.CoreConfig{
		Physical:           memory,
		Logger:             logger,
		DisableMlock:       true,
		LogicalBackends:    engines,
		CredentialBackends: logins,
		BuiltinRegistry:    plugins{},
	})
	check(err)
	one := &vault.SealConfig{SecretShares: 1, SecretThreshold: 1}
	made, err := core.Initialize(context.Background(), &vault.InitParams{BarrierConfig: one})
	check(err)
	_, err = core.Unseal(made.SecretShares[0])
	check(err)
	check(os.WriteFile(os.Args[2], []byte(made.RootToken), 0o600))
	listener := &configutil.Listener{Type: "tcp"}
	handler := vaulthttp.Handler.Handler(&vault.HandlerProperties{Core: core, ListenerConfig: listener})
	check(http.ListenAndServe(os.Args[1], handler))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
