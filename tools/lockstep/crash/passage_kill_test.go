package crash

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// D46: the domain service is killed whenever the journal of a rollout has another row, so also between a request, an approval, the row
// that opens the passage, and the delivery of the grant; the workflow service is killed whenever its guard has stored another grant, so
// before the change that the grant permits. Each passage is opened once, nothing is changed twice, and nothing is lost.
func TestServicesKilledBetweenApprovalAndChange(t *testing.T) {
	t.Parallel()
	scenario := oneStage()
	scenario.Stages[0].Approval, scenario.Stages[0].ApprovalReason = approval, "the change is agreed"
	ctx, w := setup(t, scenario)
	set, err := w.Push(ctx, "2.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	kills := map[string]int{}
	r := w.roll(ctx, t, set, func(ctx context.Context, r client.Rollout) error { return w.killAroundPassages(ctx, t, r, kills) })
	w.expectAllGates(t, r)
	if err := expectPrincipals(r); err != nil {
		t.Error(err)
	}
	opened := map[string]int{}
	for _, row := range r.Journal {
		if row.Event == "pass_gate" && row.Subject == r.ID {
			opened[row.GateID]++
		}
	}
	for gate, n := range opened {
		if n != 1 {
			t.Errorf("passage %q was opened %d times, expected once", gate, n)
		}
	}
	if len(opened) < 2 || kills["domain"] < 3 || kills["workflow"] < 1 {
		t.Errorf("opened %v through kills %v; expected the step and the entrance at least, and kills around each", opened, kills)
	}
	t.Logf("%s completed through kills %v; opened %v", r.ID, kills, opened)
}

// killAroundPassages kills the domain service at each row of a rollout's journal and the workflow service at each grant that is stored,
// until ctx ends.
func (w *world) killAroundPassages(ctx context.Context, t *testing.T, r client.Rollout, kills map[string]int) error {
	t.Helper()
	conn, err := pgx.Connect(ctx, pgtest.URL(t))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	schema := func(service string) string { return pgx.Identifier{w.stack.Schema(service)}.Sanitize() }
	watched := map[string]struct {
		query string
		key   any
	}{
		"domain": {
			fmt.Sprintf(`SELECT count(*) FROM %s.cd_rollout_transitions WHERE 'rollout_' || rollout_id = $1`, schema("domain")), r.ID,
		},
		"workflow": {
			fmt.Sprintf(`SELECT count(*) FROM %s.passage WHERE workflow = $1`, schema("workflow")), strings.Replace(r.ID, "_", "-", 1),
		},
	}
	seen := map[string]int64{}
	for {
		for part, row := range watched {
			var n int64
			err := conn.QueryRow(ctx, row.query, row.key).Scan(&n)
			switch {
			case ended(ctx):
				return nil
			case err != nil:
				return err
			case n > seen[part]:
				_, err := w.stack.Kill(part)
				if err != nil && !fault.Is(err, fault.Unavailable) {
					return err
				}
				if err == nil {
					kills[part], seen[part] = kills[part]+1, n
				}
			}
		}
		if clock.Sleep(ctx, clock.System(), time.Millisecond) != nil {
			return nil
		}
	}
}
