// Package porttest finds addresses for the servers of tests.
//
// It is for tests only.
package porttest

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
)

// FreeAddress is a loopback address, host:port, that is the test's own until it ends: no other test gets it meanwhile, in
// this process or another, also while nobody listens on it. A server may so be stopped and started again on it. One that can
// be handed a listener does not need it.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	ports, reservation, err := port.Choose(1)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(reservation.Release)
	return port.Address(ports[0])
}
