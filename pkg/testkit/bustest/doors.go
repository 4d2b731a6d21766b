package bustest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/bus"
)

// A Door is a subject that clients could use, and the users that may.
type Door struct {
	// Subject is what is published or subscribed to.
	Subject string
	// Publish and Subscribe are the users that may; nobody else.
	Publish, Subscribe []string
}

// Doors are all subjects of an installation with two agents, and beyond them those that nobody has any business with: the rest of
// JetStream's API, other accounts' and wildcards over what belongs to several. Who may what is written here a second time, by hand: a
// permission that bus.Permissions gives and that no row of the table has fails the test.
func Doors(tb testing.TB, one, other int64) []Door {
	tb.Helper()
	doors := append(events(one, other), streams(one, other)...)
	users := []string{bus.UserRegistry, bus.UserDomain, bus.UserWorkflow, bus.RelayUser(one), bus.RelayUser(other)}
	for _, user := range users {
		doors = append(doors, Door{"_INBOX_" + user + ".x", nil, []string{user}})
	}
	for _, closed := range []string{
		">", "*", "cd.>", "cd.*", "cd.cluster.>", "cd.cluster.*.>", "cd.cluster.*.call", "cd.sources.>", "cd.receipt.>", "cd.unheard.of",
		"_INBOX.>", "_INBOX.x", "_INBOX_stranger.x", "$SYS.>", "$SYS.REQ.USER.AUTH", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING",
		"$JS.>", "$KV.x.y", "$O.x.C.y", "$SRV.PING",
	} {
		doors = append(doors, Door{closed, nil, nil})
	}
	for _, user := range users {
		publish, subscribe := bus.Permissions(user)
		for _, given := range publish {
			known(tb, doors, user, "publish", given, func(d Door) []string { return d.Publish })
		}
		for _, given := range subscribe {
			known(tb, doors, user, "subscribe to", given, func(d Door) []string { return d.Subscribe })
		}
	}
	return doors
}

// known fails the test for a permission that no door stands for.
func known(tb testing.TB, doors []Door, user, verb, pattern string, may func(Door) []string) {
	tb.Helper()
	if !slices.ContainsFunc(doors, func(d Door) bool { return slices.Contains(may(d), user) && matches(pattern, d.Subject) }) {
		tb.Errorf("%s may %s %s, and no probe asks: say in Doors who may", user, verb, pattern)
	}
}

// events are the subjects of the three paths and of what the services send each other outside them.
func events(agents ...int64) []Door {
	registry, domain, workflow := bus.UserRegistry, bus.UserDomain, bus.UserWorkflow
	doors := []Door{
		{"cd.registry.artifact.published", []string{registry}, []string{domain}},
		{"cd.registry.artifact.deleted", []string{registry}, []string{domain}},
		{"cd.registry.commit_status.reported", []string{registry}, []string{domain}},
		{"cd.registry.pull_request.reported", []string{registry}, []string{domain}},
		{"cd.registry.pull_request.commented", []string{registry}, []string{domain}},
		{"cd.registry.pull_request.reviewed", []string{registry}, []string{domain}},
		{"cd.domain.1.unheard.of", nil, []string{domain, workflow}},
		{"cd.domain.1.external", nil, []string{domain, workflow}},
		{"cd.receipt.registry", []string{domain}, []string{registry}},
		{"cd.receipt.domain", []string{workflow}, []string{domain}},
		{"cd.receipt.workflow", []string{domain}, []string{workflow}},
		{"cd.cluster.99.call", []string{workflow}, nil},
		{"cd.wake.x", []string{workflow}, []string{workflow}},
		{bus.SourcesPull, []string{registry}, []string{domain}},
		{bus.SourcesLook, []string{domain}, []string{registry}},
		{bus.SourcesProve, []string{domain}, []string{registry}},
		{bus.SourcesStates, []string{domain}, []string{registry}},
		{bus.SourcesChanged, []string{domain}, []string{registry}},
	}
	for who, all := range map[string][]string{domain: ofDomain(), workflow: ofWorkflow()} {
		for _, one := range all {
			doors = append(doors, Door{"cd.domain.1." + one, []string{who}, []string{domain, workflow}})
		}
	}
	for _, agent := range agents {
		at := fmt.Sprintf("cd.cluster.%d.", agent)
		doors = append(doors, Door{at + "call", []string{workflow}, nil})
		for _, channel := range []string{"result", "event", "heartbeat"} {
			doors = append(doors, Door{at + channel, []string{bus.RelayUser(agent)}, []string{workflow}})
		}
	}
	return doors
}

// streams are JetStream's API. Reading, making and ending something there is publishing to it; nobody listens.
func streams(agents ...int64) []Door {
	makers := map[string][]string{
		bus.StreamRegistry: {bus.UserRegistry, bus.UserDomain}, bus.StreamDomain: {bus.UserDomain, bus.UserWorkflow},
		bus.StreamCluster: {bus.UserWorkflow}, bus.StreamClusterCalls: {bus.UserWorkflow}, "OTHERS": nil,
	}
	readers := map[string][]string{
		bus.StreamRegistry: {bus.UserDomain}, bus.StreamDomain: {bus.UserDomain, bus.UserWorkflow},
		bus.StreamCluster: {bus.UserWorkflow},
	}
	var doors []Door
	add := func(who []string, subjects ...string) {
		for _, s := range subjects {
			doors = append(doors, Door{Subject: s, Publish: who})
		}
	}
	const api = "$JS.API."
	for stream, who := range makers {
		for _, verb := range []string{"CREATE", "UPDATE", "INFO"} {
			add(who, api+"STREAM."+verb+"."+stream)
		}
		mirrors := who // none of a work queue
		if stream == bus.StreamClusterCalls {
			mirrors = nil
		}
		add(mirrors, api+"STREAM.CREATE."+stream+"_MIRROR", api+"STREAM.INFO."+stream+"_MIRROR")
		add(nil, api+"STREAM.UPDATE."+stream+"_MIRROR", api+"STREAM.DELETE."+stream+"_MIRROR", api+"CONSUMER.MSG.NEXT."+stream+"_MIRROR.c")
		for _, verb := range []string{
			"DELETE", "PURGE", "SNAPSHOT", "RESTORE", "MSG.DELETE", "MSG.GET", "PEER.REMOVE", "PEER.EVACUATE", "CANCEL_MOVE", "LEADER.STEPDOWN",
		} {
			add(nil, api+"STREAM."+verb+"."+stream)
		}
		add(nil, api+"DIRECT.GET."+stream, api+"DIRECT.GET."+stream+".cd.x", api+"CONSUMER.NAMES."+stream, api+"CONSUMER.LIST."+stream,
			api+"CONSUMER.CREATE."+stream)
		of := stream + ".c"
		reads := readers[stream]
		makes := reads
		if stream == bus.StreamClusterCalls { // workflow makes the queues of the agents, and reads none
			makes = who
		}
		add(makes, api+"CONSUMER.CREATE."+of+".x", api+"CONSUMER.INFO."+of)
		add(reads, api+"CONSUMER.MSG.NEXT."+of, "$JS.ACK."+of+".1.2.3", "$JS.ACK.hub.account."+of+".1.2.3")
		for _, verb := range []string{"DELETE", "DURABLE.CREATE", "PAUSE", "RESET", "UNPIN", "LEADER.STEPDOWN", "PEER.REMOVE", "PEER.EVACUATE"} {
			add(nil, api+"CONSUMER."+verb+"."+of)
		}
	}
	for _, agent := range agents {
		own, of := []string{bus.RelayUser(agent)}, fmt.Sprintf("%s.agent-%d", bus.StreamClusterCalls, agent)
		add(own, api+"CONSUMER.MSG.NEXT."+of, "$JS.ACK."+of+".1.2.3", "$JS.ACK.hub.account."+of+".1.2.3")
		add(append(own, bus.UserWorkflow), api+"CONSUMER.INFO."+of)
		add([]string{bus.UserWorkflow}, api+"CONSUMER.CREATE."+of+".x")
	}
	add(nil, api+"INFO", api+"STREAM.NAMES", api+"STREAM.LIST", api+"META.LEADER.STEPDOWN", api+"SERVER.REMOVE", api+"SERVER.EVACUATE",
		api+"META.RESCUE", api+"ACCOUNT.PURGE.x", api+"ACCOUNT.STREAM.MOVE.x.y")
	return doors
}

// matches reports whether a subject is one of a pattern's.
func matches(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range p {
		if token == ">" {
			return len(s) > i
		}
		if i >= len(s) || token != "*" && token != s[i] {
			return false
		}
	}
	return len(p) == len(s)
}

// last is a subject that nobody may use: its refusal says that the server has judged everything that was tried before.
const last = "cd.nobody.at.all"

// refusal matches the error of the NATS client about a refused subject.
var refusal = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// Try has a connection, of user, publish and subscribe to every door, and fails the test where the server lets it in or refuses it against
// the table.
func Try(tb testing.TB, nc *nats.Conn, user string, doors []Door) {
	tb.Helper()
	refused, judged := map[string]bool{}, make(chan struct{})
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { // in the order in which the server says so
		found := refusal.FindStringSubmatch(err.Error())
		switch {
		case found == nil:
			tb.Errorf("%s: %v", user, err)
		case found[2] == last:
			close(judged)
		default:
			refused[strings.ToLower(found[1])+" "+found[2]] = true
		}
	})
	for _, d := range doors {
		if d.isWildcard() {
			continue
		}
		if err := nc.Publish(d.Subject, []byte("{}")); err != nil {
			tb.Fatalf("%s publishes %s: %v", user, d.Subject, err)
		}
	}
	for _, d := range doors {
		subscription, err := nc.SubscribeSync(d.Subject)
		if err != nil {
			tb.Fatalf("%s subscribes to %s: %v", user, d.Subject, err)
		}
		defer func() { _ = subscription.Unsubscribe() }() // a refused one is none any more
	}
	if err := errors.Join(nc.Publish(last, nil), nc.FlushTimeout(within)); err != nil {
		tb.Fatalf("%s: %v", user, err)
	}
	select {
	case <-judged:
	case <-time.After(within):
		tb.Fatalf("%s: not everything was judged within %v", user, within)
	}
	for _, d := range doors {
		if may := slices.Contains(d.Publish, user); !d.isWildcard() && refused["publish "+d.Subject] == may {
			tb.Errorf("%s publishes %s: refused %t, the table lets it %t", user, d.Subject, may, may)
		}
		if may := slices.Contains(d.Subscribe, user); refused["subscription "+d.Subject] == may {
			tb.Errorf("%s subscribes to %s: refused %t, the table lets it %t", user, d.Subject, may, may)
		}
	}
}

// within is how long a server may take to judge some hundred subjects on a busy machine.
const within = time.Minute

// isWildcard reports whether the subject can only be subscribed to.
func (d Door) isWildcard() bool { return strings.ContainsAny(d.Subject, "*>") }

// ofDomain are the events that the domain service alone emits (D47).
func ofDomain() []string {
	return []string{
		"approval.resolved", "call.answered", "check.nudged", "deployment.nudged", "environment.places_changed", "credential.changed", "policy_set.changed", "rollout.abort_requested",
		"rollout.passage_granted",
		"rollout.passages_revoked", "rollout.retry_requested",
	}
}

// ofWorkflow are the events of programs, of the engine and of standing reports, which the workflow service publishes.
func ofWorkflow() []string {
	return []string{
		"application_environment.not_ready", "application_environment.ready", "application_environment.reconciled", "approval.requested",
		"call.decided", "check.reported", "pull_request.read",
		"deployment.advance", "deployment.committed", "deployment.degraded", "deployment.failed", "deployment.gate_reached",
		"deployment.healthy", "deployment.proposed", "deployment.started", "deployment.submitted", "environment.contact_changed", "environment.not_ready", "environment.ready",
		"rollout.aborted", "rollout.failed", "rollout.gate_reached", "rollout.healthy", "rollout.passage_requested", "rollout.previewed",
		"rollout.started", "rollout_environment.failed", "rollout_environment.healthy", "rollout_environment.job_ended",
		"rollout_environment.job_started", "rollout_environment.started", "rollout_environment.target_ended",
		"service.health_observed", "workflow.cancelled", "workflow.completed", "workflow.failed",
	}
}
