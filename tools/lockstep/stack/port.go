package stack

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
)

// reserve holds the ports of an earlier run.
func reserve(ctx context.Context, c clock.Clock, ports map[string]int) (*port.Reservation, error) {
	r := &port.Reservation{}
	for _, name := range portNames() {
		p, ok := ports[name]
		if !ok {
			r.Release()
			return nil, fmt.Errorf("port of %s: found none, expected one of each of %q", name, portNames())
		}
		if !r.Hold(ctx, c, p) {
			r.Release()
			return nil, fmt.Errorf("port %d, chosen for %s in an earlier run, is in use", p, name)
		}
	}
	return r, nil
}

// portNames are what a port is needed for.
func portNames() []string {
	names := []string{"nats", "oci", "git", "cluster", "registry", "domain", "workflow"}
	for _, service := range []string{"registry", "domain", "workflow", "relay"} {
		names = append(names, service+"-health")
	}
	slices.Sort(names)
	return names
}
