package domain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// repeated writes n more of a rollout that is over, each over a second before the one that was made before it, so that what was
// made last was over first. Every tenth had failed.
func (s *shop) repeated(r core.Rollout, n int) {
	s.t.Helper()
	tx, err := s.pool.Begin(s.t.Context())
	s.ok(err)
	for _, sql := range []string{
		`SET LOCAL session_replication_role = replica`,
		`CREATE TEMPORARY TABLE made ON COMMIT DROP AS SELECT nextval(pg_get_serial_sequence('cd_rollouts', 'id')) AS id, n FROM generate_series(1, $1::int) n`,
		`INSERT INTO cd_rollouts (id, organization_id, application_id, version_set_id, flow_definition_id, workflow_ref, asked, state, started_at, finished_at, created_at)
			OVERRIDING SYSTEM VALUE SELECT m.id, organization_id, application_id, version_set_id, flow_definition_id, 'again-' || m.id, false,
			CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'completed' END, started_at, finished_at - interval '1 second' * n, created_at FROM cd_rollouts, made m WHERE cd_rollouts.id = $1`,
		`INSERT INTO cd_rollout_environments (organization_id, rollout_id, environment_id, position, driver_binding_id, driver_digest, state, started_at, finished_at, created_at)
			SELECT organization_id, m.id, environment_id, position, driver_binding_id, driver_digest,
			CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'completed' END, started_at - interval '1 second' * n, finished_at - interval '1 second' * n, created_at
			FROM cd_rollout_environments, made m WHERE rollout_id = $1`,
	} {
		args := []any{r.ID}
		switch {
		case strings.HasPrefix(sql, "SET"):
			args = nil
		case strings.HasPrefix(sql, "CREATE"):
			args = []any{n}
		}
		_, err := tx.Exec(s.t.Context(), sql, args...)
		s.ok(err)
	}
	s.ok(tx.Commit(s.t.Context()))
	_, err = s.pool.Exec(s.t.Context(), `ANALYZE cd_rollouts, cd_rollout_environments`) // as the server does after a while
	s.ok(err)
}

// TestABusyApplicationTakesNobodysMetricsAway has an application with more rollouts than are read at once, which counts in full; then one
// with more than a question may be about, which is left out of what is shown, and the others are not.
func TestABusyApplicationTakesNobodysMetricsAway(t *testing.T) {
	long(t)
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.succeed(r)
	blog := s.fixture.application("a-blog", "site") // before the shop, by name
	_, err := s.setup.CreateFlowDefinition(t.Context(), user(),
		setup.NewFlowDefinition{ApplicationID: blog.ID, Definition: pipeline("staging", "production")})
	s.ok(err)
	config := DeliveryMetrics{Environments: []string{"staging", "production"}, Days: 30, Most: 4}
	shows := func(deployments map[string]int, left int) {
		t.Helper()
		var shown telemetry.Delivery
		s.ok(s.measureDelivery(t.Context(), config, &shown))
		want := "# HELP lockstep_delivery_deployments Deployments that were completed in the window.\n# TYPE lockstep_delivery_deployments gauge\n"
		for _, application := range []string{"a-blog", "shop"} {
			if n, is := deployments[application]; is {
				want += fmt.Sprintf("lockstep_delivery_deployments{application=%q,environment=\"production\",tier=\"production\"} %d\n", application,
					n) +
					fmt.Sprintf("lockstep_delivery_deployments{application=%q,environment=\"staging\",tier=\"staging\"} %d\n", application, n)
			}
		}
		want += "# HELP lockstep_delivery_left_out Pairs of application and environment that were left out because there are too many.\n# TYPE lockstep_delivery_left_out gauge\n" +
			fmt.Sprintf("lockstep_delivery_left_out %d\n", left)
		if err := testutil.CollectAndCompare(&shown, strings.NewReader(want), "lockstep_delivery_deployments",
			"lockstep_delivery_left_out"); err != nil {
			t.Error(err)
		}
	}

	s.repeated(r, 4500) // three pages
	shows(map[string]int{"a-blog": 0, "shop": 4051}, 0)
	all, err := s.view.DeliveryMetrics(t.Context(), org,
		view.DeliveryWindow{ApplicationID: s.application.ID, EnvironmentIDs: []int64{s.production.ID}})
	s.ok(err)
	if m := all[0]; m.Deployments != 4051 || m.Failures != 450 || m.Ended != 4501 || m.Reworked != 450 || m.Recovery.Count != 450 ||
		m.Recovery.Longest > 2*time.Second || m.Unrecovered != 0 {
		t.Errorf("4501 rollouts, every tenth of them failed: %+v", m)
	}

	s.repeated(r, 16_000)
	if _, err := s.view.DeliveryMetrics(t.Context(), org,
		view.DeliveryWindow{ApplicationID: s.application.ID}); !fault.Is(err, fault.Invalid) {
		t.Errorf("20,501 rollouts: %v", err)
	}
	shows(map[string]int{"a-blog": 0}, 2)
}
