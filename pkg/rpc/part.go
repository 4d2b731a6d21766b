package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// A listener that was closed lives on for a moment in a child process that was forked before and has not executed its program yet: so many
// further attempts are made, so far apart.
const (
	listenAgain      = 20
	listenAgainAfter = 50 * time.Millisecond
)

// Listen listens on a TCP address, host:port, and waits a second while it is in use: by a process that is just ending, or by a child of
// this one that still has a listener of before.
func Listen(ctx context.Context, c clock.Clock, address string) (net.Listener, error) {
	for n := 0; ; n++ {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			return listener, nil
		}
		if n == listenAgain || !errors.Is(err, syscall.EADDRINUSE) || clock.Sleep(ctx, c, listenAgainAfter) != nil {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
	}
}

// Listening returns a part that serves on an address. It listens before it is ready: later parts can connect, and an address in use is an
// error at the start.
func Listening(part, address string, log *slog.Logger, serve func(context.Context, net.Listener) error) run.Part {
	return run.Part{Name: part, Run: func(ctx context.Context, ready func()) error {
		listener, err := Listen(ctx, clock.System(), address)
		if err != nil {
			return err
		}
		log.InfoContext(ctx, "listening", telemetry.KeyPart, part, telemetry.KeyAddress, listener.Addr().String())
		ready()
		return serve(ctx, listener)
	}}
}

// PlainHTTPPart returns a part that serves plain HTTP (ServeHTTP).
func PlainHTTPPart(part, address string, log *slog.Logger, handler http.Handler) run.Part {
	return Listening(part, address, log, func(ctx context.Context, listener net.Listener) error {
		return ServeHTTP(ctx, log, listener, handler)
	})
}

// transportSecurity makes browsers use HTTPS only, for a year from each answer (RFC 6797). It covers this name only: subdomains may
// belong to others. Browsers accept it only with a trusted certificate, and for a name, not for an address.
const transportSecurity = "max-age=31536000"

// secureOnly adds the header to every answer of a handler that is served over TLS.
func secureOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", transportSecurity)
		next.ServeHTTP(w, r)
	})
}

// HTTPPart is PlainHTTPPart if no files are given, and otherwise serves HTTPS with the certificate in them, with HTTP/2 and HSTS. The error
// is Invalid and names the file at fault.
func HTTPPart(part, address string, files certs.Files, log *slog.Logger, handler http.Handler) (run.Part, error) {
	if !files.Given() {
		return PlainHTTPPart(part, address, log, handler), nil
	}
	secured, err := files.Server(log, "h2", "http/1.1")
	if err != nil {
		return run.Part{}, fmt.Errorf("part %s: %w", part, err)
	}
	return Listening(part, address, log, func(ctx context.Context, listener net.Listener) error {
		return ServeHTTP(ctx, log, tls.NewListener(listener, secured), secureOnly(handler))
	}), nil
}
