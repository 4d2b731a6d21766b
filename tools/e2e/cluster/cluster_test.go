package cluster_test

import (
	"os"
	"testing"

	"github.com/lockstep-cd/lockstep/tools/e2e/cluster"
)

// TestStart starts and stops a cluster. It needs the programs, so `make test` skips it; `make e2e` does the same.
func TestStart(t *testing.T) {
	t.Parallel()
	programs := os.Getenv("LOCKSTEP_CLUSTER")
	if programs == "" {
		t.Skip("LOCKSTEP_CLUSTER, the folder that tools/cluster/build.sh prints, is not set")
	}
	c, err := cluster.Start(t.Context(), cluster.Config{Programs: programs, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	c.Stop()
}
