package bus_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
)

// TestEveryAccountAtEverySubject (E13): each account of an installation tries each subject there is, its own and everybody else's, and
// the server lets it do what the table says and nothing beside.
func TestEveryAccountAtEverySubject(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	everything(t, server)
	doors := bustest.Doors(t, 42, 43)
	for _, user := range []string{
		bus.UserRegistry, bus.UserDomain, bus.UserWorkflow, bus.RelayUser(42), bus.RelayUser(43),
		bus.RelayUser(44),
	} {
		bustest.Try(t, server.Raw(t, user), user, doors)
	}
}
