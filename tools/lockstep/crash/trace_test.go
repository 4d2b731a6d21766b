package crash

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/lockstep-cd/lockstep/pkg/telemetry/tracetest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// R2-23: one trace leads from the push of an image to the rollout that has it healthy, through every service; what people do on the
// way is linked to it, and not its parent; and a workflow service that is killed, and replays, records nothing twice.
func TestOneTraceFromPushToHealthy(t *testing.T) {
	t.Parallel()
	spans := newCollector(t)
	ctx, w := start(t, oneStage(),
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+spans.address, "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_TRACES_SAMPLER=parentbased_always_on")
	if err := w.Create(ctx); err != nil {
		t.Fatal(err)
	}
	set, err := w.Push(ctx, "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.roll(ctx, t, set, nil) // the first has nothing to be compared with, and passes no gates
	if set, err = w.Push(ctx, "2.0.0", nil); err != nil {
		t.Fatal(err)
	}
	var before map[string]int
	r := w.roll(ctx, t, set, func(ctx context.Context, r client.Rollout) error {
		// Everything before a gate was recorded before the gate was reported.
		err := w.Await(ctx, "a gate", func() (string, bool, error) {
			r, err := w.API.Rollout(ctx, r.ID)
			reached := slices.ContainsFunc(r.Journal, func(e client.Transition) bool { return e.Event == "reach_gate" })
			return r.State, reached, err
		})
		if err != nil {
			return err
		}
		before = spans.calls("workflow", "git.commit")
		_, err = w.stack.Kill("workflow")
		return err
	})
	if len(before) == 0 {
		t.Error("no commit was recorded before the gate")
	}
	// The spans of the last steps are sent a moment after them.
	trace := ""
	err = w.Await(ctx, "the last spans", func() (string, bool, error) {
		trace = spans.traceOf("rollout created")
		found := spans.names(trace)
		return fmt.Sprint(found), slices.Contains(found, "domain: process com.gitlab.cd.rollout.healthy"), nil
	})
	if err != nil {
		t.Fatalf("trace %q of %s has no end: %v", trace, r.ID, err)
	}
	found := spans.names(trace)
	for _, want := range []string{
		"registry: artifact published", "registry: send com.gitlab.cd.artifact.published",
		"domain: process com.gitlab.cd.artifact.published", "domain: rollout created",
		"workflow: lockstep.autoflow.v1.AutoFlow/StartWorkflow", "workflow: git.commit",
		"relay: argo.sync", "relay: argo.promote", "workflow: process com.gitlab.cd.function.completed",
		"domain: process com.gitlab.cd.deployment.healthy",
	} {
		if !slices.Contains(found, want) {
			t.Errorf("the trace has no span %q; it has %q", want, found)
		}
	}
	for _, want := range []string{
		"workflow: git fetch", "workflow: git push", "workflow: HTTP POST",
		"domain: lockstep.autoflow.v1.AutoFlow/StartWorkflow",
	} {
		if !slices.Contains(found, want) {
			t.Errorf("the trace has no span %q; it has %q", want, found)
		}
	}
	if !slices.ContainsFunc(found, func(name string) bool { return strings.HasPrefix(name, "workflow: SQL ") }) {
		t.Errorf("the trace has no span of a statement; it has %q", found)
	}
	spans.checkJoined(t)
	spans.checkAttributes(t)
	if links := spans.links(trace, "rollout created"); links != 1 {
		t.Errorf("the rollout's creation has %d links, want one to the request of who created it", links)
	}
	after := spans.calls("workflow", "git.commit")
	for call, n := range before {
		if after[call] != n {
			t.Errorf("commit %s was recorded %d times, and %d times before the service was killed: a replay records nothing", call, after[call], n)
		}
	}
}

// checkJoined: what processes an event names the span that sent it, as a link or as its parent, on each of the three paths.
func (c *collector) checkJoined(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := map[string]bool{}
	for _, s := range c.spans {
		if strings.HasPrefix(s.GetName(), "send ") {
			sent[string(s.GetSpanId())] = true
		}
	}
	joined := map[string]int{}
	for _, s := range c.spans {
		if !strings.HasPrefix(s.GetName(), "process ") {
			continue
		}
		path := strings.Join(strings.Split(value(s.GetAttributes(), "messaging.destination.name"), ".")[:2], ".")
		ok := sent[string(s.GetParentSpanId())]
		for _, link := range s.GetLinks() {
			ok = ok || sent[string(link.GetSpanId())]
		}
		if ok {
			joined[path]++
		} else if len(s.GetLinks()) == 0 && len(s.GetParentSpanId()) == 0 {
			// The sender's span may be in a batch that is still under way; that there is a link or a parent may not.
			t.Errorf("%s: %s is joined to nothing that sent it", s.service, s.GetName())
		}
	}
	for _, path := range []string{"cd.registry", "cd.cluster", "cd.domain"} {
		if joined[path] == 0 {
			t.Errorf("no event on path %s is processed in a span that names the one that sent it; joined: %v", path, joined)
		}
	}
}

// checkAttributes: spans of each kind have the attributes of OpenTelemetry's semantic conventions, and none a path or a statement's text.
func (c *collector) checkAttributes(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	want := map[string][]string{
		"SQL ":                           {"db.system.name", "db.namespace", "db.query.summary"},
		"HTTP ":                          {"http.request.method", "url.scheme"},
		"lockstep.autoflow.v1.AutoFlow/": {"rpc.system", "rpc.service", "rpc.method"},
		"send ":                          {"messaging.system", "messaging.destination.name"},
		"process ":                       {"messaging.system", "messaging.destination.name", "messaging.consumer.group.name"},
	}
	seen := map[string]bool{}
	for _, s := range c.spans {
		for prefix, keys := range want {
			if !strings.HasPrefix(s.GetName(), prefix) {
				continue
			}
			seen[prefix] = true
			for _, key := range keys {
				if value(s.GetAttributes(), key) == "" {
					t.Errorf("%s: %s has no attribute %s", s.service, s.GetName(), key)
				}
			}
		}
		for _, a := range s.GetAttributes() {
			if slices.Contains([]string{"url.path", "url.full", "db.query.text", "db.statement"}, a.GetKey()) {
				t.Errorf("%s: %s has %s, which may hold a secret", s.service, s.GetName(), a.GetKey())
			}
		}
	}
	for prefix := range want {
		if !seen[prefix] {
			t.Errorf("no span is called %q", prefix)
		}
	}
}

// collector keeps spans.
type collector struct {
	address string
	mu      sync.Mutex
	spans   []recorded
}

type recorded struct {
	service string
	*tracev1.Span
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.address = tracetest.Collect(t, c.keep)
	return c
}

func (c *collector) keep(req *collectorv1.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.GetResourceSpans() {
		service := value(r.GetResource().GetAttributes(), "service.name")
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				c.spans = append(c.spans, recorded{service, span})
			}
		}
	}
}

func value(attributes []*commonv1.KeyValue, key string) string {
	for _, a := range attributes {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// traceOf is the trace of the newest span of a name.
func (c *collector) traceOf(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range slices.Backward(c.spans) {
		if s.GetName() == name {
			return hex.EncodeToString(s.GetTraceId())
		}
	}
	return ""
}

// names are the spans of a trace, each once, as "service: name".
func (c *collector) names(trace string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]bool{}
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) == trace {
			found[s.service+": "+s.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// links counts those of the spans of a name in a trace.
func (c *collector) links(trace, name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, s := range c.spans {
		if s.GetName() == name && hex.EncodeToString(s.GetTraceId()) == trace {
			n += len(s.GetLinks())
		}
	}
	return n
}

// calls counts, by call, the spans of a Function that a service carried out.
func (c *collector) calls(service, function string) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]int{}
	for _, s := range c.spans {
		if s.service == service && s.GetName() == function {
			found[value(s.GetAttributes(), "lockstep.call")]++
		}
	}
	return found
}
