package domain

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// keysetFile is a keyset of the test's.
func keysetFile(t *testing.T) *keyset.Keyset {
	t.Helper()
	text, err := keyset.Create()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keyset.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return keyset.New(nil, "file:"+file)
}

// linking is a shop whose messages have signed links, with a question that is open.
func linking(t *testing.T) (postal, core.Rollout) {
	t.Helper()
	return linkingWith(t, keysetFile(t))
}

func linkingWith(t *testing.T, sealer notify.Sealer) (postal, core.Rollout) {
	t.Helper()
	p := notifying(t)
	p.notify = notify.New(notify.Deps{
		Store: p.store.ForNotify(), Engine: p.post, Clock: p.now, URL: "https://cd.example.com/", Sealer: sealer,
	})
	p.group("release", 2)
	p.people(7, 8, 9)
	p.asking("", `"group":"release","expires_after":3600`, "")
	p.channel("team", core.NotifySlack, bot, 0)
	p.route("questions", "team", `{"events":["approval_needed","call_requested"]}`)
	p.post.answer = func(string) [4]string { return [4]string{"sent", "1.1", "", "0"} }
	r := p.rollout(p.set)
	p.report(event.RolloutStarted{RolloutID: r.ID}, event.ApprovalRequested{RolloutID: r.ID, GateID: "production"})
	p.work()
	return p, r
}

var signedLink = regexp.MustCompile(`https://cd\.example\.com/answer#([A-Za-z0-9_-]+)\|`)

// token is that of the link of the message that was sent last.
func (p postal) token() string {
	p.t.Helper()
	all := p.sent()
	found := signedLink.FindStringSubmatch(all[len(all)-1])
	if found == nil {
		p.t.Fatalf("found %s; want a signed link", all[len(all)-1])
	}
	return found[1]
}

func (p postal) open(a core.Actor, token string) notify.OpenedLink {
	p.t.Helper()
	opened, err := p.notify.OpenLink(p.t.Context(), a, token)
	p.ok(err)
	return opened
}

// D63: the link of a message opens its question once, for the member who signs in first, and decides nothing; the answer of that member is
// known to have come from the message. A second opening says so, and takes nothing away.
func TestALinkOpensItsQuestionOnce(t *testing.T) {
	t.Parallel()
	p, r := linking(t)
	token := p.token()
	opened := p.open(person(7, "release"), token)
	p.want(opened.State, notify.LinkOpened)
	p.want([]any{opened.Opening.RolloutID, opened.Opening.GateID, opened.Opening.MemberID}, []any{r.ID, "production", int64(7)})
	p.want(len(p.gates(r)), 1)                                                       // nothing was decided
	for _, again := range []core.Actor{person(7, "release"), person(8, "release")} { // repeated, and forwarded
		used := p.open(again, token)
		p.want([]any{used.State, used.Opening.MemberID, used.Opening.AnsweredAt == nil}, []any{notify.LinkUsed, int64(7), true})
	}
	p.refused(p.approve(person(9), r, "production"), `for the group "release" to answer`) // a link gives no right
	p.ok(p.approve(person(7, "release"), r, "production"))
	openings, err := p.notify.Openings(t.Context(), org, []int64{opened.Opening.MessageID})
	p.ok(err)
	of := openings[opened.Opening.MessageID]
	p.want(len(of), 1)
	p.want(of[0].AnsweredAt != nil && of[0].AnsweredAt.Equal(p.now.Now()), true)
	p.want(p.notify.Counts()["opened"], int64(1))
}

// D63: an answer by a member who had not opened a link is not said to have come from it.
func TestAnAnswerWithoutTheLinkDidNotComeFromIt(t *testing.T) {
	t.Parallel()
	p, r := linking(t)
	opened := p.open(person(7, "release"), p.token())
	p.ok(p.approve(person(8, "release"), r, "production"))
	openings, err := p.notify.Openings(t.Context(), org, []int64{opened.Opening.MessageID})
	p.ok(err)
	p.want(openings[opened.Opening.MessageID][0].AnsweredAt == nil, true)
}

// D63: attacks on links. Whatever is refused leaves the link as it is.
func TestLinksWithstandAttacks(t *testing.T) {
	t.Parallel()
	p, r := linking(t)
	token := p.token()
	refused := func(name string, a core.Actor, token, want string) {
		t.Helper()
		opened, err := p.notify.OpenLink(t.Context(), a, token)
		if !fault.Is(err, fault.Refused) && !fault.Is(err, fault.Denied) || !strings.Contains(fault.Public(err), want) || opened.State != "" {
			t.Errorf("%s: found %v, %v; want %q", name, opened, err, want)
		}
	}
	for i := range token {
		changed := []byte(token)
		changed[i] ^= 1
		if opened, err := p.notify.OpenLink(t.Context(), person(7), string(changed)); err == nil {
			t.Fatalf("character %d was changed, and it opens: %+v", i, opened)
		}
	}
	refused("forged", person(7), "AAAA", "in no message of this installation")
	refused("empty", person(7), "", "in no message of this installation")
	refused("longer", person(7), token+"AAAA", "in no message of this installation")
	refused("bulky", person(7), strings.Repeat("A", 1<<20), "in no message of this installation")
	other, err := keysetFile(t).SealFor(t.Context(), sealing.UseLink, `{"organization":1,"message":1,"run":1,"request":1,"expires":99999999999}`)
	p.ok(err)
	if _, err := p.notify.OpenLink(t.Context(), person(7), base64.RawURLEncoding.EncodeToString(other)); err == nil {
		t.Error("what another keyset sealed opens")
	}
	stranger := person(7)
	stranger.Organization = 2
	refused("another organization", stranger, token, "another organization")
	machine := person(7)
	machine.Type = core.PrincipalAgent
	refused("a machine", machine, token, "is for people")
	nobody := core.Actor{Organization: org, Type: core.PrincipalUser, ID: 7}
	refused("without rights", nobody, token, "needs the permission")
	p.want(p.countOf(`SELECT count(*) FROM cd_notification_links`), 0)

	p.ok(p.approve(person(8, "release"), r, "production"))
	p.want(p.open(person(7), token).State, notify.LinkAnswered)
	p.want(p.countOf(`SELECT count(*) FROM cd_notification_links`), 0)
}

// D63: a person who left opens nothing: the session has ended with the membership.
func TestAPersonWhoLeftOpensNoLink(t *testing.T) {
	t.Parallel()
	p, _ := linking(t)
	_, secret, err := p.access.CreateToken(t.Context(), person(7), access.NewToken{Name: "laptop"})
	p.ok(err)
	a, err := p.access.Authenticate(t.Context(), secret, false)
	p.ok(err)
	p.want(p.open(a, p.token()).State, notify.LinkOpened)
	_, err = p.access.RemoveMember(t.Context(), user(), 7)
	p.ok(err)
	if a, err := p.access.Authenticate(t.Context(), secret, false); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("found %+v, %v; want that nobody is signed in", a, err)
	}
}

// D63: a link is good until its question closes by itself, and never for more than seven days.
func TestALinkExpires(t *testing.T) {
	t.Parallel()
	p, _ := linking(t)
	token := p.token()
	p.now.Advance(time.Hour)
	p.want(p.open(person(7), token).State, notify.LinkExpired)
	p.want(p.countOf(`SELECT count(*) FROM cd_notification_links`), 0)
}

// D63: a gate that asks again asks another question: the link of the first one does not open it, and is not used up.
func TestALinkIsBoundToItsQuestion(t *testing.T) {
	t.Parallel()
	sealer := keysetFile(t)
	p, r := linkingWith(t, sealer)
	for name, q := range map[string]core.Question{
		"asked before": {RolloutID: r.ID, GateID: "production", RequestID: p.gates(r)["production"].RequestID - 1},
		"another gate": {RolloutID: r.ID, GateID: "staging", RequestID: p.gates(r)["production"].RequestID},
		"no call":      {RequestID: 1},
	} {
		sealed, err := sealer.SealFor(t.Context(), sealing.UseLink, fmt.Sprintf(
			`{"organization":1,"message":1,"run":2,"rollout":%d,"gate":%q,"request":%d,"expires":99999999999}`, q.RolloutID, q.GateID, q.RequestID))
		p.ok(err)
		if opened := p.open(person(7), base64.RawURLEncoding.EncodeToString(sealed)); opened.State != notify.LinkAnswered {
			t.Errorf("%s: found %+v; want that it is not open", name, opened)
		}
	}
	p.want(p.open(person(7), p.token()).State, notify.LinkOpened)
}

// D63: without a keyset, or while it cannot be read, messages are sent with a link that is not signed: nothing waits for it.
func TestWithoutAKeysetLinksAreNotSigned(t *testing.T) {
	t.Parallel()
	for name, sealer := range map[string]notify.Sealer{"none": keyset.New(nil, ""), "broken": keyset.New(nil, "file:/nowhere/keyset.json")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := notifying(t)
			p.notify = notify.New(notify.Deps{
				Store: p.store.ForNotify(), Engine: p.post, Clock: p.now, URL: "https://cd.example.com", Sealer: sealer,
			})
			p.asking("", `"quorum":1`, "")
			p.channel("team", core.NotifySlack, bot, 0)
			r := p.rollout(p.set)
			p.report(event.RolloutStarted{RolloutID: r.ID}, event.ApprovalRequested{RolloutID: r.ID, GateID: "production"})
			p.work()
			last := p.sent()[len(p.sent())-1]
			p.want([]any{strings.Contains(last, "/answer#"), strings.Contains(last, "/rollouts/rollout_")}, []any{false, true})
			if _, err := p.notify.OpenLink(t.Context(), person(7), "AAAA"); err == nil {
				t.Error("a link opens without a keyset")
			}
		})
	}
}

// D62, D63: a call that waits for people is notified with a link, the answer updates the message, and both are one message.
func TestACallIsNotifiedWithALink(t *testing.T) {
	t.Parallel()
	p, _ := linking(t)
	before := len(p.sent())
	c := p.asksForCall("nightly-1", "x/0.0!9", "", 1, 1)
	p.work()
	p.want(len(p.sent()), before+1)
	for _, want := range []string{"Call of http.request: approval needed", "a call of http.request by nightly-1 needs an approval", "Without an answer it is refused at"} {
		if !strings.Contains(p.sent()[before], want) {
			t.Errorf("found %s; want %q in it", p.sent()[before], want)
		}
	}
	opened := p.open(person(8), p.token())
	p.want([]any{opened.State, opened.Opening.RequestID, opened.Opening.GateID}, []any{notify.LinkOpened, c.ID, ""})
	_, err := p.policies.AnswerCall(t.Context(), person(8), c.ID, true, "as agreed")
	p.ok(err)
	p.work()
	p.want(len(p.sent()), before+2)
	for _, want := range []string{"chat.update", "approved the call: as agreed"} {
		if !strings.Contains(p.sent()[before+1], want) {
			t.Errorf("found %s; want %q in it", p.sent()[before+1], want)
		}
	}
	openings, err := p.notify.Openings(t.Context(), org, []int64{opened.Opening.MessageID})
	p.ok(err)
	p.want(openings[opened.Opening.MessageID][0].AnsweredAt != nil, true)
}
