package registry

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// process is the running service, started and stopped by the test.
type process struct {
	config Config
	stop   func()
}

func start(t *testing.T, db pg.Config, nats *bustest.TestServer) *process {
	t.Helper()
	p := &process{config: Config{
		Database: pg.Database{DatabaseURL: db.URL}, Schema: db.Schema, NATS: bus.NATS{NATSURL: nats.URL(), NATSPassword: "registry"},
		NATSUser:    "registry",
		HTTPAddress: porttest.FreeAddress(t), Tokens: []string{token},
		Settings: telemetry.Settings{HealthAddress: porttest.FreeAddress(t), LogLevel: "error"},
	}}
	p.run(t)
	return p
}

// run starts the process and waits until it accepts deliveries.
func (p *process) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, p.config) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the service ended with %v", err)
		}
	})
	t.Cleanup(p.stop)
	wait.For(t, "readiness", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.config.HealthAddress+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

func (p *process) deliver(t *testing.T, id string) {
	t.Helper()
	d := post{path: "/v1/events", header: with(structuredMedia), body: structured(id)}
	if status, _, body := d.do(t, "http://"+p.config.HTTPAddress); status != http.StatusAccepted {
		t.Fatalf("delivery %s was answered %d %s", id, status, body)
	}
}

// domain is the receiver: it records how often each event was received, and at which positions of the sender. It never confirms, so every
// event is sent again after a while, from where it was.
type domain struct {
	mu     sync.Mutex
	seen   map[string]int
	places map[string]map[string]bool
	last   event.Event
}

func receive(t *testing.T, nats *bustest.TestServer) *domain {
	t.Helper()
	conn := nats.Connect(t, bus.UserDomain)
	consumer := bus.Consumer{Stream: bus.StreamRegistry, Durable: "domain"}
	if err := conn.Apply(t.Context(), bus.Topology{
		Streams:   []bus.Stream{bus.RegistryStream()},
		Consumers: []bus.Consumer{consumer},
	}); err != nil {
		t.Fatal(err)
	}
	d := &domain{seen: map[string]int{}, places: map[string]map[string]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	var consuming sync.WaitGroup
	t.Cleanup(func() { cancel(); consuming.Wait() })
	consuming.Go(func() {
		_ = conn.Consume(ctx, consumer, func(_ context.Context, in bus.Delivery) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			id := in.Event.ID()
			if d.seen[id]++; d.places[id] == nil {
				d.places[id] = map[string]bool{}
			}
			d.places[id][event.Extension(in.Event, outbox.ExtensionPosition)] = true
			d.last = in.Event
			return nil
		}, nil)
	})
	return d
}

// times returns how often the event of a delivery was received.
func (d *domain) times(delivery string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[core.Identify("/ci", delivery)]
}

func (d *domain) await(t *testing.T, delivery string, times int) {
	t.Helper()
	wait.For(t, fmt.Sprintf("%d × %s on the stream", times, delivery), func() bool { return d.times(delivery) >= times })
}

func TestADeliveryBecomesOneEventOnTheStream(t *testing.T) {
	t.Parallel()
	nats := bustest.Server(t)
	_, db := pgtest.New(t)
	p := start(t, db, nats)
	d := receive(t, nats)

	p.deliver(t, "one")
	p.deliver(t, "one")
	d.await(t, "one", 1)
	d.mu.Lock()
	e := d.last
	d.mu.Unlock()
	got, err := event.Decode[event.ArtifactPublished](e)
	if err != nil {
		t.Fatal(err)
	}
	want := event.ArtifactPublished{Image: "r.example.com/shop/api", Digest: digest, Tag: "1.4.0"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("event says %+v, want %+v", got, want)
	}
	if e.Source() != "/services/registry" || event.Extension(e, event.ExtensionCausation) != "one" ||
		event.Extension(e, event.ExtensionCorrelation) == "" {
		t.Errorf("event is %v", e)
	}
	p.deliver(t, "two")
	d.await(t, "two", 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if places := d.places[core.Identify("/ci", "one")]; len(places) != 1 || places[""] {
		t.Errorf("a push that was reported twice was sent from positions %v, expected one", places)
	}
}

func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	nats := bustest.Server(t)
	_, db := pgtest.New(t)
	p := start(t, db, nats)

	nats.Stop(t)
	p.deliver(t, "while the bus is away")
	p.stop()
	p.run(t) // accepts deliveries without the bus
	p.deliver(t, "after the restart")
	nats.Start(t)
	d := receive(t, nats)
	d.await(t, "while the bus is away", 1)
	d.await(t, "after the restart", 1)

	nats.Wipe(t) // the domain has confirmed neither: both are sent again
	d.await(t, "while the bus is away", 2)
	d.await(t, "after the restart", 2)
	p.deliver(t, "after the wipe")
	d.await(t, "after the wipe", 1)
}

func TestAnOccupiedAddressEndsTheService(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, db := pgtest.New(t)
	err = Run(t.Context(), Config{
		Database: pg.Database{DatabaseURL: db.URL}, Schema: db.Schema, NATS: bus.NATS{NATSURL: "nats://127.0.0.1:1"},
		HTTPAddress: taken.Addr().String(),
		Settings:    telemetry.Settings{LogLevel: "error"},
	})
	if err == nil {
		t.Error("the service ended without an error")
	}
}

func TestMigrateIsIdempotent(t *testing.T) {
	t.Parallel()
	_, db := pgtest.New(t)
	for range 2 {
		if err := Migrate(t.Context(), Config{
			Database: pg.Database{DatabaseURL: db.URL}, Schema: db.Schema,
			Settings: telemetry.Settings{LogLevel: "error"},
		}); err != nil {
			t.Fatal(err)
		}
	}
}
