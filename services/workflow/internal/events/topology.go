// Package events joins the engine to the event bus: calls to relays and their answers on the cluster path, what the
// domain publishes on the domain path, and the wire form of what programs emit. The topology is data, in this file.
//
// It is not the engine: it decides nothing about executions.
package events

import (
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
)

// Source names this service in the events it emits.
const Source = event.SourceWorkflow

// Topology is what this service makes on the bus: the streams of the cluster path, its consumers, and one consumer of
// calls for each agent. An agent that is not listed has no consumer, and its calls stay unread until it is.
func Topology(agents []int64) bus.Topology {
	t := bus.Topology{
		Streams:   []bus.Stream{bus.ClusterCallsStream(), bus.ClusterStream(), bus.DomainStream()},
		Consumers: []bus.Consumer{ClusterConsumer(), DomainConsumer()},
	}
	for _, agent := range slices.Sorted(slices.Values(agents)) {
		t.Consumers = append(t.Consumers, bus.AgentConsumer(agent))
	}
	return t
}

// ClusterConsumer is everything that relays answer and observe.
func ClusterConsumer() bus.Consumer {
	return bus.Consumer{
		Stream: bus.StreamCluster, Durable: "workflow", Workers: 4,
		Filters: []string{"cd.cluster.*." + event.ChannelResult, "cd.cluster.*." + event.ChannelEvent, "cd.cluster.*." + event.ChannelHeartbeat},
	}
}

// DomainConsumer is everything that happened in the words of continuous delivery; programs may wait for any of it. This
// service's own events, the most by far where many programs run, were matched when they were stored.
func DomainConsumer() bus.Consumer {
	return bus.Consumer{Stream: bus.StreamDomain, Durable: "workflow", Workers: 4, Skip: Source, External: true}
}
