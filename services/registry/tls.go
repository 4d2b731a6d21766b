package registry

import (
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// natsTLS, databaseTLS and httpTLS are the certificates of these connections.
func (c Config) natsTLS() certs.Files {
	return certs.Files{Cert: c.NATSCertFile, Key: c.NATSKeyFile, CA: c.NATSCAFile}
}

func (c Config) databaseTLS() certs.Files {
	return certs.Files{Cert: c.DatabaseCertFile, Key: c.DatabaseKeyFile, CA: c.DatabaseCAFile}
}

func (c Config) httpTLS() certs.Files { return certs.Files{Cert: c.HTTPCertFile, Key: c.HTTPKeyFile} }

// tlsProblems are what is wrong with the certificates of all connections.
func (c Config) tlsProblems() []fault.Field {
	return slices.Concat(c.natsTLS().Check("nats_"), c.databaseTLS().Check("database_"), c.httpTLS().Check("http_"))
}
