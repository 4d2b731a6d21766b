package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// meter samples a stack. Its own connections to PostgreSQL and NATS stay the same throughout.
type meter struct {
	stack   *stack.Stack
	db      *pgx.Conn
	streams map[string]jetstream.JetStream // by stream: whom it may be asked as
	conns   []*nats.Conn
	series  map[string][]point
	samples int
}

// services have a health server each.
func services() []string { return []string{"registry", "domain", "workflow", "relay"} }

// readers are the consumers of each stream that is read in order. Calls are taken from theirs, and are gone then.
func readers() map[string][]string {
	return map[string][]string{
		bus.StreamRegistry: {bus.UserDomain}, bus.StreamDomain: {bus.UserDomain, bus.UserWorkflow}, bus.StreamCluster: {bus.UserWorkflow},
		bus.StreamClusterCalls: nil,
	}
}

func newMeter(ctx context.Context, s *stack.Stack) (*meter, error) {
	m := &meter{stack: s, streams: map[string]jetstream.JetStream{}, series: map[string][]point{}}
	var err error
	if m.db, err = pgx.Connect(ctx, s.Endpoints().Database); err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	for service, streams := range map[string][]string{
		bus.UserDomain: {bus.StreamRegistry, bus.StreamDomain}, bus.UserWorkflow: {bus.StreamCluster, bus.StreamClusterCalls},
	} {
		url, user, password := s.Account(service)
		conn, err := nats.Connect(url, nats.UserInfo(user, password), nats.CustomInboxPrefix("_INBOX_"+user), nats.Name("soak"))
		if err != nil {
			m.close(ctx)
			return nil, fmt.Errorf("connect to NATS as %s: %w", service, err)
		}
		m.conns = append(m.conns, conn)
		js, err := jetstream.New(conn)
		if err != nil {
			m.close(ctx)
			return nil, fmt.Errorf("JetStream as %s: %w", service, err)
		}
		for _, stream := range streams {
			m.streams[stream] = js
		}
	}
	return m, nil
}

func (m *meter) close(ctx context.Context) {
	_ = m.db.Close(ctx) // nothing was written
	for _, c := range m.conns {
		c.Close()
	}
}

// sample takes one value of everything.
func (m *meter) sample(ctx context.Context, at time.Duration) error {
	values := map[string]float64{}
	for _, read := range []func(context.Context, map[string]float64) error{m.processes, m.tables, m.queues} {
		if err := read(ctx, values); err != nil {
			return err
		}
	}
	for name, value := range values {
		m.series[name] = append(m.series[name], point{At: at.Seconds(), Value: value})
	}
	m.samples++
	return nil
}

// judge judges every series, in the order of their names.
func (m *meter) judge() []line {
	var lines []line
	for name, points := range m.series {
		_, end, _ := strings.Cut(name, ": ")
		lines = append(lines, judge(name, kinds()[end], points))
	}
	slices.SortFunc(lines, func(a, b line) int { return strings.Compare(a.Name, b.Name) })
	return lines
}

// processes reads what the services say of themselves, and what the kernel says of NATS.
func (m *meter) processes(ctx context.Context, values map[string]float64) error {
	names := map[string]string{
		"go_gc_heap_live_bytes": "live heap", "process_resident_memory_bytes": "memory", "go_goroutines": "goroutines",
		"process_open_fds": "open files",
	}
	for _, service := range services() {
		found, err := metrics(ctx, m.stack.Health(service)+"/metrics")
		if err != nil {
			return fmt.Errorf("metrics of %s: %w", service, err)
		}
		for metric, name := range names {
			value, ok := found[metric]
			if !ok {
				return fmt.Errorf("metrics of %s: found no %s", service, metric)
			}
			values[service+": "+name] = value
		}
	}
	pid, err := m.stack.Process("nats")
	if err != nil {
		return err
	}
	values["nats: sockets"], err = sockets(pid)
	return err
}

// metrics are the gauges without labels that a health server shows.
func metrics(ctx context.Context, url string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for name, family := range families {
		if first := family.GetMetric()[0]; len(family.GetMetric()) == 1 && first.GetGauge() != nil {
			values[name] = first.GetGauge().GetValue()
		}
	}
	return values, nil
}

// sockets are how many a process has: clients of NATS, and what it listens at.
func sockets(pid int) (float64, error) {
	folder := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	files, err := os.ReadDir(folder)
	if err != nil {
		return 0, fmt.Errorf("open files of NATS: %w", err)
	}
	n := 0
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join(folder, f.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return float64(n), nil
}

// queues reads how much of each stream has not been taken.
func (m *meter) queues(ctx context.Context, values map[string]float64) error {
	for name, consumers := range readers() {
		stream, err := m.streams[name].Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		what := "messages"
		if consumers == nil {
			what = "waiting"
		}
		values["stream "+name+": "+what] = float64(stream.CachedInfo().State.Msgs)
		for _, durable := range consumers {
			consumer, err := m.streams[name].Consumer(ctx, name, durable)
			if err != nil {
				return fmt.Errorf("consumer %s of %s: %w", durable, name, err)
			}
			info := consumer.CachedInfo()
			values["consumer "+durable+" of "+name+": waiting"] = float64(info.NumPending) + float64(info.NumAckPending)
		}
	}
	return nil
}
