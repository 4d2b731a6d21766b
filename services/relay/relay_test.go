package relay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/services/relay"
)

const agent = 42

// kubernetes is as much of an API server as one Application needs. It executes operations at once.
type kubernetes struct {
	mu      sync.Mutex
	version int
	app     map[string]any
	patches int
}

func (k *kubernetes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	const applications = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications"
	w.Header().Set("Content-Type", "application/json")
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch {
	case r.URL.Path == "/version":
		_, _ = io.WriteString(w, `{"major":"1"}`)
		return
	case r.Method == http.MethodPost && r.URL.Path == applications:
		k.app = body
	case r.URL.Path == "/apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects/default": // a project that allows nothing
		_, _ = io.WriteString(w, `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"default","namespace":"argocd"}}`)
		return
	case r.URL.Path != applications+"/shop" || k.app == nil:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	case r.Method == http.MethodPatch:
		k.patches++
		operation, _ := body["operation"].(map[string]any)
		sync, _ := operation["sync"].(map[string]any)
		k.app["status"] = map[string]any{"operationState": map[string]any{
			"phase": "Succeeded", "operation": operation, "syncResult": map[string]any{"revision": sync["revision"]},
		}}
	}
	k.version++
	meta, _ := k.app["metadata"].(map[string]any)
	meta["resourceVersion"] = fmt.Sprint(k.version)
	_ = json.NewEncoder(w).Encode(k.app)
}

// start runs a relay of the agent against a cluster and a bus.
func start(t *testing.T, cluster http.Handler, nats *bustest.TestServer) {
	t.Helper()
	web := httptest.NewServer(cluster)
	t.Cleanup(web.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := strings.ReplaceAll(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"URL"}}],"users":[{"name":"u","user":{}}]}`, "URL", web.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	user := bus.RelayUser(agent)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- relay.Run(ctx, relay.Config{
			AgentID: agent, NATS: bus.NATS{NATSURL: nats.URL(), NATSPassword: user}, NATSUser: user, Kubeconfig: kubeconfig,
			HeartbeatInterval: 200 * time.Millisecond, Settings: telemetry.Settings{LogLevel: "error"},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("relay: %v", err)
		}
	})
}

// workflow plays the workflow service: it creates the streams, sends calls, and receives the answers.
type workflow struct {
	conn    *bus.Conn
	answers chan event.FunctionCompleted
	beats   chan event.AgentHeartbeat
}

func connect(t *testing.T, nats *bustest.TestServer) workflow {
	t.Helper()
	w := workflow{nats.Connect(t, bus.UserWorkflow), make(chan event.FunctionCompleted, 100), make(chan event.AgentHeartbeat, 1000)}
	consumer := bus.Consumer{Stream: bus.StreamCluster, Durable: "workflow"}
	err := w.conn.Apply(t.Context(), bus.Topology{
		Streams:   []bus.Stream{bus.ClusterCallsStream(), bus.ClusterStream()},
		Consumers: []bus.Consumer{consumer, bus.AgentConsumer(agent)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- w.conn.Consume(ctx, consumer, func(_ context.Context, d bus.Delivery) error {
			if d.Event.Type() == event.TypeAgentHeartbeat {
				beat, err := event.Decode[event.AgentHeartbeat](d.Event)
				w.beats <- beat
				return err
			}
			answer, err := event.Decode[event.FunctionCompleted](d.Event)
			w.answers <- answer
			return err
		}, nil)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("consume: %v", err)
		}
	})
	return w
}

func (w workflow) call(t *testing.T, id string, attempt int, function, arguments string) event.FunctionCompleted {
	t.Helper()
	now := clock.System().Now()
	e, err := event.New(event.Header{ID: fmt.Sprintf("%s/%d", id, attempt), Source: "/services/workflow", Time: now}, event.FunctionCalled{
		AgentID: agent, CallID: id, Function: function, Arguments: json.RawMessage(arguments), Attempt: attempt,
		Deadline: now.Add(time.Minute).Format(time.RFC3339Nano),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := bustest.Publish(t.Context(), w.conn, e); err != nil {
		t.Fatal(err)
	}
	return next(t, w.answers)
}

func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case v := <-c:
		return v
	case <-ctx.Done():
		t.Fatal("nothing was received")
		panic("unreachable")
	}
}

func TestCallsAreAnsweredAfterTheBusLostItsStore(t *testing.T) {
	t.Parallel()
	nats := bustest.Server(t)
	cluster := &kubernetes{}
	start(t, cluster, nats) // before the streams exist
	w := connect(t, nats)

	if beat := next(t, w.beats); beat.AgentID != agent || !beat.ClusterReachable || beat.Version == "" {
		t.Errorf("heartbeat %+v", beat)
	}
	got := w.call(t, "exec/0.1", 1, "k8s.get", `{"agent_id":42,"kind":"Application","namespace":"argocd","name":"shop"}`)
	want := event.FunctionCompleted{AgentID: agent, CallID: "exec/0.1", Attempt: 1, Value: json.RawMessage(`{"found":false}`)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("k8s.get (-want +got):\n%s", diff)
	}

	const sha = "1111111111111111111111111111111111111111"
	const sync = `{"agent_id":42,"app_name":"shop","app_namespace":"argocd","revision":"` + sha + `",
		"source":{"repo_url":"http://git/shop.git","path":"staging","destination_namespace":"shop"}}`
	want = event.FunctionCompleted{
		AgentID: agent, CallID: "exec/0.2", Attempt: 1,
		Value: json.RawMessage(`{"phase":"Succeeded","revision":"` + sha + `"}`),
	}
	if diff := cmp.Diff(want, w.call(t, "exec/0.2", 1, "argo.sync", sync)); diff != "" {
		t.Errorf("argo.sync (-want +got):\n%s", diff)
	}

	nats.Wipe(t)
	want.Attempt = 2
	if diff := cmp.Diff(want, w.call(t, "exec/0.2", 2, "argo.sync", sync)); diff != "" {
		t.Errorf("argo.sync, sent again (-want +got):\n%s", diff)
	}
	cluster.mu.Lock()
	defer cluster.mu.Unlock()
	if cluster.patches != 1 {
		t.Errorf("%d syncs were started, want 1", cluster.patches)
	}
}

func TestConfigurationIsRefusedByName(t *testing.T) {
	t.Parallel()
	err := relay.Run(t.Context(), relay.Config{NATS: bus.NATS{NATSPassword: "x"}, NATSNKeySeedFile: "y", PollInterval: -1})
	for _, want := range []string{"agent_id: found 0", "nats_password: given beside", "poll_interval: found -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}
