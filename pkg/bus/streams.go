package bus

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
)

// The names of the streams.
const (
	StreamRegistry     = "REGISTRY"
	StreamClusterCalls = "CLUSTER_CALLS"
	StreamCluster      = "CLUSTER"
	StreamDomain       = "DOMAIN"
)

const (
	week = 7 * 24 * time.Hour
	// streamBytes bounds a stream that nobody consumes. It is reserved on the server's disk, so it is modest.
	streamBytes = 256 << 20
	// duplicateWindow is how long a stream recognizes the id of a message that is published again.
	duplicateWindow = 2 * time.Minute
)

// RegistryStream has what registries reported. Its publisher and its consumer both make it, whichever starts first.
func RegistryStream() Stream {
	return Stream{Name: StreamRegistry, Subjects: []string{"cd.registry.>"}, MaxAge: week, MaxBytes: streamBytes}
}

// ClusterCallsStream is calls to relays; each call goes when its agent has taken it.
func ClusterCallsStream() Stream {
	return Stream{
		Name: StreamClusterCalls, Subjects: []string{"cd.cluster.*." + event.ChannelCall},
		WorkQueue: true, MaxAge: 24 * time.Hour, MaxBytes: streamBytes,
	}
}

// ClusterStream is what relays answer and observe.
func ClusterStream() Stream {
	return Stream{
		Name:     StreamCluster,
		Subjects: []string{"cd.cluster.*." + event.ChannelResult, "cd.cluster.*." + event.ChannelEvent, "cd.cluster.*." + event.ChannelHeartbeat},
		MaxAge:   24 * time.Hour, MaxBytes: streamBytes,
	}
}

// DomainStream is what happened in the words of continuous delivery.
func DomainStream() Stream {
	return Stream{Name: StreamDomain, Subjects: []string{"cd.domain.>"}, MaxAge: week, MaxBytes: streamBytes}
}

// streamOf is the stream that stores what is published on a subject of the catalogue.
func streamOf(subject string) string {
	switch {
	case strings.HasPrefix(subject, "cd.registry."):
		return StreamRegistry
	case strings.HasPrefix(subject, "cd.domain."):
		return StreamDomain
	case strings.HasSuffix(subject, "."+event.ChannelCall):
		return StreamClusterCalls
	default:
		return StreamCluster
	}
}

// AgentConsumer is the consumer of the calls to one agent: made by the workflow service, pulled from by that agent's relay.
func AgentConsumer(agent int64) Consumer {
	return Consumer{
		Stream: StreamClusterCalls, Durable: fmt.Sprintf("agent-%d", agent),
		Filters: []string{event.ClusterSubject(agent, event.ChannelCall)}, Workers: 8,
	}
}
