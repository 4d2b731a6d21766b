package bus

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
)

// RelayUser is the user of the relay of an agent.
func RelayUser(agent int64) string { return relayPrefix + strconv.FormatInt(agent, 10) }

const relayPrefix = "relay-"

// AnswerWithin is how long after a request a user may answer it, once, wherever its sender wants the answer: what everybody may
// beside the subjects of Permissions. It is longer than the longest work that is asked for over the bus.
const AnswerWithin = 2 * time.Minute

// The users of the services.
const (
	UserRegistry = "registry"
	UserDomain   = "domain"
	UserWorkflow = "workflow"
)

// Permissions are the subjects that a user may publish and subscribe to; none for a name that is no user of ours. They
// keep the three event paths apart (E13): nobody can publish on a path that is not its own, a relay reaches only its own
// agent's subjects and calls, and nobody can read streams of another path, because reading a stream is publishing to that
// stream's part of the JetStream API.
func Permissions(user string) (publish, subscribe []string) {
	inbox := "_INBOX_" + user + ".>"
	switch user {
	case UserRegistry:
		publish = append(maker(StreamRegistry), "cd.registry.>", SourcesPull)
		return publish, []string{inbox, receipts(UserRegistry), SourcesLook, SourcesStates, SourcesProve, SourcesChanged}
	case UserDomain:
		publish = append(maker(StreamRegistry), maker(StreamDomain)...)
		publish = append(publish, reader(StreamRegistry)...)
		publish = append(publish, reader(StreamDomain)...)
		publish = append(publish, emitted(event.EmitterDomain)...)
		publish = append(publish, receipts(UserRegistry), receipts(UserWorkflow), SourcesLook, SourcesStates, SourcesProve, SourcesChanged)
		return publish, []string{inbox, "cd.registry.>", "cd.domain.>", receipts(UserDomain), SourcesPull}
	case UserWorkflow:
		publish = append(maker(StreamClusterCalls), maker(StreamCluster)...)
		publish = append(publish, maker(StreamDomain)...)
		publish = append(publish, consumerMaker(StreamClusterCalls)...)
		publish = append(publish, reader(StreamCluster)...)
		publish = append(publish, reader(StreamDomain)...)
		publish = append(publish, "cd.cluster.*."+event.ChannelCall)
		publish = append(publish, emitted(event.EmitterProgram, event.EmitterEngine, event.EmitterObserver)...)
		publish = append(publish, receipts(UserDomain), wakes)
		return publish, []string{
			inbox, "cd.cluster.*." + event.ChannelResult, "cd.cluster.*." + event.ChannelEvent, "cd.cluster.*." + event.ChannelHeartbeat,
			"cd.domain.>", receipts(UserWorkflow), wakes,
		}
	}
	if agent, err := strconv.ParseInt(strings.TrimPrefix(user, relayPrefix), 10, 64); err == nil && user == RelayUser(agent) && agent > 0 {
		return relayPermissions(agent), []string{inbox}
	}
	return nil, nil
}

// What domain and registry ask each other about artifact sources, in the messages of proto/lockstep/sources/v1. The domain
// answers SourcesPull and hints SourcesChanged; the registry service answers the others.
const (
	SourcesPull    = "cd.sources.pull"
	SourcesLook    = "cd.sources.look"
	SourcesStates  = "cd.sources.states"
	SourcesProve   = "cd.sources.prove"
	SourcesChanged = "cd.sources.changed"
)

// wakes are the hints between the instances of the workflow service.
const wakes = "cd.wake.>"

// emitted are the subjects of the events on the domain's path that some emitters may send, in every organization (D47). A service publishes
// those of its own emitters only: with the credentials of the workflow service no passage can be granted, and with those of the domain
// service no deployment reported as healthy. Receivers check the source of an event, too, but its sender writes that itself.
func emitted(by ...event.Emitter) []string {
	var subjects []string
	for _, d := range event.Catalogue() {
		if d.Path != event.PathDomain || !slices.ContainsFunc(by, func(one event.Emitter) bool { return slices.Contains(d.EmittedBy, one) }) {
			continue
		}
		if subject := "cd.domain.*." + d.Entity + "." + d.Verb; !slices.Contains(subjects, subject) {
			subjects = append(subjects, subject)
		}
	}
	slices.Sort(subjects)
	return subjects
}

// receipts is the subject on which receivers confirm what they have from a sender.
func receipts(sender string) string { return "cd.receipt." + sender }

// relayPermissions: publish what the agent answers and observes, and take its own calls.
func relayPermissions(agent int64) []string {
	calls := AgentConsumer(agent)
	return append(
		puller(calls.Stream, calls.Durable),
		event.ClusterSubject(agent, event.ChannelResult),
		event.ClusterSubject(agent, event.ChannelEvent),
		event.ClusterSubject(agent, event.ChannelHeartbeat),
	)
}

// maker is what it takes to make and change a stream, and to make its mirror, which a work queue has none of.
func maker(stream string) []string {
	subjects := []string{"$JS.API.STREAM.CREATE." + stream, "$JS.API.STREAM.UPDATE." + stream, "$JS.API.STREAM.INFO." + stream}
	if stream != StreamClusterCalls {
		subjects = append(subjects, "$JS.API.STREAM.CREATE."+stream+mirrorSuffix, "$JS.API.STREAM.INFO."+stream+mirrorSuffix)
	}
	return subjects
}

// consumerMaker is what it takes to make and look up consumers of a stream, without reading from them.
func consumerMaker(stream string) []string {
	return []string{"$JS.API.CONSUMER.CREATE." + stream + ".>", "$JS.API.CONSUMER.INFO." + stream + ".*"}
}

// reader is what it takes to make consumers of a stream and read from them.
func reader(stream string) []string { return append(consumerMaker(stream), puller(stream, "*")...) }

// puller is what it takes to read from a consumer that exists. Acknowledgements have two forms, since servers may put
// their domain and account in front.
func puller(stream, consumer string) []string {
	name := stream + "." + consumer
	return []string{
		"$JS.API.CONSUMER.MSG.NEXT." + name, "$JS.API.CONSUMER.INFO." + name,
		"$JS.ACK." + name + ".>", "$JS.ACK.*.*." + name + ".>",
	}
}

// mayMakeStream reports whether user makes the stream itself, as mayMakeConsumer does.
func mayMakeStream(user, stream string) bool {
	publish, _ := Permissions(user)
	return publish == nil || slices.Contains(publish, maker(stream)[0])
}

// mayMakeConsumer reports whether user makes consumers of the stream itself. A user whom the table does not know has been
// given its permissions by an operator.
func mayMakeConsumer(user, stream string) bool {
	publish, _ := Permissions(user)
	if publish == nil {
		return true
	}
	return slices.Contains(publish, consumerMaker(stream)[0])
}
