package pg_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// D66: of several hosts the one that takes writes is used, unless the URL says otherwise.
func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"postgres://a/x":                                                  false,
		"postgres://a/x?sslmode=prefer":                                   false, // two ways to one host
		"postgres://a:5432,b:5432/x":                                      true,
		"postgres://a:5432,a:5433/x":                                      true,
		"host=a,b dbname=x sslmode=disable":                               true,
		"postgres://a,b/x?target_session_attrs=read-only&sslmode=disable": true,
	} {
		c, err := pg.PoolConfig(pg.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ConnConfig.ValidateConnect != nil; got != want {
			t.Errorf("%s: a connection is checked: %v, want %v", url, got, want)
		}
	}
}
