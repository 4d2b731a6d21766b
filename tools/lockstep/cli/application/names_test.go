package application

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// D57: environments and services keep their names; the error says what to do instead.
func TestNamesThatAreKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cmd  *cobra.Command
		args []string
		want string
	}{
		{commands{}.environmentRename(), []string{"staging", "stage"}, "lockstep environment create stage"},
		{commands{}.serviceRename(), []string{"shop", "api", "backend"}, "lockstep service add shop backend"},
	} {
		if err := tt.cmd.RunE(tt.cmd, tt.args); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: found %v; want it refused with %q", tt.cmd.Use, err, tt.want)
		}
	}
}
