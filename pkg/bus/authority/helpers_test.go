package authority_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, bustest.Leftovers()...) }

// heartbeat is one of an agent.
func heartbeat(t *testing.T, agent int64) event.Event {
	t.Helper()
	at := time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)
	e, err := event.New(event.Header{ID: fmt.Sprintf("beat-%d", agent), Source: fmt.Sprintf("/agents/%d", agent), Time: at},
		event.AgentHeartbeat{
			AgentID: agent, Version: "v1", ClusterReachable: true, StartedAt: at.Format(time.RFC3339Nano), ObservedAt: at.Format(time.RFC3339Nano),
		})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
