package domain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/credential"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// alertsOpen are the keys of alerts that were triggered last, by what was sent after a number of messages.
func (p postal) alertsOpen(after int) map[string]bool {
	p.t.Helper()
	open := map[string]bool{}
	for _, s := range p.sent()[after:] {
		_, rest, found := strings.Cut(s, `"dedup_key":"`)
		if !found {
			continue
		}
		key, _, _ := strings.Cut(rest, `"`)
		delete(open, key)
		if strings.Contains(s, `"event_action":"trigger"`) {
			open[key] = true
		}
	}
	return open
}

// R4-29, R3-06: a failure that is pending in between, as with CI that runs again, is the same one: one alert, until the check passes.
func TestAFailureThatPendingInterruptsIsOneAlert(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	p := c.posting()
	p.channel("ops", core.NotifyPagerDuty, alerts, 60)
	p.route("checks", "ops", `{"events":["check_failed"]}`)
	for i, phase := range []core.CheckPhase{
		core.CheckPending, core.CheckFailure, core.CheckPending, core.CheckFailure, core.CheckPending, core.CheckSuccess,
	} {
		p.now.Advance(time.Second)
		c.reports(1, "dev", c.set, "healthy", phase)
		p.work()
		if open := p.alertsOpen(0); (len(open) == 1) != (i > 0 && i < 5) {
			t.Errorf("report %d: found open alerts %v", i, open)
		}
	}
	p.want(len(p.sent()), 2)
}

// R4-29: a check that fails for one rollout does not silence the failure of the next one, and passing ends both.
func TestAFailureIsOneOfEachRollout(t *testing.T) {
	t.Parallel()
	c := promoter(t, `,{"kind":"health"}`)
	p := c.posting()
	p.channel("ops", core.NotifyPagerDuty, alerts, 60)
	p.route("checks", "ops", `{"events":["check_failed"]}`)
	count := func(moment string) int {
		return p.countOf(`SELECT count(*) FROM cd_notifications WHERE moment = '` + moment + `'`)
	}
	for n := 1; n <= 2; n++ {
		r := c.rollout(c.set)
		c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
		c.enter(r, "dev", "test")
		c.complete(r, "dev")
		p.now.Advance(time.Minute)
		for range 2 {
			c.observed("dev", "degraded", "CrashLoopBackOff", 0)
			p.now.Advance(time.Second)
		}
		p.want(count("check_failed"), n)
		if n < 2 {
			_, err := c.cancel(r, rollout.CancelLeaves)
			p.ok(err)
		}
	}
	p.want(count("check_passed"), 0)
	p.now.Advance(time.Minute)
	c.observed("dev", "healthy", "", 0)
	p.want(count("check_passed"), 2)
}

// D62: an alert that another rollout has resolved stays so, whatever happens to its own afterwards.
func TestAResolvedAlertStaysResolved(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("ops", core.NotifyPagerDuty, alerts, 60)
	p.route("alerts", "ops", `{"severities":["high","normal"]}`)
	r := p.rollout(p.set)
	p.report(event.RolloutStarted{RolloutID: r.ID})
	p.report(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: p.stops(r)[0].EnvironmentID})
	p.report(event.RolloutFailed{RolloutID: r.ID, Reason: "sync failed"})
	p.later(time.Minute)
	p.want(len(p.alertsOpen(0)), 1)
	p.succeed(p.rollout(p.set))
	p.later(time.Minute)
	p.want(len(p.alertsOpen(0)), 0)
	sent := len(p.sent())
	_, err := p.pool.Exec(t.Context(), `INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id,
		environment_id, rollout_id, subject_id, subject)
		SELECT organization_id, 'check_passed', 'end:1', $1, $1, application_id, $3, id, version_set_id, 'e2e' FROM cd_rollouts WHERE id = $2`,
		p.now.Now(), r.ID, p.staging.ID)
	p.ok(err)
	p.later(time.Minute)
	p.want(len(p.sent()), sent+1)
	p.has(`"event_action":"resolve"`, "e2e")
}

// R4-29: a channel that is sent one message within a minute has the message of a rollout updated too, once nothing else waits.
func TestAChannelOfOneMessageAMinuteIsUpdated(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifySlack, bot, 1)
	r := p.rollout(p.set)
	p.work()
	p.want(len(p.sent()), 1)
	p.report(event.RolloutStarted{RolloutID: r.ID})
	p.later(5 * time.Second)
	p.later(5 * time.Second)
	p.ok(p.fails(p.environment("lab", core.TierQA).ID))
	p.later(time.Minute)
	p.want(len(p.sent()), 2)
	p.has("its agent is offline")
	p.want(strings.Contains(p.last(), "it started"), false)
	p.later(time.Minute)
	p.later(time.Minute)
	p.want(len(p.sent()), 3)
	p.has("chat.update", "it started")
}

// blind cannot look up credentials.
type blind struct{ notify.Store }

func (blind) WarnOfCredentials(context.Context, time.Time) error { return errors.New("no credentials") }

// D62: credentials that cannot be looked up keep nothing else from being sent.
func TestAWarningThatFailsStopsNothing(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	reported := 0
	p.notify = notify.New(notify.Deps{
		Store: blind{p.store.ForNotify()}, Engine: p.post, Clock: p.now, Unwarned: func(context.Context, error) { reported++ },
	})
	p.channel("team", core.NotifyWebhook, hook, 60)
	p.ok(p.fails(p.environment("lab", core.TierQA).ID))
	p.work()
	p.want(len(p.sent()), 1)
	p.later(11 * time.Minute)
	p.want([]int64{int64(reported), p.notify.Counts()["credentials_failed"]}, []int64{2, 2})
}

// D62: all warnings of a value of a credential are one alert, which ends when the credential has another value.
func TestTheAlertOfACredentialEndsWithItsReplacement(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("ops", core.NotifyPagerDuty, alerts, 60)
	p.route("credentials", "ops", `{"events":["credential_expires"]}`)
	file := filepath.Join(t.TempDir(), "keyset.json")
	keys, err := keyset.Create()
	p.ok(err)
	p.ok(os.WriteFile(file, []byte(keys), 0o600))
	credentials := credential.New(credential.Deps{Store: p.store.ForCredential(), Sealer: keyset.New(nil, "file:"+file), Clock: p.now})
	value := func(days int) credential.NewValue {
		end := p.now.Now().Add(time.Duration(days) * 24 * time.Hour)
		return credential.NewValue{Value: "secret", ExpiresAt: &end}
	}
	c, err := credentials.Create(t.Context(), user(), credential.NewCredential{
		Terms: sealing.Terms{Name: "bot", Kind: sealing.HTTP, URLPrefixes: []string{"https://api.example.com/"}}, NewValue: value(6),
	})
	p.ok(err)
	p.work()
	p.want(len(p.alertsOpen(0)), 1)
	p.later(5*24*time.Hour + time.Minute)
	p.want(len(p.sent()), 2)
	p.want(len(p.alertsOpen(0)), 1)
	p.has(fmt.Sprintf("-credential-%d-1\"", c.ID))
	_, err = credentials.Rotate(t.Context(), user(), "bot", value(90))
	p.ok(err)
	p.work()
	p.want(len(p.alertsOpen(0)), 0)
	p.has("Credential bot: replaced or revoked")
	_, err = credentials.Revoke(t.Context(), user(), "bot", "leaked")
	p.ok(err)
	p.work()
	p.want(len(p.sent()), 3)
}

// R4-29: what people are asked does not wait for what only updates messages, however much of that there is.
func TestWhatOnlyUpdatesIsRoutedLast(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifySlack, bot, 60)
	r := p.rollout(p.set)
	p.work()
	for i := range 3 {
		_, err := p.pool.Exec(t.Context(), `INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, rollout_id)
			VALUES ($1, 'rollout_advanced', 'advance:' || $2::bigint, $3, $3, $4)`, org, i, p.now.Now().Add(-time.Minute), r.ID)
		p.ok(err)
	}
	p.ok(p.fails(p.environment("lab", core.TierQA).ID))
	w, worked, err := p.notify.WorkDue(t.Context())
	p.ok(err)
	p.want([]any{worked, w.Moment}, []any{true, core.MomentAgentOffline})
}

// D62: why an expression fails is kept once, not with each moment.
func TestTheProblemOfARouteIsKeptOnce(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("team", core.NotifyWebhook, hook, 60)
	p.route("third", "team", `{"expression":"environments[2] == 'production'"}`)
	var problems []string
	for _, name := range []string{"lab", "den"} {
		p.ok(p.fails(p.environment(name, core.TierQA).ID))
		p.later(time.Second)
		all, err := p.notify.Routes(t.Context(), org)
		p.ok(err)
		problems = append(problems, all[0].Problem)
	}
	p.want(problems[0] != "", true)
	p.want(problems[1], problems[0])
}
