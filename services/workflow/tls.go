package workflow

import (
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// natsTLS, databaseTLS are the certificates of these connections.
func (c Config) natsTLS() certs.Files {
	return certs.Files{Cert: c.NATSCertFile, Key: c.NATSKeyFile, CA: c.NATSCAFile}
}

func (c Config) databaseTLS() certs.Files {
	return certs.Files{Cert: c.DatabaseCertFile, Key: c.DatabaseKeyFile, CA: c.DatabaseCAFile}
}

// tlsProblems are what is wrong with the certificates of these connections.
func (c Config) tlsProblems() []fault.Field {
	return slices.Concat(c.natsTLS().Check("nats_"), c.databaseTLS().Check("database_"))
}
