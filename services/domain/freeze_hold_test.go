package domain

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// holding is another transaction, which has run a statement, and its process.
func (f *fixture) holding(statement string, args ...any) (tx pgx.Tx, pid uint32) {
	f.t.Helper()
	tx, err := f.pool.Begin(f.t.Context())
	f.ok(err)
	_, err = tx.Exec(f.t.Context(), statement, args...)
	f.ok(err)
	return tx, tx.Conn().PgConn().PID()
}

// aside runs something, and says when it has ended.
func aside(fn func()) <-chan struct{} {
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	return done
}

// atProduction is a shop with a rollout that is in staging.
func atProduction(t *testing.T) (winter, core.Rollout) {
	t.Helper()
	w := frozen(t)
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.want(w.granted(), []string{"staging"})
	return w, r
}

// D49: labels that move from the scope of one freeze to that of another let nothing through in between.
func TestLabelsThatMoveBetweenFreezesLetNothingThrough(t *testing.T) {
	t.Parallel()
	w, r := atProduction(t)
	of := core.Detailed{Kind: core.ChangedApplication, ID: w.application.ID}
	w.ok(w.label(of, critical))
	w.freeze(freeze.NewFreeze{ApplicationLabels: critical})
	w.freeze(freeze.NewFreeze{ApplicationLabels: map[string]string{"tier": "high"}})
	slow, pid := w.holding(`SELECT FROM cd_details FOR UPDATE`) // the change waits for it, with what it has locked
	labelled := aside(func() {
		if err := w.label(of, map[string]string{"tier": "high"}); err != nil {
			t.Error(err)
		}
	})
	w.blocks(pid, 1)
	entered := aside(func() { w.enter(r, "production") })
	w.blocks(pid, 2)
	w.ok(slow.Commit(t.Context()))
	<-labelled
	<-entered
	w.want(w.granted(), []string{"staging"})
	w.want(w.countOf(`SELECT count(*) FROM cd_passage_stops WHERE control_id = 2`), 1)
}

// D49: a passage that waits for the end of one freeze is stopped by another one that has started aside. The end is that of a replica of a
// release before, which locks only the freeze.
func TestTheEndOfAFreezeLetsNothingPastAnother(t *testing.T) {
	t.Parallel()
	w, r := atProduction(t)
	first := w.freeze(freeze.NewFreeze{})
	ends, pid := w.holding(`UPDATE cd_freezes SET ended_at = $1 WHERE id = $2`, w.now.Now(), first.ID)
	entered := aside(func() { w.enter(r, "production") })
	w.blocks(pid, 1)
	w.now.Advance(time.Second)
	started := aside(func() { w.freeze(freeze.NewFreeze{}) })
	second := false
	for waits := 0; !second && waits < 2; {
		select {
		case <-started:
			second = true
		default:
			waits = w.countOf(`SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)) OR wait_event = 'advisory'`, int(pid))
		}
	}
	w.ok(ends.Commit(t.Context()))
	<-entered
	<-started
	if granted := w.granted(); second && len(granted) > 1 {
		t.Errorf("found %v; expected no passage while freeze_2 is in force, which has started before freeze_1 ended", granted)
	}
}

// D49: a freeze holds for a passage whose transaction has waited since before it started.
func TestAFreezeStopsAPassageThatHasWaitedForALock(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"at once": 0, "later": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := atProduction(t)
			busy, pid := w.holding(`SELECT FROM cd_rollouts FOR UPDATE`)
			entered := aside(func() { w.enter(r, "production") })
			w.blocks(pid, 1)
			n := freeze.NewFreeze{}
			if after > 0 {
				n.StartsAt = w.now.Now().Add(after)
			}
			w.now.Advance(2 * time.Second)
			if after > 0 {
				n.StartsAt = w.now.Now().Add(after)
			}
			w.freeze(n)
			w.now.Advance(2 * time.Second)
			w.ok(busy.Commit(t.Context()))
			<-entered
			w.want(w.granted(), []string{"staging"})
			w.want(len(w.waits(r, "freeze")), 1)
		})
	}
}

// D49: a freeze that begins at once is in force from its commit, whatever the clock of another replica says.
func TestAFreezeIsInForceByNoClockOfAReplica(t *testing.T) {
	t.Parallel()
	w, r := atProduction(t)
	ahead := freeze.New(w.store.ForFreeze(), clocktest.New(w.now.Now().Add(2*time.Second)), func() {})
	f, err := ahead.StartFreeze(t.Context(), user(), freeze.NewFreeze{
		Reason: "audit", Incident: "INC-1", EndsAt: w.now.Now().Add(time.Hour),
	})
	w.ok(err)
	w.enter(r, "production")
	w.want(w.granted(), []string{"staging"})
	w.want(len(w.waits(r, "freeze")), 1)
	_, err = w.freezes.EndFreeze(t.Context(), user(), f.ID, "")
	w.ok(err)
	w.review()
	w.want(w.granted(), []string{"staging", "production"})
}

// D49: a freeze, a veto and a pin wait for the passages that are being decided: nothing is granted after their start was answered.
func TestControlsWaitForThePassagesThatAreBeingDecided(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(winter) error{
		"freeze": func(w winter) error {
			_, err := w.freezes.StartFreeze(w.t.Context(), user(), freeze.NewFreeze{Reason: "audit", EndsAt: w.now.Now().Add(time.Hour)})
			return err
		},
		"veto": func(w winter) error {
			_, err := w.freezes.VetoVersion(w.t.Context(), user(), freeze.NewVeto{VersionSetID: w.set.ID, Reason: "CVE"})
			return err
		},
		"pin": func(w winter) error {
			_, err := w.freezes.PinEnvironment(w.t.Context(), user(), w.production.ID, "by hand")
			return err
		},
		"label": func(w winter) error {
			return w.label(core.Detailed{Kind: core.ChangedEnvironment, ID: w.production.ID}, critical)
		},
		"freeze of a release before": func(w winter) error {
			_, err := w.pool.Exec(w.t.Context(), `INSERT INTO cd_freezes (organization_id, tiers, environment_ids, application_ids, rollbacks, reason,
				starts_at, ends_at, bounded_from, principal_type, principal_id, principal_name, created_at, incident)
				VALUES (1, '{}', '{}', '{}', false, 'audit', $1, $2, $1, 'user', 1, 'one', $1, '')`, w.now.Now(), w.now.Now().Add(time.Hour))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := atProduction(t)
			slow, pid := w.holding(`LOCK TABLE cd_rollout_transitions IN SHARE ROW EXCLUSIVE MODE`) // what it reads is read, and the grant waits
			entered := aside(func() { w.enter(r, "production") })
			w.blocks(pid, 1)
			var failed error
			started := aside(func() { failed = start(w) })
			for w.countOf(`SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()`) == 0 {
				select {
				case <-started:
					t.Fatalf("it has started (%v) while a passage is granted that has not seen it", failed)
				default:
				}
			}
			w.ok(slow.Commit(t.Context()))
			<-entered
			<-started
			w.ok(failed)
			w.want(w.granted(), []string{"staging", "production"})
		})
	}
}

// D49: a bypass is logged once it is recorded, and not where it is undone.
func TestABypassIsLoggedOnceItIsRecorded(t *testing.T) {
	t.Parallel()
	w, r := atProduction(t)
	w.freeze(freeze.NewFreeze{})
	w.enter(r, "production")
	_, err := w.pool.Exec(t.Context(), `
		CREATE FUNCTION a_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
		CREATE CONSTRAINT TRIGGER a_no AFTER INSERT ON cd_rollout_transitions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
			WHEN (new.event = 'bypass_freeze') EXECUTE FUNCTION a_no()`)
	w.ok(err)
	if _, err := w.rollouts.BypassFreeze(t.Context(), user(), r.ID, "INC-1"); err == nil || strings.Contains(w.log.String(), "freeze bypassed") {
		t.Errorf("found %v and the log %q; expected an error, and nothing logged", err, w.log)
	}
	_, err = w.pool.Exec(t.Context(), `DROP FUNCTION a_no() CASCADE`)
	w.ok(err)
	_, err = w.rollouts.BypassFreeze(t.Context(), user(), r.ID, "INC-1")
	w.ok(err)
	w.want(strings.Count(w.log.String(), "freeze bypassed"), 1)
	w.want(w.granted(), []string{"staging", "production"})
}

// D49: a passage reads the freezes that stop something now, and none of those to come.
func TestAPassageReadsNoFreezesToCome(t *testing.T) {
	t.Parallel()
	w, _ := atProduction(t)
	w.freeze(freeze.NewFreeze{})
	n := freeze.NewFreeze{Reason: "later", StartsAt: w.now.Now().Add(time.Hour), EndsAt: w.now.Now().Add(2 * time.Hour)}
	_, err := w.freezes.StartFreeze(t.Context(), user(), n)
	w.ok(err)
	for after, want := range map[time.Duration]int{0: 1, 90 * time.Minute: 2, 150 * time.Minute: 1} {
		w.ok(w.store.ForRollout().In(t.Context(), org, func(ctx context.Context, tx rollout.Tx) error {
			c, err := tx.Controls(ctx, w.set.ID, []int64{w.production.ID}, w.now.Now().Add(after))
			w.want(len(c.Freezes), want)
			return err
		}))
	}
}
