// Package port reserves TCP ports of the loopback interface for servers that get their address and are started later:
// those of `lockstep dev`, of the demo, of tests and of the cluster that they run on.
//
// It is not for servers that can be handed a listener: listen on port 0 and pass that on.
package port

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// Ports are chosen below the range that the kernel takes ports of outgoing connections and of "any port" from (32768 and up
// unless it was changed), so that no process gets one by accident while its owner is away.
const (
	first = 20000
	count = 12000
	// attempts at finding a free port before giving up.
	attempts = 2000
	// patience with a process that is just ending: so many looks, so far apart.
	looks     = 20
	lookAfter = 50 * time.Millisecond
)

// Reservation holds ports against all others on this machine who reserve theirs here, until it is released or the process
// ends, whether a process listens on them or not. The zero value holds none. It is not safe for concurrent use.
type Reservation struct{ held []io.Closer }

// Choose picks n free ports and holds them.
func Choose(n int) ([]int, *Reservation, error) {
	r := &Reservation{}
	var ports []int
	for range attempts {
		if len(ports) == n {
			return ports, r, nil
		}
		//nolint:gosec // which port it is need not be a secret
		if p := first + rand.IntN(count); r.hold(p) {
			ports = append(ports, p)
		}
	}
	r.Release()
	return nil, nil, fmt.Errorf("found %d free ports from %d to %d, expected %d", len(ports), first, first+count-1, n)
}

// ChooseFor is Choose with a name for each port.
func ChooseFor(names ...string) (map[string]int, *Reservation, error) {
	chosen, r, err := Choose(len(names))
	if err != nil {
		return nil, nil, fmt.Errorf("ports of %s: %w", strings.Join(names, ", "), err)
	}
	ports := make(map[string]int, len(names))
	for i, name := range names {
		ports[name] = chosen[i]
	}
	return ports, r, nil
}

// Hold takes one port that was chosen before. It gives a process that is just ending a second to let go of it; false when
// another one has it then, or ctx has ended.
func (r *Reservation) Hold(ctx context.Context, c clock.Clock, port int) bool {
	for range looks {
		if r.hold(port) {
			return true
		}
		if clock.Sleep(ctx, c, lookAfter) != nil {
			return false
		}
	}
	return false
}

// hold returns false if the port is reserved by another process, or in use.
func (r *Reservation) hold(port int) bool {
	claimed, err := claim(port)
	if err != nil {
		return false
	}
	// To listen here would take the port from its owner for as long as a child process, forked meanwhile, keeps the listener.
	//nolint:noctx // refused at once by the loopback interface
	if there, err := net.DialTimeout("tcp", Address(port), lookAfter); err == nil {
		_ = errors.Join(there.Close(), claimed.Close())
		return false
	}
	r.held = append(r.held, claimed)
	return true
}

// Release lets go of all ports.
func (r *Reservation) Release() {
	for _, c := range r.held {
		_ = c.Close()
	}
	r.held = nil
}

// Address is host:port of a port.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
