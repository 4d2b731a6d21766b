package pg

import "github.com/lockstep-cd/lockstep/pkg/certs"

// Database is what every service with tables configures about PostgreSQL; a service's Config embeds it. Schema and the number of
// connections are the service's own keys, since their defaults differ.
type Database struct {
	// DatabaseURL is the URL of the PostgreSQL server, with the account that the service logs in as. With several hosts, separated by commas
	// (postgres://lockstep@a:5432,b:5432/lockstep), the one that takes writes is used, also after a failover.
	DatabaseURL string `koanf:"database_url" secret:"true"`
	// DatabaseDirectURL is the URL of the same database past a pooler, and is needed if database_url is that of one which gives each
	// transaction a connection of its own to the server, as PgBouncer with pool_mode=transaction. Migrations, locks of sessions and
	// notifications use it. The service's subcommand pgbouncer prints the pooler's entry. Empty: database_url leads to the server itself.
	DatabaseDirectURL string `koanf:"database_direct_url" secret:"true"`
	// DatabaseCAFile holds the certificate authorities that PostgreSQL's certificate is verified against. DatabaseCertFile and
	// DatabaseKeyFile are the client certificate, for a server that requires one. If any of them is set, every connection is encrypted
	// and the server's name is verified, whatever sslmode the URL has. Replaced files take effect at the next connection.
	DatabaseCAFile   string `koanf:"database_ca_file"`
	DatabaseCertFile string `koanf:"database_cert_file"`
	DatabaseKeyFile  string `koanf:"database_key_file"`
}

// Certificates are those of the connections; Check of them names the keys with the prefix database_.
func (d Database) Certificates() certs.Files {
	return certs.Files{Cert: d.DatabaseCertFile, Key: d.DatabaseKeyFile, CA: d.DatabaseCAFile}
}
