package stack

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// Ports are chosen below the range that the kernel takes ports of outgoing connections from (32768 and up unless somebody
// changed it), so that no connection sits on one while its process is away.
const (
	firstPort = 20000
	portCount = 12000
	// attempts at finding a free port before giving up.
	attempts = 2000
)

// reservation holds ports against other stacks on this machine until it is released or the process ends.
type reservation struct{ held []io.Closer }

func (r *reservation) release() {
	for _, c := range r.held {
		_ = c.Close()
	}
}

// hold takes one port; false when another stack has it, or somebody listens there.
func (r *reservation) hold(port int) bool {
	claim, err := claimPort(port)
	if err != nil {
		return false
	}
	//nolint:noctx // bound at once or not at all
	probe, err := net.Listen("tcp", address(port))
	if err != nil {
		_ = claim.Close()
		return false
	}
	_ = probe.Close()
	r.held = append(r.held, claim)
	return true
}

// choose picks and holds a free port for each name.
func choose(names []string) (map[string]int, *reservation, error) {
	r := &reservation{}
	ports := map[string]int{}
	for range attempts {
		if len(ports) == len(names) {
			return ports, r, nil
		}
		//nolint:gosec // which port it is need not be a secret
		if port := firstPort + rand.IntN(portCount); r.hold(port) {
			ports[names[len(ports)]] = port
		}
	}
	r.release()
	return nil, nil, fmt.Errorf("found %d free ports from %d to %d, expected %d", len(ports), firstPort, firstPort+portCount-1, len(names))
}

// reserve holds the ports of an earlier run.
func reserve(ctx context.Context, c clock.Clock, ports map[string]int) (*reservation, error) {
	r := &reservation{}
	for _, name := range portNames() {
		port, ok := ports[name]
		if !ok {
			r.release()
			return nil, fmt.Errorf("port of %s: found none, expected one of each of %q", name, portNames())
		}
		if !r.holdSoon(ctx, c, port) {
			r.release()
			return nil, fmt.Errorf("port %d, chosen for %s in an earlier run, is in use", port, name)
		}
	}
	return r, nil
}

// holdSoon gives a process that is just ending a moment to let go of the port.
func (r *reservation) holdSoon(ctx context.Context, c clock.Clock, port int) bool {
	for range 20 {
		if r.hold(port) {
			return true
		}
		if clock.Sleep(ctx, c, 50*time.Millisecond) != nil {
			return false
		}
	}
	return false
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// portNames are what a port is needed for.
func portNames() []string {
	names := []string{"nats", "oci", "git", "cluster", "registry", "domain", "workflow"}
	for _, service := range []string{"registry", "domain", "workflow", "relay"} {
		names = append(names, service+"-health")
	}
	slices.Sort(names)
	return names
}
