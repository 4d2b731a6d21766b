package events

import "github.com/lockstep-cd/lockstep/pkg/bus"

// Topology is what the service creates on the bus: the one stream that it writes and the domain reads.
func Topology() bus.Topology {
	return bus.Topology{Streams: []bus.Stream{bus.RegistryStream()}}
}
