package pg

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// secured gives a connection's configuration the certificates of c.TLS, and answers what gives a later connection those that
// the files hold by then: existing connections stay as they are.
func (c Config) secured(cc *pgx.ConnConfig) (func(context.Context, *pgx.ConnConfig) error, error) {
	log := cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	client, err := c.TLS.Client(log)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	for _, host := range hosts(cc) {
		if strings.HasPrefix(host, "/") {
			return nil, fault.New(fault.Invalid, "database URL: found the socket %s beside certificates; expected a host, or no certificates", host)
		}
	}
	secure(cc, client)
	return func(_ context.Context, cc *pgx.ConnConfig) error {
		secure(cc, client)
		return nil
	}, nil
}

func hosts(cc *pgx.ConnConfig) []string {
	all := []string{cc.Host}
	for _, f := range cc.Fallbacks {
		all = append(all, f.Host)
	}
	return all
}

// secure encrypts every way that a connection has. Those that differ only in being encrypted or not, which sslmode=prefer makes
// of each host, become one.
func secure(cc *pgx.ConnConfig, client *certs.Client) {
	type address struct {
		host string
		port uint16
	}
	known := map[address]bool{{cc.Host, cc.Port}: true}
	cc.TLSConfig = client.Config(cc.Host)
	var ways []*pgconn.FallbackConfig
	for _, f := range cc.Fallbacks {
		if at := (address{f.Host, f.Port}); !known[at] {
			known[at] = true
			ways = append(ways, &pgconn.FallbackConfig{Host: f.Host, Port: f.Port, TLSConfig: client.Config(f.Host)})
		}
	}
	cc.Fallbacks = ways
}
