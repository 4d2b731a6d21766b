package domain

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
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
		{"too few connections", Config{MaxConnections: 1}, "max_connections"},
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
