package registry

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/registry/internal/api"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/events"
	"github.com/lockstep-cd/lockstep/services/registry/internal/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/store"
)

// publisher moves events from the outbox to the bus. It is ready before the bus is: deliveries need only the database.
type publisher struct {
	config Config
	pool   *pgxpool.Pool
	log    *slog.Logger
	wake   chan struct{}
}

// nudge says that something has been committed.
func (p *publisher) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *publisher) run(ctx context.Context, ready func()) error {
	ready()
	conn, err := bus.Connect(ctx, bus.Config{
		URL: p.config.NATSURL, User: p.config.NATSUser, Password: p.config.NATSPassword, Name: name,
	}, p.log)
	if err != nil {
		return fmt.Errorf("connect to the bus: %w", err)
	}
	defer conn.Close()
	if err := conn.Apply(ctx, events.Topology()); err != nil {
		return fmt.Errorf("make the stream: %w", err)
	}
	sender := outbox.NewSender(outbox.SenderDeps{
		Pool: p.pool, Bus: conn, Clock: clock.System(), Log: p.log, Name: name, Receivers: []string{receiver},
	})
	var forward sync.WaitGroup
	defer forward.Wait()
	forward.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-p.wake:
				sender.Wake()
			}
		}
	})
	return sender.Run(ctx) // until ctx ends
}

// deliveries is the HTTP side: sources, rules and outbox put together, none of which knows of the others.
func deliveries(c Config, pool *pgxpool.Pool, log *slog.Logger, wake func()) http.Handler {
	box := store.NewOutbox(pool, events.NewEncoder(clock.System()).Encode, wake)
	var formats []api.Format
	for _, f := range source.Formats() {
		formats = append(formats, api.Format(f))
	}
	return api.NewHandler(api.Deps{
		Intake: core.NewIntake(box, clock.System()), Formats: formats, Tokens: c.Tokens, Clock: clock.System(), Log: log,
	})
}

// httpPart serves on an address, and is ready when that is taken.
func httpPart(part, address string, log *slog.Logger, handler http.Handler) run.Part {
	return run.Part{Name: part, Run: func(ctx context.Context, ready func()) error {
		var lc net.ListenConfig
		listener, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
		log.InfoContext(ctx, "listening", telemetry.KeyPart, part, telemetry.KeyAddress, listener.Addr().String())
		ready()
		return rpc.ServeHTTP(ctx, log, listener, handler)
	}}
}
