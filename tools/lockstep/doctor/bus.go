package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
)

// backlog is how many events may wait for a consumer before that is worth a word.
const backlog = 1000

// full is how many percent of its room a stream may have taken before that is worth a word.
const full = 80

// bus looks at NATS: the account, the streams that it may see, how far their consumers are, and which relays are heard.
func (c Config) bus(ctx context.Context) []Finding {
	options := []nats.Option{
		nats.UserInfo(c.NATSUser, c.NATSPassword), nats.CustomInboxPrefix("_INBOX_" + c.NATSUser), nats.Name("lockstep doctor"),
		nats.Timeout(within), nats.NoReconnect(),
	}
	if strings.HasPrefix(c.NATSURL, "tls://") {
		options = append(options, nats.Secure(c.trust()))
	}
	conn, err := nats.Connect(c.NATSURL, options...)
	if err != nil {
		remedy := "is NATS up, and do name, port, TLS and network policy fit?"
		if errors.Is(err, nats.ErrAuthorization) {
			remedy = "user or password are wrong: compare the Secret with the accounts of NATS (deploy/nats/nats.conf)"
		}
		if todo, is := untrusted(err); is != nil {
			remedy = todo
		}
		return []Finding{wrong("nats", c.NATSURL+": "+err.Error(), remedy)}
	}
	defer conn.Close()
	findings := []Finding{ok("nats", fmt.Sprintf("%s takes the account %s", conn.ConnectedServerVersion(), c.NATSUser))}
	if state, err := conn.TLSConnectionState(); err == nil {
		findings = append(findings, c.certificate("certificate of nats", &state)...)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return append(findings, wrong("nats", err.Error(), "JetStream has to be on"))
	}
	publish, _ := bus.Permissions(c.NATSUser)
	for _, stream := range []string{bus.StreamRegistry, bus.StreamClusterCalls, bus.StreamCluster, bus.StreamDomain} {
		if publish == nil || slices.Contains(publish, "$JS.API.STREAM.INFO."+stream) {
			mayAsk := publish == nil || slices.Contains(publish, "$JS.API.CONSUMER.INFO."+stream+".*")
			findings = append(findings, examineStream(ctx, js, stream, mayAsk)...)
		}
	}
	return append(findings, c.agents(ctx, conn)...)
}

// consumers are who has to read each stream.
func consumers(stream string) []string {
	switch stream {
	case bus.StreamRegistry:
		return []string{bus.UserDomain}
	case bus.StreamCluster:
		return []string{bus.UserWorkflow}
	case bus.StreamDomain:
		return []string{bus.UserDomain, bus.UserWorkflow}
	default: // the agents' are checked with the agents
		return nil
	}
}

// examineStream looks at a stream, and where the account may ask for consumers, at those that have to be there.
func examineStream(ctx context.Context, js jetstream.JetStream, name string, mayAsk bool) []Finding {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	check := "stream " + name
	stream, err := js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return []Finding{wrong(check, "is not there",
			"the services make it when they connect: see the logs of domain, registry and workflow for what NATS refuses them")}
	case err != nil:
		return []Finding{wrong(check, err.Error(), "JetStream has to be on, and the account has to be one of ours (deploy/nats/nats.conf)")}
	}
	info := stream.CachedInfo()
	findings := []Finding{ok(check, fmt.Sprintf("has %d events", info.State.Msgs))}
	if info.Config.Storage != jetstream.FileStorage {
		findings[0] = wrong(check, "is kept in memory", "remove it; the services make it again, in files")
	}
	if most := info.Config.MaxBytes; most > 0 && info.State.Bytes > uint64(most)/100*full && findings[0].State == OK {
		findings[0] = warning(check, fmt.Sprintf("has %d events, which fill %d %% of the %d MB that it may have", info.State.Msgs,
			info.State.Bytes*100/uint64(most), most>>20),
			"is a consumer of it away (below)? What is oldest is dropped when it is full, and sent again by who said it; see that NATS has the disk for it")
	}
	if !mayAsk {
		return findings
	}
	for _, consumer := range consumers(name) {
		findings = append(findings, examineConsumer(ctx, stream, name, consumer))
	}
	return findings
}

func examineConsumer(ctx context.Context, stream jetstream.Stream, streamName, name string) Finding {
	check := "consumer " + name + " of " + streamName
	consumer, err := stream.Consumer(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return wrong(check, "is not there", "the service "+name+" makes it when it connects: is it running?")
	case err != nil:
		return wrong(check, err.Error(), "see the log of "+name)
	}
	info := consumer.CachedInfo()
	found := fmt.Sprintf("%d events wait, %d are in progress", info.NumPending, info.NumAckPending)
	if info.NumPending > backlog {
		return warning(check, found, "the service "+name+" is away or too slow: see its log, and its replicas")
	}
	return ok(check, found)
}

// heartbeat reads a message of the bus: a CloudEvent in its structured form.
func heartbeat(m *nats.Msg) (event.AgentHeartbeat, bool) {
	var e struct {
		Data event.AgentHeartbeat `json:"data"`
	}
	err := json.Unmarshal(m.Data, &e)
	return e.Data, err == nil && e.Data.AgentID > 0
}

// agents waits for a heartbeat of each relay.
func (c Config) agents(ctx context.Context, conn *nats.Conn) []Finding {
	if len(c.Agents) == 0 {
		return nil
	}
	var mu sync.Mutex
	heard := map[int64]event.AgentHeartbeat{}
	all := make(chan struct{})
	subscription, err := conn.Subscribe("cd.cluster.*."+event.ChannelHeartbeat, func(m *nats.Msg) {
		beat, ok := heartbeat(m)
		if !ok {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		before := len(heard)
		heard[beat.AgentID] = beat
		if len(heard) > before && !slices.ContainsFunc(c.Agents, func(a int64) bool { _, ok := heard[a]; return !ok }) {
			close(all)
		}
	})
	if err != nil {
		return []Finding{wrong("agents", err.Error(), "sign in as the account workflow, which alone hears them")}
	}
	defer func() { _ = subscription.Unsubscribe() }()
	waited, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-all:
			cancel()
		case <-waited.Done():
		}
	}()
	_ = clock.Sleep(waited, c.Clock, c.Listen) // however it ends, what was heard is judged
	mu.Lock()
	defer mu.Unlock()
	var findings []Finding
	for _, a := range c.Agents {
		check := fmt.Sprintf("agent %d", a)
		beat, ok := heard[a]
		switch {
		case !ok:
			findings = append(findings, wrong(check, fmt.Sprintf("was not heard for %v", c.Listen),
				"is its relay running, with the right number, password and URL of NATS? kubectl -n lockstep-relay logs deployment/lockstep-relay"))
		case !beat.ClusterReachable:
			findings = append(findings, wrong(check, "cannot reach its cluster: "+beat.Message, remedy("cluster")))
		default:
			findings = append(findings, c.release(check, "is present", beat.Version))
		}
	}
	return findings
}
