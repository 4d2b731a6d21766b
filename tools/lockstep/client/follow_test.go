package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

const twoEvents = ":\n\nid: Mw\nevent: next\ndata: {\"data\":{\"journal\":{\"cursor\":\"Mw\"}}}\n\n:\n\nevent: next\ndata: {\"data\":{\"journal\":{\"cursor\":\"NA\"}}}\n\n"

// TestAStreamEndsAsTheServerReports reads streams that end in every possible way.
func TestAStreamEndsAsTheServerReports(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for name, c := range map[string]struct {
		kind, body string
		stop       error
		reported   []string
		class      fault.Class
		is         error
	}{
		"completed by the server": {kind: "text/event-stream", body: twoEvents + "event: complete\ndata:\n\n", reported: []string{"Mw", "NA"}},
		"broken off": {
			kind: "text/event-stream; charset=utf-8", body: twoEvents, reported: []string{"Mw", "NA"},
			class: fault.Unavailable,
		},
		"broken off within an event": {
			kind: "text/event-stream", body: twoEvents + "event: next\ndata: {\"da", reported: []string{"Mw", "NA"},
			class: fault.Unavailable,
		},
		"refused in the stream": {
			kind: "text/event-stream",
			body: "event: next\ndata: {\"errors\":[{\"message\":\"none\",\"extensions\":{\"code\":\"NOT_FOUND\"}}]}\n\n", class: fault.NotFound,
		},
		"refused before": {
			kind: "application/json", body: `{"errors":[{"message":"no","extensions":{"code":"DENIED"}}]}`,
			class: fault.Denied,
		},
		"stopped by the caller": {kind: "text/event-stream", body: twoEvents, stop: enough, reported: []string{"Mw"}, is: enough},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(w, c.body)
			}))
			t.Cleanup(server.Close)
			var reported []string
			err := client.New(client.Config{Endpoint: server.URL}).FollowRollout(t.Context(), "rollout_1", "MQ", func() {},
				func(cursor string) error {
					reported = append(reported, cursor)
					return c.stop
				})
			if diff := cmp.Diff(c.reported, reported); diff != "" {
				t.Errorf("reported (-want +got):\n%s", diff)
			}
			switch {
			case c.is != nil:
				if !errors.Is(err, c.is) {
					t.Errorf("ended with %v, want %v", err, c.is)
				}
			case (c.class == fault.Internal) != (err == nil), err != nil && !fault.Is(err, c.class):
				t.Errorf("ended with %v, want class %v", err, c.class)
			}
		})
	}
}

// TestASilentStreamIsGivenUp: the server sends neither events nor heartbeats.
func TestASilentStreamIsGivenUp(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // the client has given up
	}))
	t.Cleanup(server.Close)
	now := clocktest.New(time.Unix(1_800_000_000, 0))
	opened, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- client.New(client.Config{Endpoint: server.URL, Clock: now}).FollowRollout(t.Context(), "rollout_1",
			"MQ", func() { close(opened) }, func(string) error { return nil })
	}()
	within := time.NewTimer(time.Minute)
	defer within.Stop()
	select {
	case <-opened:
	case <-within.C:
		t.Fatal("the stream was not opened within a minute")
	}
	now.AwaitTimers(1)
	now.Advance(time.Minute)
	select {
	case err := <-ended:
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("ended with %v, want Unavailable", err)
		}
	case <-within.C:
		t.Fatal("the stream was not given up within a minute")
	}
}
