package rpc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

func serveHTTP(t *testing.T, handler http.HandlerFunc) *fixture {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{address: "http://" + lis.Addr().String(), log: &syncBuffer{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rpc.ServeHTTP(ctx, telemetry.Logger(f.log, "debug"), lis, handler) }()
	f.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := f.stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return f
}

// client returns an HTTP client that is closed with the test.
func client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func request(t *testing.T, c *http.Client, method, url, body string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("request: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestServeHTTP(t *testing.T) {
	t.Parallel()
	f := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic("nil map")
		case "/half":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
			panic("nil map")
		case "/healthz":
		case "/hooks/hunter2":
			rpc.ShowPath(w, "/hooks/***")
		case "/hooks/hunter2/panic":
			rpc.ShowPath(w, "/hooks/***")
			panic("nil map")
		default:
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.Copy(w, r.Body)
		}
	})
	c := client(t)
	if code, body, err := request(t, c, http.MethodPost, f.address+"/x?token=hunter2", "hello"); code != 202 || body != "hello" || err != nil {
		t.Errorf("answer %d %q, error %v", code, body, err)
	}
	if code, body, err := request(t, c, http.MethodGet, f.address+"/panic", ""); code != 500 || body != "internal error\n" || err != nil {
		t.Errorf("panic: answer %d %q, error %v", code, body, err)
	}
	if code, body, err := request(t, c, http.MethodGet, f.address+"/half", ""); err == nil {
		t.Errorf("half an answer passes for whole: %d %q", code, body)
	}
	if code, _, err := request(t, c, http.MethodGet, f.address+"/healthz", ""); code != 200 || err != nil {
		t.Errorf("healthz: %d, error %v", code, err)
	}
	for _, path := range []string{"/hooks/hunter2", "/hooks/hunter2/panic"} {
		if _, _, err := request(t, c, http.MethodGet, f.address+path, ""); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	log := f.log.String()
	for _, want := range []string{
		`"msg":"request handled","method":"GET","path":"/hooks/***","status":200`,
		`"level":"INFO","msg":"request handled","method":"POST","path":"/x","status":202`,
		`"level":"DEBUG","msg":"request handled","method":"GET","path":"/healthz","status":200`, `"level":"ERROR","msg":"request panicked"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "hunter2") {
		t.Error("the query, or a path that is hidden, is in the log")
	}
}

func TestHTTPStreamsAreFlushedAndEndWithTheServer(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	f := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, "event: next\n")
		flusher, ok := w.(http.Flusher)
		if !ok {
			panic("no flusher")
		}
		flusher.Flush()
		<-r.Context().Done()
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.address, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "event: next\n" || err != nil {
		t.Errorf("line %q, error %v", line, err)
	}
	if err := f.stop(); err != nil {
		t.Error(err)
	}
	<-ended
}

// A server that stops accepts no new requests, and answers those that it has accepted.
func TestHTTPStopLetsRequestsEnd(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	f := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		if err := r.Context().Err(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "whole")
	})
	type answer struct {
		code int
		body string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		code, body, err := request(t, client(t), http.MethodPost, f.address, "{}")
		answered <- answer{code, body, err}
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- f.stop() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for { // until the stop has begun
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(f.address, "http://"))
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	if ctx.Err() != nil {
		t.Error("a stopping server accepts connections after a minute")
	}
	close(release)
	if got := <-answered; got != (answer{http.StatusOK, "whole", nil}) {
		t.Errorf("answered %d %q, error %v; want the whole answer", got.code, got.body, got.err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}
