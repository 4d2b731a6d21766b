package domain

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
)

// D51: the policies of the installation are read when a service starts, and what they have stopped is evaluated again then, not minutes
// later.
func TestChangedPoliciesOfTheInstallationOpenWhatTheyHaveStoppedAtTheStart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "base.cedar")
	if err := os.WriteFile(file, []byte(noProduction("")), 0o600); err != nil {
		t.Fatal(err)
	}
	w := frozenWith(t, PolicyConfig{Name: "base", File: file})
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production", "production")
	w.review()
	w.want(w.granted(), []string{"staging"})

	c := Config{DriverDir: filepath.Join("testdata", "drivers")} // without the set
	log := slog.New(slog.DiscardHandler)
	drivers, err := givenDrivers(t.Context(), c, log)
	w.ok(err)
	restarted := *w.fixture
	restarted.service, err = assemble(pgtest.As(t, w.db, role), noBus{}, drivers, nil, w.now, c, log)
	w.ok(err)
	w.want(restarted.review(), 0) // nothing is due by time
	w.ok(restarted.policies.ReviewInstallation(t.Context()))
	w.want(restarted.review(), 1)
	w.want(w.granted(), []string{"staging", "production"})
}

// D51: what the engine decides by is sent again from time to time, with the labels of groups: it may have lost it.
func TestPolicySetsAreAnnouncedAgain(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	const calls = `@id("all") permit (principal, action == Action::"function.call", resource);`
	w.put(policy.NewPolicySet{Name: "rollouts", Text: allowed})
	w.put(policy.NewPolicySet{Name: "critical", Labels: map[string]string{"tier": "critical"}, Text: calls})
	w.put(policy.NewPolicySet{Name: "former", Text: calls})
	w.put(policy.NewPolicySet{Name: "former", Text: allowed})
	_, err := w.pool.Exec(t.Context(), `DELETE FROM outbox`)
	w.ok(err)
	w.ok(w.policies.AnnounceAgain(t.Context()))
	rows, err := w.pool.Query(t.Context(), `SELECT (event->'data'->>'name') || ' ' || (event->'data'->>'version') || ' ' ||
		(event->'data'->>'text' <> '') || ' ' || COALESCE(event->'data'->>'application_labels', '') FROM outbox WHERE event->>'type' = $1 ORDER BY id`,
		event.TypePolicySetChanged)
	w.ok(err)
	var sent []string
	for rows.Next() {
		var line string
		w.ok(rows.Scan(&line))
		sent = append(sent, line)
	}
	w.ok(rows.Err())
	w.want(sent, []string{`critical 1 true {"tier":"critical"}`, "former 2 false "})
}
