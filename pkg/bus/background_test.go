package bus_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
)

// connections is a log that notes when a connection is made.
type connections struct {
	slog.Handler
	made chan struct{}
}

func (c connections) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "nats connected" {
		c.made <- struct{}{}
	}
	return nil
}

func (connections) Enabled(context.Context, slog.Level) bool { return true }

// TestABackgroundConnectionIsMadeAtOnce: the library may report a connection before Connect has it; with -race, this shows whether
// both use the same memory.
func TestABackgroundConnectionIsMadeAtOnce(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	for range 20 {
		made := make(chan struct{}, 10)
		c := server.Config(bus.UserDomain)
		c.Background = true
		conn, err := bus.Connect(t.Context(), c, slog.New(connections{slog.DiscardHandler, made}))
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-made:
		case <-time.After(patience):
			t.Fatal("the connection is never reported")
		}
		conn.Close()
	}
}
