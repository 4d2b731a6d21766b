package workflow_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// TestMutualTLSByConfiguration has the service ask for certificates and tokens, as its configuration says, and callers who lack the
// one or the other.
func TestMutualTLSByConfiguration(t *testing.T) {
	t.Parallel()
	pool, database := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()})
	pool.Close()
	nats := bustest.Server(t)
	dir := t.TempDir()
	ours := certstest.New(t).Files(t, dir, "server")
	callers, strangers := certstest.New(t).Files(t, dir, "caller"), certstest.New(t).Files(t, dir, "stranger")
	s := &service{t: t, bus: nats, config: workflow.Config{
		Database: pg.Database{DatabaseURL: database.URL}, Schema: database.Schema, NATS: bus.NATS{NATSURL: nats.URL(), NATSPassword: "workflow"},
		NATSUser:    "workflow",
		GRPCAddress: porttest.FreeAddress(t), GRPCCertFile: ours.Cert, GRPCKeyFile: ours.Key, GRPCClientCAFile: callers.CA,
		Token: token, AgentOwners: []workflow.AgentOwner{{Agent: agentID, Organization: organization}}, Instance: "test",
		Settings: telemetry.Settings{LogLevel: "error"},
	}}
	dial := func(c rpc.ClientConfig) autoflowv1.AutoFlowClient {
		c.Address = s.config.GRPCAddress
		conn, err := rpc.Dial(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return autoflowv1.NewAutoFlowClient(conn)
	}
	s.AutoFlowClient = dial(rpc.ClientConfig{Token: token, CAFile: ours.CA, CertFile: callers.Cert, KeyFile: callers.Key})
	s.up()
	t.Cleanup(s.down)
	s.submit("w", "x = 1", "")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	for name, c := range map[string]struct {
		caller rpc.ClientConfig
		want   fault.Class
	}{
		"plain text":     {rpc.ClientConfig{Token: token, Insecure: true}, fault.Unavailable},
		"no certificate": {rpc.ClientConfig{Token: token, CAFile: ours.CA}, fault.Unavailable},
		"a stranger's certificate": {
			rpc.ClientConfig{Token: token, CAFile: ours.CA, CertFile: strangers.Cert, KeyFile: strangers.Key},
			fault.Unavailable,
		},
		"a server nobody vouches for": {
			rpc.ClientConfig{Token: token, CAFile: strangers.CA, CertFile: callers.Cert, KeyFile: callers.Key}, fault.Unavailable,
		},
		"no token":    {rpc.ClientConfig{CAFile: ours.CA, CertFile: callers.Cert, KeyFile: callers.Key}, fault.Unauthenticated},
		"wrong token": {rpc.ClientConfig{Token: "wrong", CAFile: ours.CA, CertFile: callers.Cert, KeyFile: callers.Key}, fault.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := dial(c.caller).GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "w"})
			if !fault.Is(err, c.want) {
				t.Errorf("%v, expected %v", err, c.want)
			}
		})
	}
}
