package domain

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		c     Config
		field string
	}{
		{"the zero value", Config{}, ""},
		{"a short token", Config{BootstrapToken: "secret"}, "bootstrap_token"},
		{"a token with a space", Config{BootstrapToken: "0123456789 0123456789"}, "bootstrap_token"},
		{"certificates without TLS", Config{WorkflowCAFile: "ca.pem"}, "workflow_ca_file"},
		{"our certificate without TLS", Config{WorkflowCertFile: "c.pem", WorkflowKeyFile: "c.key"}, "workflow_cert_file"},
		{"our certificate without its key", Config{WorkflowTLS: true, WorkflowCertFile: "c.pem"}, "workflow_cert_file"},
		{"a whole identity provider", Config{
			PublicURL: "https://cd.example.com",
			OIDC:      OIDC{Issuer: "https://id.example.com", ClientID: "lockstep", Roles: []string{"cn=platform,dc=example=owner"}},
		}, ""},
		{
			"an identity provider without our own address",
			Config{OIDC: OIDC{Issuer: "https://id.example.com", ClientID: "lockstep"}},
			"public_url",
		},
		{"our own address with a path", Config{
			PublicURL: "https://cd.example.com/cd",
			OIDC:      OIDC{Issuer: "https://id.example.com", ClientID: "lockstep"},
		}, "public_url"},
		{
			"an identity provider that is no address",
			Config{PublicURL: "https://cd.example.com", OIDC: OIDC{Issuer: "id.example.com", ClientID: "lockstep"}},
			"oidc.issuer",
		},
		{
			"an identity provider without a client",
			Config{PublicURL: "https://cd.example.com", OIDC: OIDC{Issuer: "https://id.example.com"}},
			"oidc.client_id",
		},
		{"a group with a role that there is not", Config{
			PublicURL: "https://cd.example.com",
			OIDC:      OIDC{Issuer: "https://id.example.com", ClientID: "lockstep", Roles: []string{"platform=king"}},
		}, "oidc.roles"},
		{"too long a window of metrics", Config{DeliveryMetrics: DeliveryMetrics{Days: 367}}, "delivery_metrics.days"},
		{"no room for metrics", Config{DeliveryMetrics: DeliveryMetrics{Most: -1}}, "delivery_metrics.most"},
		{"too few connections", Config{MaxConnections: 1}, "max_connections"},
		{"a standby that is never fresh", Config{DatabaseStandbyStaleness: time.Second}, "database_standby_staleness"},
		{"a level that there is not", Config{Settings: telemetry.Settings{LogLevel: "loud"}}, "log_level"},
		{"an event bus by HTTP", Config{NATS: bus.NATS{NATSURL: "http://127.0.0.1:4222"}}, "nats_url"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.c.Validate()
			if (err == nil) != (tt.field == "") || err != nil && (!fault.Is(err, fault.Invalid) || fault.FieldsOf(err)[0].Name != tt.field) {
				t.Errorf("error = %v, want one about %q", err, tt.field)
			}
			if err != nil && tt.c.BootstrapToken != "" && strings.Contains(err.Error(), tt.c.BootstrapToken) {
				t.Error("the error shows the token")
			}
		})
	}
}

// What nobody has configured finds the workflow service on the port where that one listens by default.
func TestTheWorkflowServiceIsFoundWhereItListens(t *testing.T) {
	t.Parallel()
	c := Config{}.withDefaults()
	text, err := os.ReadFile("../workflow/config.go")
	if err != nil {
		t.Fatal(err)
	}
	listens := regexp.MustCompile("`koanf:\"grpc_address\" default:\"([^\"]+)\"`").FindSubmatch(text)
	if listens == nil || !strings.HasSuffix(c.WorkflowAddress, string(listens[1])) {
		t.Errorf("found %q, expected port %q", c.WorkflowAddress, listens)
	}
}
