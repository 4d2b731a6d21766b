package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 60 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	stopTimeout       = 10 * time.Second
)

// ServeHTTP answers requests on listener until ctx ends, then lets those in flight finish, for ten seconds at most. There
// is no write timeout: answers may stream.
func ServeHTTP(ctx context.Context, log *slog.Logger, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		// Requests in flight outlive ctx until they are done: it is Shutdown that ends them.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve HTTP on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	// ctx has ended; what is left of the work gets its own time.
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := server.Shutdown(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-served
	return err
}
