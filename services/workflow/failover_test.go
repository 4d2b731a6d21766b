package workflow_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// The primary is killed in the middle of commits, and its synchronous standby promoted (D66): every start that was acknowledged is still
// there and completes, a start whose answer was lost is one run however often it is tried, and the service reconnects by itself.
func TestAFailoverOfPostgreSQLLosesNoAcknowledgedStart(t *testing.T) {
	t.Parallel()
	pair, err := postgres.StartPair(t.Context(), t.TempDir(), [2]string{freePort(t), freePort(t)}, bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pair.Stop)
	nats := bustest.Server(t)
	s := &service{t: t, bus: nats, config: workflow.Config{
		Database: pg.Database{DatabaseURL: pair.URL()}, NATS: bus.NATS{NATSURL: nats.URL(), NATSPassword: "workflow"}, NATSUser: "workflow",
		GRPCAddress: porttest.FreeAddress(t), Token: token, Instance: "test", Settings: telemetry.Settings{LogLevel: "error"},
	}}
	conn, err := rpc.Dial(rpc.ClientConfig{Address: s.config.GRPCAddress, Token: token, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.AutoFlowClient = autoflowv1.NewAutoFlowClient(conn)
	s.up()
	t.Cleanup(s.down)

	ctx, stop := context.WithCancel(t.Context())
	load := &starts{service: s}
	var clients sync.WaitGroup
	for client := range 4 {
		clients.Go(func() { load.run(ctx, client) })
	}
	s.eventually("starts are acknowledged", func(context.Context) bool { return load.count() > 50 })
	if err := pair.KillPrimary(); err != nil {
		t.Fatal(err)
	}
	begun := clock.System().Now()
	// Long enough for commits and starts to fail.
	if err := clock.Sleep(t.Context(), clock.System(), 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := pair.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	promoted := clock.System().Now()
	before := load.count()
	s.eventually("starts are acknowledged again", func(context.Context) bool { return load.count() > before+50 })
	stop()
	clients.Wait()

	load.mu.Lock()
	defer load.mu.Unlock()
	for _, id := range load.acked {
		s.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	}
	first := load.firstAfter(promoted)
	t.Logf("RESULT | primary killed in the middle of commits, standby promoted after %.1f s | %d acknowledged starts, lost 0, "+
		"%d tries without an answer | %.1f s from the promotion to the next acknowledged start", promoted.Sub(begun).Seconds(), len(load.acked), load.unknown, first.Seconds())
	if first > 10*time.Second {
		t.Errorf("%v from the promotion to the next acknowledged start, want at most 10 s", first)
	}
}

// starts is a load of starts, each tried under its id until it is acknowledged.
type starts struct {
	*service
	mu      sync.Mutex
	acked   []string
	at      []time.Time
	unknown int
}

func (l *starts) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

func (l *starts) firstAfter(moment time.Time) time.Duration {
	for _, at := range l.at {
		if at.After(moment) {
			return at.Sub(moment)
		}
	}
	return time.Hour
}

func (l *starts) run(ctx context.Context, client int) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("start-%d-%d", client, n)
		for ctx.Err() == nil {
			within, cancel := context.WithTimeout(ctx, 5*time.Second)
			_, err := l.StartWorkflow(within, &autoflowv1.StartWorkflowRequest{
				OrganizationId: organization, WorkflowId: id, Starlark: []byte(fmt.Sprintf(`print(%d)`, n)),
			})
			cancel()
			l.mu.Lock()
			switch {
			case err == nil:
				l.acked, l.at = append(l.acked, id), append(l.at, clock.System().Now())
			case ctx.Err() == nil:
				l.unknown++
				if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded && code != codes.Canceled {
					l.t.Errorf("start %s: %v, want that the service is unavailable", id, err)
				}
			}
			l.mu.Unlock()
			if err == nil {
				break
			}
			_ = clock.Sleep(ctx, clock.System(), 50*time.Millisecond)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(porttest.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}
