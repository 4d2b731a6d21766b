package domain

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
)

// instants are times in texts.
var instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]+Z`)

// wording is what the message in Slack says that was sent last, without times of day, and finds texts that are not short.
func (p postal) wording() []string {
	p.t.Helper()
	type text struct{ Text string }
	var in struct {
		Request struct {
			JSON struct {
				Blocks []struct {
					Text     json.RawMessage
					Elements []struct{ Text json.RawMessage }
				}
			}
		}
	}
	p.ok(json.Unmarshal([]byte(p.last()), &in))
	var all []string
	add := func(raw json.RawMessage) {
		var one text
		if json.Unmarshal(raw, &one) != nil {
			return
		}
		for line := range strings.SplitSeq(one.Text, "\n") {
			if _, rest, found := strings.Cut(line, " UTC "); found && strings.IndexByte(line, ':') == 2 {
				line = rest
			}
			line = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(line)
			all = append(all, instants.ReplaceAllString(line, "NOW"))
		}
	}
	for _, b := range in.Request.JSON.Blocks {
		if len(b.Text) > 0 {
			add(b.Text)
		}
		for _, e := range b.Elements {
			add(e.Text)
		}
	}
	if len(all) == 0 {
		p.t.Fatalf("found no text in %s", p.last())
	}
	for i, line := range all {
		if n, most := utf8.RuneCountInString(line), map[bool]int{true: 70, false: 320}[i == 0]; n > most {
			p.t.Errorf("found %d characters in %q; want at most %d", n, line, most)
		}
	}
	return all
}

// R4-29: what messages say by default of failures as they happen: what failed and where, why in the words of what reported it, and what to
// do. What an object of Kubernetes is refused with, a script prints or a person writes comes as it was reported, on one line and bounded.
func TestMessagesOfFailuresAsTheyHappen(t *testing.T) {
	t.Parallel()
	const refused = "api: the sync failed: Deployment.apps \"api\" is invalid: spec.template.spec.containers[0].image: Required value\n" +
		"one or more objects failed to apply"
	for name, c := range map[string]struct {
		happens func(p postal)
		want    []string
	}{
		"a deployment that fails": {func(p postal) {
			r := p.rollout(p.set)
			stop := p.stops(r)[0]
			p.report(event.RolloutStarted{RolloutID: r.ID}, event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: stop.EnvironmentID},
				event.RolloutFailed{RolloutID: r.ID, Reason: refused})
		}, []string{
			"shop: rollout to set-1, failed", "user began the rollout: test", "It brings api 1.1, web 1.1",
			`the rollout failed: api: the sync failed: Deployment.apps "api" is invalid: spec.template.spec.containers[0].image: Required value ` +
				"one or more objects failed to apply",
			"staging: in progress; production: pending",
			"What to do: find out why it failed, then begin another rollout or roll it back.",
		}},
		"an output of a script": {func(p postal) {
			r := p.rollout(p.set)
			p.report(event.RolloutStarted{RolloutID: r.ID}, event.RolloutFailed{
				RolloutID: r.ID,
				Reason:    strings.Repeat("\x1b[31mE\x1b[0m\a <b>&\n\t", 2) + "\u202etxt",
			})
		}, []string{
			"shop: rollout to set-1, failed", "user began the rollout: test", "It brings api 1.1, web 1.1", "the rollout failed: E <b>& E <b>& txt",
			"staging: pending; production: pending", "What to do: find out why it failed, then begin another rollout or roll it back.",
		}},
		"a reason without an end": {func(p postal) {
			r := p.rollout(p.set)
			p.report(event.RolloutStarted{RolloutID: r.ID}, event.RolloutFailed{
				RolloutID: r.ID,
				Reason:    strings.Repeat("no space left on device ", 100),
			})
		}, []string{
			"shop: rollout to set-1, failed", "user began the rollout: test", "It brings api 1.1, web 1.1",
			("the rollout failed: " + strings.Repeat("no space left on device ", 12))[:289] + "…", // beside the time of day
			"staging: pending; production: pending", "What to do: find out why it failed, then begin another rollout or roll it back.",
		}},
		"an agent that cannot be reached": {func(p postal) {
			p.report(event.EnvironmentContactChanged{
				EnvironmentID: p.staging.ID, Reason: "no heartbeat of agent-42 for 90 s", ObservedAt: p.now.Now().UTC().Format(time.RFC3339Nano),
			})
		}, []string{
			"staging: its agent is offline", "staging cannot be reached: no heartbeat of agent-42 for 90 s",
			"What to do: check the relay there and its connection; nothing is deployed there before it is back.",
		}},
		"a difference in a cluster": {func(p postal) {
			all, err := p.view.ApplicationEnvironmentsByApplication(t.Context(), org, []int64{p.application.ID})
			p.ok(err)
			for _, drift := range []string{"", "Deployment api is out of sync: spec.replicas is 5 instead of 3"} {
				p.now.Advance(time.Second)
				p.report(event.ApplicationEnvironmentReconciled{
					ApplicationEnvironmentID: all[p.application.ID][0].ID, Revision: "abc", ExpectedRevision: "abc", Drift: drift,
					ObservedAt: p.now.Now().UTC().Format(time.RFC3339Nano),
				})
			}
		}, []string{
			"shop: staging differs from what was deployed",
			"shop differs in staging: Deployment api is out of sync: spec.replicas is 5 instead of 3",
			"What to do: take the difference back, or roll out what is wanted.",
		}},
		"a freeze in the way": {func(p postal) {
			_, err := p.freezes.StartFreeze(t.Context(), user(), freeze.NewFreeze{Reason: "the fair <today> & tomorrow", EndsAt: p.now.Now().Add(time.Hour)})
			p.ok(err)
			r := p.rollout(p.set)
			p.report(event.RolloutStarted{RolloutID: r.ID})
			p.enter(r, "staging")
			p.review()
		}, []string{
			"shop: rollout to set-1, stopped", "user began the rollout: test", "It brings api 1.1, web 1.1",
			"it may not pass staging now: freeze_1 by user 1 stops it until NOW: the fair <today> & tomorrow", "staging: pending; production: pending",
			"What to do: nothing if that is meant: it continues by itself once what stops it ends. Otherwise end that, or cancel the rollout.",
		}},
		"a rollback that begins by itself": {func(p postal) {
			r := p.upgrade()
			p.report(event.RolloutFailed{RolloutID: r.ID, Reason: "Rollout api: ProgressDeadlineExceeded: ReplicaSet \"api-6d5f\" has timed out progressing."})
			p.close()
			if _, worked := p.due(); !worked {
				p.t.Fatal("found no automatic rollback")
			}
		}, []string{
			"shop: rollback to set-1, began", "it began by itself: automatic rollback of rollout_2: it failed", "It brings no new version", "staging: pending",
			"What to do: nothing while it proceeds; find out why it was needed before the next rollout.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := present(t).posting()
			p.t = t
			p.channel("team", core.NotifySlack, bot, 60)
			c.happens(p)
			p.work()
			p.want(p.wording(), c.want)
		})
	}
}
