package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// reachable lets Functions reach the server of the scenario, which is on this machine.
func reachable(c *workflow.Config) { c.HTTPAllowNetworks = []string{"127.0.0.1"} }

// asked is a server that checks call.
type asked struct {
	url   string
	calls atomic.Int64
}

// serve answers every call in the same way, until the end of the scenario.
func (a *asked) serve(ctx context.Context) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for checks: %w", err)
	}
	a.url = "http://" + listener.Addr().String()
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a.calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"approved": false}`))
	})}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}

// checkInputs are those that the domain service starts the run of a check with.
func checkInputs(url string, run int) ([]byte, error) {
	environments := []any{map[string]any{"id": 1, "name": "staging", "tier": "staging", "version_set_id": 4}}
	return json.Marshal(map[string]any{
		"check": map[string]any{
			"run_id": run + 1, "key": "approval", "kind": "web-request@1", "target": "proposed", "number": 1, "before": []any{}, "elsewhere": []any{},
		},
		"config": map[string]any{
			"http_request": map[string]any{"url_template": url + "/{[ .PromotionStrategy.Name ]}/{[ .Branch ]}"},
			"mode":         map[string]any{"type": "polling", "interval": 60},
			"success":      map[string]any{"when": map[string]any{"expression": "Response.StatusCode == 200 && Response.Body.approved == true"}},
		},
		"subject": map[string]any{
			"application": map[string]any{"id": 1, "name": "shop"}, "environment": environments[0], "environments": environments,
			"rollout": map[string]any{"id": 7}, "commits": []any{}, "version_set": map[string]any{"id": 5, "name": "5", "versions": []any{}},
		},
	})
}

// webRequests is B21: what checks of kind web-request use that call a server once a minute and find the same, and what they use between
// their calls.
func webRequests(ctx context.Context, w *world, r *report) error {
	var server asked
	stop, err := server.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	kinds, err := driver.EmbeddedChecks()
	if err != nil {
		return err
	}
	kind, err := kinds.Get("web-request@1")
	if err != nil {
		return err
	}
	program, err := kind.Program(driver.Check)
	if err != nil {
		return err
	}
	n := w.scaled(1_000)
	const spread = 50 * time.Second // so that not all are due in the same second, as those of rollouts are not
	began := now()
	_, _, err = w.drive(ctx, 8, n, func(ctx context.Context, c autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		if early := began.Add(spread * time.Duration(i) / time.Duration(n)).Sub(now()); early > 0 {
			if err := pause(ctx, early); err != nil {
				return 0, err
			}
		}
		inputs, err := checkInputs(server.url, i)
		if err != nil {
			return 0, err
		}
		request := workflowRequest(fmt.Sprintf("check-%d", i+1), string(program.Source), string(inputs))
		request.Modules = program.Modules
		_, err = c.StartWorkflow(ctx, request)
		return 0, err
	})
	if err != nil {
		return err
	}
	if err := w.maintained(ctx); err != nil {
		return err
	}
	const minutes = 2
	for server.calls.Load() < int64(n) { // all have called once
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	if err := w.received(ctx); err != nil {
		return err
	}
	calls := server.calls.Load()
	before, err := w.usage(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, minutes*time.Minute); err != nil {
		return err
	}
	after, err := w.usage(ctx)
	if err != nil {
		return err
	}
	made := int(server.calls.Load() - calls)
	if least := n * minutes * 95 / 100; made < least {
		return fmt.Errorf("found %d calls in %d minutes, expected at least %d of %d checks", made, minutes, least, n)
	}
	used := after.since(before)
	m := row{Scenario: "web-request checks", Engine: "lockstep", N: n, Unit: "checks that call once a minute"}
	m = m.used(used, made)
	m.Note = fmt.Sprintf("%d calls; %s", made, idleOf(used, minutes*time.Minute))
	r.add(m)
	return nil
}
