package workflow_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus/bustest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/rpc/rpctest"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// pair is a certificate for the loopback address that vouches for itself, in files.
type pair struct{ cert, key string }

func newPair(t *testing.T, name string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := pair{cert: filepath.Join(dir, name+".pem"), key: filepath.Join(dir, name+".key")}
	for file, block := range map[string]*pem.Block{p.cert: {Type: "CERTIFICATE", Bytes: der}, p.key: {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// TestMutualTLSByConfiguration has the service ask for certificates and tokens, as its configuration says, and callers who lack the
// one or the other.
func TestMutualTLSByConfiguration(t *testing.T) {
	t.Parallel()
	pool, database := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()})
	pool.Close()
	nats := bustest.Server(t)
	ours, callers, strangers := newPair(t, "server"), newPair(t, "caller"), newPair(t, "stranger")
	s := &service{t: t, bus: nats, config: workflow.Config{
		DatabaseURL: database.URL, Schema: database.Schema, NATSURL: nats.URL(), NATSUser: "workflow", NATSPassword: "workflow",
		GRPCAddress: rpctest.FreeAddress(t), GRPCCert: ours.cert, GRPCKey: ours.key, GRPCClientCA: callers.cert,
		Token: token, AgentOwners: []workflow.AgentOwner{{Agent: agent, Organization: organization}}, Instance: "test", LogLevel: "error",
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
	s.AutoFlowClient = dial(rpc.ClientConfig{Token: token, CAFile: ours.cert, CertFile: callers.cert, KeyFile: callers.key})
	s.up()
	t.Cleanup(s.down)
	s.submit("w", "x = 1", "")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	for name, c := range map[string]struct {
		caller rpc.ClientConfig
		want   fault.Class
	}{
		"plain text":               {rpc.ClientConfig{Token: token, Insecure: true}, fault.Unavailable},
		"no certificate":           {rpc.ClientConfig{Token: token, CAFile: ours.cert}, fault.Unavailable},
		"a stranger's certificate": {rpc.ClientConfig{Token: token, CAFile: ours.cert, CertFile: strangers.cert, KeyFile: strangers.key}, fault.Unavailable},
		"a server nobody vouches for": {
			rpc.ClientConfig{Token: token, CAFile: strangers.cert, CertFile: callers.cert, KeyFile: callers.key}, fault.Unavailable,
		},
		"no token":    {rpc.ClientConfig{CAFile: ours.cert, CertFile: callers.cert, KeyFile: callers.key}, fault.Unauthenticated},
		"wrong token": {rpc.ClientConfig{Token: "wrong", CAFile: ours.cert, CertFile: callers.cert, KeyFile: callers.key}, fault.Unauthenticated},
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
