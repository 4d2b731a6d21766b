package bus

import (
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// NATS is what every service configures about the event bus; a service's Config embeds it. The account's name is the service's own key,
// since each has its own.
type NATS struct {
	// NATSURL is the address of the event bus: nats://host:4222, tls://host:4222, or several, separated by commas.
	NATSURL string `koanf:"nats_url" default:"nats://127.0.0.1:4222"`
	// NATSPassword is the password of nats_user.
	NATSPassword string `koanf:"nats_password" secret:"true"`
	// NATSCAFile holds the certificate authorities that NATS's certificate is verified against. NATSCertFile and NATSKeyFile are the
	// client certificate, for a server that requires one. If any of them is set, a server without TLS is refused. Replaced files take
	// effect at the next connection.
	NATSCAFile   string `koanf:"nats_ca_file"`
	NATSCertFile string `koanf:"nats_cert_file"`
	NATSKeyFile  string `koanf:"nats_key_file"`
}

// Config is the connection of a service, which logs in as user.
func (n NATS) Config(name, user string) Config {
	return Config{URL: n.NATSURL, User: user, Password: n.NATSPassword, TLS: n.Certificates(), Name: name}
}

// Certificates are those of the connection.
func (n NATS) Certificates() certs.Files {
	return certs.Files{Cert: n.NATSCertFile, Key: n.NATSKeyFile, CA: n.NATSCAFile}
}

// Check returns what is wrong with the settings, by key.
func (n NATS) Check() []fault.Field {
	return slices.Concat(n.Certificates().Check("nats_"), CheckURL("nats_url", n.NATSURL))
}
