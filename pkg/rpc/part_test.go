package rpc_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
)

// An HTTPS answer, whatever it is, demands HTTPS from then on (RFC 6797); a plain HTTP answer must not (section 7.2).
func TestHTTPSDemandsHTTPSFromThenOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		secured bool
		want    string
	}{"HTTPS": {true, "max-age=31536000"}, "HTTP": {false, ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transport, files, scheme := &http.Transport{}, certs.Files{}, "http://"
			if c.secured {
				files = certstest.New(t).Files(t, t.TempDir(), "server")
				authority, err := os.ReadFile(files.CA)
				if err != nil {
					t.Fatal(err)
				}
				pool := x509.NewCertPool()
				pool.AppendCertsFromPEM(authority)
				transport.TLSClientConfig, transport.ForceAttemptHTTP2 = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, true
				files.CA, scheme = "", "https://" // browsers have no certificate
			}
			t.Cleanup(transport.CloseIdleConnections)
			address := porttest.FreeAddress(t)
			part, err := rpc.HTTPPart("http", address, files, slog.New(slog.DiscardHandler),
				http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/panic" {
						panic("nil map")
					}
				}))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			ready, done := make(chan struct{}), make(chan error, 1)
			go func() { done <- part.Run(ctx, func() { close(ready) }) }()
			t.Cleanup(cancel)
			select {
			case <-ready:
			case err := <-done:
				t.Fatalf("ended before it was ready: %v", err)
			}
			client := &http.Client{Transport: transport, Timeout: 2 * time.Minute}
			for path, status := range map[string]int{"/": http.StatusOK, "/panic": http.StatusInternalServerError} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+address+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				if got := answer.Header.Get("Strict-Transport-Security"); got != c.want || answer.StatusCode != status {
					t.Errorf("%s: status %d, Strict-Transport-Security %q; want %d, %q", path, answer.StatusCode, got, status, c.want)
				}
			}
			transport.CloseIdleConnections()
			cancel()
			if err := <-done; err != nil {
				t.Errorf("serve: %v", err)
			}
		})
	}
}

func TestAnAddressThatIsJustLetGoOfIsWaitedFor(t *testing.T) {
	t.Parallel()
	address, clock := porttest.FreeAddress(t), clocktest.New(time.Date(2026, 11, 29, 1, 0, 0, 0, time.UTC))
	earlier, err := rpc.Listen(t.Context(), clock, address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	listen := func() {
		listener, err := rpc.Listen(t.Context(), clock, address)
		if err == nil {
			err = listener.Close()
		}
		done <- err
	}
	go listen()
	clock.AwaitTimers(1)
	if err := earlier.Close(); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Second)
	if err := <-done; err != nil {
		t.Errorf("the earlier listener is closed: %v", err)
	}
}

func TestAnAddressInUseIsAnError(t *testing.T) {
	t.Parallel()
	address, clock := porttest.FreeAddress(t), clocktest.New(time.Date(2026, 11, 29, 1, 0, 0, 0, time.UTC))
	other, err := rpc.Listen(t.Context(), clock, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	done := make(chan error, 1)
	go func() {
		_, err := rpc.Listen(t.Context(), clock, address)
		done <- err
	}()
	for range 20 {
		clock.AwaitTimers(1)
		clock.Advance(50 * time.Millisecond)
	}
	if err := <-done; !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "listen on "+address) {
		t.Errorf("found %v, expected that the address is in use", err)
	}
}
