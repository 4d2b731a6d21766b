package domain

import (
	"fmt"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

// partitioned are the tables that grow for ever.
func partitioned() []string {
	return []string{"cd_rollout_transitions", "cd_rollout_environment_transitions", "cd_deployment_transitions", "cd_deployments"}
}

// TestJournalsAndDeploymentsCanBePartitionedLater attaches the tables that grow forever to partitioned ones, without moving a row.
// The service works as before: no column, query or reference changes (R52).
func TestJournalsAndDeploymentsCanBePartitionedLater(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	before := s.rollout(s.set)
	s.succeed(before)
	story := s.story(before)

	statements := []string{ // whatever refers to a table that moves is let go, and tied again below
		`ALTER TABLE cd_deployment_snapshots DROP CONSTRAINT cd_deployment_snapshots_deployment`,
		`ALTER TABLE cd_deployment_attempts DROP CONSTRAINT cd_deployment_attempts_deployment`,
		`ALTER TABLE cd_deployment_links DROP CONSTRAINT cd_deployment_links_deployment`,
		`ALTER TABLE cd_deployment_transitions DROP CONSTRAINT cd_deployment_transitions_subject`,
		`ALTER TABLE cd_deployments ALTER id DROP IDENTITY`,
	}
	for _, table := range partitioned() {
		statements = append(statements,
			fmt.Sprintf(`ALTER TABLE %[1]s RENAME TO %[1]s_first`, table),
			fmt.Sprintf(`CREATE TABLE %[1]s (LIKE %[1]s_first INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS) PARTITION BY LIST (organization_id)`, table),
			fmt.Sprintf(`ALTER TABLE %[1]s ADD PRIMARY KEY (organization_id, id)`, table),
			fmt.Sprintf(`ALTER TABLE %[1]s ATTACH PARTITION %[1]s_first DEFAULT`, table),
			fmt.Sprintf(`CREATE TABLE %[1]s_third PARTITION OF %[1]s FOR VALUES IN (3)`, table),
		)
	}
	statements = append(statements,
		`ALTER TABLE cd_deployments ALTER id ADD GENERATED ALWAYS AS IDENTITY (START WITH 1000)`,
		`ALTER TABLE cd_deployment_snapshots ADD CONSTRAINT cd_deployment_snapshots_deployment FOREIGN KEY (organization_id, deployment_id) REFERENCES cd_deployments (organization_id, id)`,
		`ALTER TABLE cd_deployment_attempts ADD CONSTRAINT cd_deployment_attempts_deployment FOREIGN KEY (organization_id, deployment_id) REFERENCES cd_deployments (organization_id, id)`,
		`ALTER TABLE cd_deployment_links ADD CONSTRAINT cd_deployment_links_deployment FOREIGN KEY (organization_id, deployment_id) REFERENCES cd_deployments (organization_id, id)`,
		`ALTER TABLE cd_deployment_transitions ADD CONSTRAINT cd_deployment_transitions_subject FOREIGN KEY (organization_id, deployment_id) REFERENCES cd_deployments (organization_id, id)`,
	)
	for _, sql := range statements {
		if _, err := s.pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	s.ok(store.Protect(t.Context(), s.db, role))

	s.want(s.story(before), story)
	after := s.rollout(s.release(2))
	s.succeed(after)
	s.verifyJournal(after)
	if found := s.checked(); len(found) > 0 {
		t.Errorf("the journal differs: %v", found)
	}
	var walled int
	s.ok(s.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'p' AND relrowsecurity AND relforcerowsecurity`).Scan(&walled))
	s.want(walled, len(partitioned()))
}
