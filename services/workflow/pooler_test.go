package workflow_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgbouncer"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

// Two replicas behind PgBouncer in transaction mode, which has four connections to the server for all of theirs (D66): runs that wait for
// events complete, whichever replica got which, and what they emit is published by one sender.
func TestTwoReplicasBehindPgBouncer(t *testing.T) {
	t.Parallel()
	pgbouncer.Program(t)
	direct, database := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()}, pgtest.Migration{Name: "workflow", FS: store.Migrations()})
	address := pgbouncer.Address(t)
	through, err := url.Parse(database.URL)
	if err != nil {
		t.Fatal(err)
	}
	through.Host, through.Path, through.RawQuery = address, "/pooled", "sslmode=disable"
	database.URL, database.DirectURL, database.Settings = through.String(), database.URL, store.Settings()
	entry, err := database.PoolerEntry()
	if err != nil {
		t.Fatal(err)
	}
	pgbouncer.Start(t, address, database.DirectURL, entry, 4)

	nats := bustest.Server(t)
	var replicas [2]*service
	for i := range replicas {
		s := &service{t: t, bus: nats, config: workflow.Config{
			Database: pg.Database{DatabaseURL: database.URL, DatabaseDirectURL: database.DirectURL}, Schema: database.Schema,
			NATS: bus.NATS{NATSURL: nats.URL(), NATSPassword: "workflow"}, NATSUser: "workflow",
			GRPCAddress: porttest.FreeAddress(t), Token: token, Instance: fmt.Sprintf("test-%d", i), Settings: telemetry.Settings{LogLevel: "error"},
		}}
		conn, err := rpc.Dial(rpc.ClientConfig{Address: s.config.GRPCAddress, Token: token, Insecure: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		s.AutoFlowClient = autoflowv1.NewAutoFlowClient(conn)
		s.up()
		t.Cleanup(s.down)
		replicas[i] = s
	}
	const runs = 60
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			_, err := replicas[i%2].StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
				OrganizationId: organization, WorkflowId: fmt.Sprintf("run-%d", i), Inputs: fmt.Appendf(nil, `{"number": %d}`, i),
				Starlark: []byte(`wait_for_event("com.example.go", filter = {"number": number})`),
			})
			if err == nil {
				_, err = replicas[(i+1)%2].CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: fmt.Appendf(nil,
					`{"specversion":"1.0","id":"go-%d","source":"/test","type":"com.example.go","organizationid":"%d","data":{"number":%d}}`,
					i, organization, i)})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range runs {
		replicas[i%2].await(fmt.Sprintf("run-%d", i), autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	}
	replicas[0].eventually("what the runs emit is published", func(ctx context.Context) bool {
		var left, there int
		err := direct.QueryRow(ctx, "SELECT count(*) FILTER (WHERE attempts = 0), count(*) FROM outbox").Scan(&left, &there)
		return err == nil && left == 0 && there >= runs
	})
}
