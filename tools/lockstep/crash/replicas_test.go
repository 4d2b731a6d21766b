package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// Two replicas each of the domain and the workflow service are replaced one after the other, as a rolling upgrade does it, with a
// rollout under way: no call of the API fails, and the rollout ends as if nothing had been.
func TestReplicasAreReplacedOneByOne(t *testing.T) {
	t.Parallel()
	ctx, w := setup(t, oneStage())
	set, err := w.Push(ctx, "2.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"domain", "workflow"} { // the stack runs one of each; here there are two
		if err := w.stack.Disconnect(part); err != nil {
			t.Fatal(err)
		}
	}
	service := newBalancer(t)
	pairs := []*pair{w.pair(t, "a"), w.pair(t, "b")}
	for _, p := range pairs {
		p.start(ctx, t)
		service.add(p.domain.address)
	}
	endpoints := w.stack.Endpoints()
	w.API = client.New(client.Config{Endpoint: service.url + "/graphql", Token: endpoints.Token})

	w.replaceUnderARollout(ctx, t, service, pairs, set, func(*pair) {})
}

// replaceUnderARollout replaces pairs one after the other, under a rollout that is held until the first is: becomes says what comes in
// place of one. No call of the API fails meanwhile, and the rollout ends as if nothing had been.
func (w *world) replaceUnderARollout(
	ctx context.Context, t *testing.T, service *balancer, pairs []*pair, set client.VersionSet, becomes func(*pair),
) {
	t.Helper()
	// Not under the context that ends with the rollout, which may be over before the last is replaced.
	r := w.roll(ctx, t, set, func(_ context.Context, r client.Rollout) error {
		if _, err := w.API.PauseRollout(ctx, r.ID, "upgrade"); err != nil {
			return err
		}
		calls := w.callWithoutEnd(ctx, r.ID)
		for i, p := range pairs {
			service.remove(p.domain.address)
			p.stop(t)
			becomes(p)
			p.start(ctx, t)
			service.add(p.domain.address)
			if i > 0 {
				continue
			}
			// From here on it runs on both.
			if _, err := w.API.ResumeRollout(ctx, r.ID, "half of it is done"); err != nil {
				return err
			}
		}
		n, err := calls()
		t.Logf("%d calls meanwhile", n)
		return err
	})
	w.expectAllGates(t, r)
}

// callWithoutEnd has several callers ask for a rollout over and over, until stop, which answers how often that was and every
// failure.
func (w *world) callWithoutEnd(ctx context.Context, rollout string) (stop func() (int, error)) {
	var mu sync.Mutex
	var calls int
	var failed []error
	calling, cancel := context.WithCancel(ctx)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for calling.Err() == nil {
				// Not under the context that is cancelled: a call that is cut off by the end of the test has not failed.
				_, err := w.API.Rollout(ctx, rollout)
				mu.Lock()
				if calls++; err != nil {
					failed = append(failed, err)
				}
				mu.Unlock()
			}
		})
	}
	return func() (int, error) {
		cancel()
		callers.Wait()
		return calls, errors.Join(failed...)
	}
}

// pair is a replica of the workflow service and one of the domain service that calls it.
type pair struct{ workflow, domain *replica }

func (w *world) pair(t *testing.T, name string) *pair {
	t.Helper()
	grpc := porttest.FreeAddress(t)
	return &pair{
		workflow: w.replica(t, "workflow", name, grpc, map[string]any{"grpc_address": grpc, "instance": "replica-" + name}),
		domain:   w.replica(t, "domain", name, porttest.FreeAddress(t), map[string]any{"workflow_address": grpc}),
	}
}

func (p *pair) start(ctx context.Context, t *testing.T) {
	t.Helper()
	p.workflow.start(ctx, t)
	p.domain.start(ctx, t)
}

// stop ends both as Kubernetes does.
func (p *pair) stop(t *testing.T) {
	t.Helper()
	p.domain.stop(t)
	p.workflow.stop(t)
}

// replica is a process of a service beside those of the stack.
type replica struct {
	part, config, log string
	address, health   string
	// program is whose service it is; empty for this code's.
	program string
	command *exec.Cmd
}

// replica is a further one of a part, with its own addresses; more changes the configuration that the stack has written.
func (w *world) replica(t *testing.T, part, name, address string, more map[string]any) *replica {
	t.Helper()
	folder := filepath.Dir(filepath.Dir(w.stack.LogFile(part)))
	text, err := os.ReadFile(filepath.Join(folder, "config", part+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{part: part, address: address, health: porttest.FreeAddress(t)}
	settings := map[string]any{}
	if err := yaml.Unmarshal(text, &settings); err != nil {
		t.Fatal(err)
	}
	settings["health_address"] = r.health
	if part == "domain" || part == "registry" {
		settings["http_address"] = address
	}
	for key, value := range more {
		settings[key] = value
	}
	if text, err = yaml.Marshal(settings); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r.config, r.log = filepath.Join(dir, part+"-"+name+".yaml"), filepath.Join(dir, part+"-"+name+".log")
	if err := os.WriteFile(r.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.command != nil {
			r.stop(t)
		}
	})
	return r
}

// configure changes the process's configuration for its next start.
func (r *replica) configure(t *testing.T, change map[string]any) {
	t.Helper()
	text, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]any{}
	if err := yaml.Unmarshal(text, &settings); err != nil {
		t.Fatal(err)
	}
	maps.Copy(settings, change)
	if text, err = yaml.Marshal(settings); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// restart is what Kubernetes does to a pod whose Secret has changed.
func (r *replica) restart(ctx context.Context, t *testing.T) {
	t.Helper()
	r.stop(t)
	r.start(ctx, t)
}

// readiness is what the process answers a probe.
func (r *replica) readiness(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.health+"/readyz", nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// start starts the process and waits until it is ready.
func (r *replica) start(ctx context.Context, t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	r.command = exec.CommandContext(context.WithoutCancel(ctx), cmp.Or(r.program, os.Args[0]), "serve", r.part, "--config",
		r.config)
	r.command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LOCKSTEP_") })
	r.command.Stdout, r.command.Stderr = log, log
	r.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.command.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		status, err := r.readiness(ctx)
		if err == nil && status == http.StatusOK {
			return
		}
		if clock.Sleep(ctx, clock.System(), 10*time.Millisecond) != nil {
			text, _ := os.ReadFile(r.log)
			t.Fatalf("%s is not ready: %d, %v\n%s", r.part, status, err, text)
		}
	}
}

// stop asks the process to end, which it has to do by itself, with success.
func (r *replica) stop(t *testing.T) {
	t.Helper()
	command := r.command
	r.command = nil
	err := errors.Join(command.Process.Signal(syscall.SIGTERM), command.Wait())
	text, readErr := os.ReadFile(r.log)
	if err := errors.Join(err, readErr); err != nil || strings.Contains(string(text), "DATA RACE") {
		t.Errorf("%s: %v\n%s", r.part, err, text)
	}
}

// balancer is one address before several, of which each request goes to the next: what a Service is in a cluster.
type balancer struct {
	url string

	mu       sync.Mutex
	backends []string
	next     int
	under    map[string]*sync.WaitGroup // the requests that are at each
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	b := &balancer{under: map[string]*sync.WaitGroup{}}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: r.In.Host}) },
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, err error) {
			http.Error(rw, fmt.Sprintf("balancer: %v", err), http.StatusBadGateway)
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		backend, done := b.pick()
		defer done()
		r.Host = backend
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

// pick answers whose turn it is, until done is called.
func (b *balancer) pick() (backend string, done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	backend = b.backends[b.next%len(b.backends)]
	under := b.under[backend]
	under.Add(1)
	return backend, under.Done
}

func (b *balancer) add(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends, b.under[address] = append(b.backends, address), &sync.WaitGroup{}
}

// remove sends no more requests to an address, and waits for those that are on their way, as a pod waits before it stops.
func (b *balancer) remove(address string) {
	b.mu.Lock()
	b.backends = slices.DeleteFunc(slices.Clone(b.backends), func(other string) bool { return other == address })
	under := b.under[address]
	b.mu.Unlock()
	under.Wait()
}
