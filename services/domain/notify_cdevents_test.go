package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	cdeventsapi "github.com/cdevents/sdk-go/pkg/api"
	cdeventsof "github.com/cdevents/sdk-go/pkg/api/v05"

	"github.com/lockstep-cd/lockstep/services/domain/internal/cdevents"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// interchange is a shop whose webhook receives events of CDEvents.
func interchange(t *testing.T) postal {
	t.Helper()
	p := notifying(t)
	p.notify = notify.New(notify.Deps{
		Store: p.store.ForNotify(), Engine: p.post, Clock: p.now, URL: "https://cd.example.com", Events: cdevents.Writer{},
	})
	p.channel("tools", core.NotifyWebhook, `{"url":"https://hooks.example.com/cd","sign":["new","old"],"payload":"cdevents"}`, 60)
	return p
}

// events are those of the runs since one of a number: type, subject and environment, and the id of each. Each is valid by its schema, and
// signed with both secrets under its id.
func (p postal) events(since int) (all, ids []string) {
	p.t.Helper()
	for _, inputs := range p.sent()[since:] {
		type request struct {
			Sign   []string `json:"sign"`
			SignID string   `json:"sign_id"`
			JSON   struct {
				ID, Type, Subject string
				Data              json.RawMessage
			} `json:"json"`
		}
		var in struct {
			Request request
			Further []request
		}
		p.ok(json.Unmarshal([]byte(inputs), &in))
		for _, r := range append([]request{in.Request}, in.Further...) {
			read, err := cdeventsof.NewFromJsonBytes(r.JSON.Data)
			p.ok(err)
			p.ok(cdeventsapi.Validate(read))
			p.want([]any{r.SignID, r.Sign}, []any{r.JSON.ID, []string{"new", "old"}})
			var data struct {
				Subject struct {
					Content struct {
						Environment any
						Event       string
					}
				}
			}
			p.ok(json.Unmarshal(r.JSON.Data, &data))
			kind := strings.TrimPrefix(strings.TrimPrefix(r.JSON.Type, "dev.cdevents."), "dev.cdeventsx.")
			c := data.Subject.Content
			place, _ := c.Environment.(map[string]any)
			switch {
			case c.Event != "":
				all = append(all, kind+" "+c.Event)
			case place == nil:
				all = append(all, kind+" "+r.JSON.Subject)
			default:
				all = append(all, fmt.Sprintf("%s %s %s", kind, r.JSON.Subject, place["id"]))
			}
			ids = append(ids, r.JSON.ID)
		}
	}
	return all, ids
}

// D62: a webhook may receive events of CDEvents: what a rollout has deployed, upgraded or taken back in each environment, and for
// everything else a notification. What is sent again has the same ids.
func TestAWebhookReceivesCDEvents(t *testing.T) {
	t.Parallel()
	p := interchange(t)
	p.route("all", "tools", `{"events":["rollout_began","rollout_completed","rollback_began","rolled_back"]}`)
	r := p.rollout(p.set)
	p.work()
	all, _ := p.events(0)
	p.want(all, []string{"lockstep-notification.sent.0.1.0 rollout_began"})

	fails := true
	p.post.answer = func(string) [4]string {
		if fails {
			return [4]string{"again", "", "the channel answered with status 503", "0"}
		}
		return [4]string{"sent", "", "", "0"}
	}
	before := len(p.post.order)
	p.now.Advance(time.Minute)
	p.succeed(r)
	p.work()
	first, ids := p.events(before)
	fails = false
	p.now.Advance(time.Hour)
	p.work()
	again, repeated := p.events(before + 1)
	p.want([]any{again, repeated}, []any{first, ids})
	p.want(len(first) > 0, true)
	for _, one := range first {
		if !strings.HasPrefix(one, "service.deployed.0.3.0 shop/") {
			t.Errorf("found %q; want that a service was deployed", one)
		}
	}

	before = len(p.post.order)
	second := p.rollout(p.release(77))
	p.succeed(second)
	p.now.Advance(time.Minute)
	p.work()
	all, _ = p.events(before)
	if !slices.ContainsFunc(all, func(one string) bool { return strings.HasPrefix(one, "service.upgraded.0.3.0 shop/") }) {
		t.Errorf("found %q; want that a service was upgraded", all)
	}
	before = len(p.post.order)
	back, err := p.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: second.ID, Reason: "errors"})
	p.ok(err)
	p.succeed(back)
	p.now.Advance(time.Minute)
	p.work()
	all, _ = p.events(before)
	if !slices.ContainsFunc(all, func(one string) bool { return strings.HasPrefix(one, "service.rolledback.0.3.0 shop/") }) ||
		slices.ContainsFunc(all, func(one string) bool { return strings.HasPrefix(one, "service.upgraded") }) {
		t.Errorf("found %q; want that a service was rolled back, and none upgraded", all)
	}
}

// D62: a service that a version set does not have any more is removed, and what one message cannot say is counted in its last event.
func TestServicesAreRemovedAndEventsAreBounded(t *testing.T) {
	t.Parallel()
	p := interchange(t)
	p.route("all", "tools", `{"events":["rollout_completed"]}`)
	first := p.rollout(p.set)
	p.succeed(first)
	second := p.rollout(p.release(77))
	p.succeed(second)
	p.now.Advance(time.Minute)
	for p.work() != nil {
		p.now.Advance(time.Minute)
	}
	_, err := p.pool.Exec(t.Context(), `ALTER TABLE cd_version_set_entries DISABLE TRIGGER ALL`)
	p.ok(err)
	_, err = p.pool.Exec(t.Context(), `DELETE FROM cd_version_set_entries WHERE version_set_id = $1`, second.VersionSetID)
	p.ok(err)
	_, err = p.pool.Exec(t.Context(), `UPDATE cd_rollout_environments SET previous_version_set_id = $1 WHERE rollout_id = $2`, first.VersionSetID, second.ID)
	p.ok(err)
	before := len(p.post.order)
	failed := p.messages("")[0]
	_, err = p.pool.Exec(t.Context(), `UPDATE cd_notification_messages SET state = 'failed', error = 'no', sent_revision = 0, sent_count = 0 WHERE id = $1`, failed.ID)
	p.ok(err)
	_, err = p.notify.Retry(t.Context(), user(), failed.ID)
	p.ok(err)
	p.now.Advance(time.Minute)
	p.work()
	all, _ := p.events(before)
	if !slices.ContainsFunc(all, func(one string) bool { return strings.HasPrefix(one, "service.removed.0.3.0 shop/") }) {
		t.Errorf("found %q; want that a service was removed", all)
	}
}

// D62: what a channel cannot be is refused with where it is.
func TestPayloadsAreChecked(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	for want, n := range map[string]notify.NewChannel{
		`/config/payload: found "xml"; expected cloudevents or cdevents`: {Kind: core.NotifyWebhook, Config: json.RawMessage(`{"url":"https://h.example.com","payload":"xml"}`)},
		`/config/payload: found a setting that does not exist here`:      {Kind: core.NotifyTeams, Config: json.RawMessage(`{"url":"https://h.example.com","account":"a","payload":"cdevents"}`)},
		`/config/templates: found with the payload cdevents, whose events have no texts`: {Kind: core.NotifyWebhook, Config: json.RawMessage(
			`{"url":"https://h.example.com","payload":"cdevents","templates":{"breach":{"title":"{[ application ]}"}}}`)},
	} {
		n.Name, n.Enabled = "tools", true
		if _, err := p.notify.PutChannel(t.Context(), user(), n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v; want %q", err, want)
		}
	}
	p.channel("tools", core.NotifyWebhook, `{"url":"https://hooks.example.com/cd","payload":"cloudevents"}`, 0)
	p.succeed(p.rollout(p.set))
	p.work()
	p.want(strings.Contains(p.sent()[0], `"type":"com.lockstep.notification.v1"`) && !strings.Contains(p.sent()[0], "further"), true)
}
