package domain

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
)

// commenting is a shop with a proposed change, on whose pull request people write comments.
type commenting struct {
	*chatting
	at      *reviewers
	hook    forge.MadeHook
	comment int64
}

const proposed = "https://git.test/shop/config.git"

func comments(t *testing.T) *commenting {
	t.Helper()
	return commentsOn(t, `"group":"release"`)
}

// commentsOn is comments where production asks for this.
func commentsOn(t *testing.T, entry string) *commenting {
	t.Helper()
	c := &commenting{chatting: chats(t, core.NotifySlack, slackCommands, entry)}
	c.at = &reviewers{inputs: map[string]pullInputs{}, comments: map[int64]string{}}
	c.forges = forge.New(forge.Deps{
		Store: c.store.ForForge(), Engine: c.at, Checks: c.view, Plans: c.triggers, Pipelines: bundle.Flows{}, Secrets: derives{},
		Clock: c.now, URL: "https://cd.example.com",
	})
	c.on = events.New(c.intake, c.rollouts, c.forges, c.chats, c.inbox)
	c.hook = c.hooks("git.test/shop/*", true)
	c.report(event.DeploymentSubmitted{
		DeploymentID: c.deployments(c.stops(c.rollout)[0])[0].ID, Name: "#3", URL: "https://git.test/Shop/config/pulls/3", Status: "open",
	})
	return c
}

func (c *commenting) hooks(pattern string, commands bool) forge.MadeHook {
	c.t.Helper()
	made, err := c.forges.AddHook(c.t.Context(), user(), forge.NewHook{Forge: "gitea", Repositories: []string{pattern}, Commands: commands})
	c.ok(err)
	return made
}

// written is what the registry service reports of a comment.
func (c *commenting) written(author int64, name, text string) event.PullRequestCommented {
	c.comment++
	return event.PullRequestCommented{
		Hook: c.hook.Key, Repository: proposed, Number: 3, CommentID: c.comment, AuthorID: author, Author: name, Text: text,
		MadeAt: c.now.Now().Format(time.RFC3339),
	}
}

func (c *commenting) brings(organization int64, data event.Data) event.Event {
	c.t.Helper()
	c.mu.Lock()
	c.count++
	id := fmt.Sprintf("%s/comment/%d", c.t.Name(), c.count)
	c.mu.Unlock()
	e, err := event.New(event.Header{ID: id, Source: event.SourceRegistry, Organization: organization, Time: c.now.Now()}, data)
	c.ok(err)
	return e
}

// reports is the report of such an event, for a process that is to die with it.
func (c *commenting) reports(e event.Event, data event.PullRequestCommented) chat.CommentReport {
	return chat.CommentReport{
		In: core.Inbound{Organization: org, ID: e.ID(), Type: e.Type(), Envelope: e}, Hook: data.Hook, Repository: data.Repository,
		Number: data.Number, CommentID: data.CommentID, AuthorID: data.AuthorID, Author: data.Author, MadeAt: c.now.Now(), Text: data.Text,
	}
}

// writes has a comment arrive, and answers what is kept of it.
func (c *commenting) writes(author int64, name, text string) (outcome, answer string) {
	c.t.Helper()
	c.now.Advance(3 * time.Second)
	data := c.written(author, name, text)
	c.publish(c.brings(org, data))
	return c.kept(data.CommentID)
}

func (c *commenting) kept(comment int64) (outcome, answer string) {
	c.t.Helper()
	rows, err := c.pool.Query(c.t.Context(), `SELECT outcome, answer FROM cd_forge_comments WHERE comment_id = $1 AND organization_id = $2`, comment, org)
	c.ok(err)
	defer rows.Close()
	for rows.Next() {
		c.ok(rows.Scan(&outcome, &answer))
	}
	c.ok(rows.Err())
	return outcome, answer
}

// links links an account of the forge to a member.
func (c *commenting) links(author int64, name string, a core.Actor) {
	c.t.Helper()
	made, err := c.chats.MakeCode(c.t.Context(), a, c.hook.ID, name)
	c.ok(err)
	outcome, answer := c.writes(author, name, made.Comment())
	c.want(outcome, "linked")
	c.want(strings.Contains(answer, made.Value), false)
}

func (c *commenting) hears(outcome, answer string, got ...string) {
	c.t.Helper()
	if got[0] != outcome || !strings.Contains(got[1], answer) {
		c.t.Errorf("found %q; want %s with %q", got, outcome, answer)
	}
}

func (c *commenting) writing(author int64, name, text, outcome, answer string) {
	c.t.Helper()
	o, a := c.writes(author, name, text)
	c.hears(outcome, answer, o, a)
}

func (c *commenting) approvals() int {
	c.t.Helper()
	return c.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'approve'`)
}

// D63: commands on the pull request of a proposed change are answered by the rules of the console, for the member who has linked the
// account, in one comment that is kept up to date, without names of members.
func TestACommentOnAProposedChangeAnswers(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.writing(70, "Ann", "/lockstep status", "unlinked", "get a code for it on the page Forges of the console")
	c.links(70, "Ann", person(7))
	app := c.application()
	c.writing(70, "Ann", "/lockstep status", "answered", app+" brings")
	_, answer := c.writes(70, "Ann", "/lockstep why")
	if !strings.Contains(answer, "waits for approval production: 0 of 1 from release") || strings.Contains(answer, "person-") {
		t.Errorf("found %q; want what it waits for without names", answer)
	}
	c.writing(70, "Ann", "/lockstep", "answered", "/lockstep freeze DURATION REASON")
	c.writing(70, "Ann", "/lockstep dance", "refused", `found "/lockstep dance"; expected one of status`)
	code := strings.Repeat("K7", 13)
	for _, text := range []string{"/lockstep " + code, "/lockstep\u00a0" + code, "/lockstep lnik " + code, "/lockstep\u00a0link\u2003" + code} {
		_, answer := c.writes(70, "Ann", text)
		c.want(strings.Contains(strings.ToUpper(answer), code), false)
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_forge_comments WHERE upper(command || answer) LIKE '%K7%'`), 0)
	c.writing(70, "Ann", "/LOCKSTEP approve", "answered", fmt.Sprintf("/lockstep approve %d", c.question()))
	c.writing(70, "Ann", "/lockstep approve 99999", "refused", "no question of this change")
	c.want(c.approvals(), 0)
	c.writing(70, "Ann", fmt.Sprintf("/lockstep approve %d looks good", c.question()), "answered", "approved production of")
	c.want(c.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'approve' AND principal_id = 7
		AND reason = 'approved in comment 13 on git.test/shop/config#3 as Ann: looks good'`), 1)
	c.writing(70, "Ann", "/lockstep approve", "refused", "asks for no approval now")
	c.workForge()
	got := c.at.comments[3]
	for _, want := range []string{"<!-- lockstep answers o1 -->\n", ": /lockstep approve 99999\n", "approved production of", "asks for no approval now"} {
		if !strings.Contains(got, want) {
			t.Errorf("found %s; want %q", got, want)
		}
	}
	c.want([]any{strings.Count(got, "```text"), c.at.written}, []any{5, 1})
	c.writing(70, "Ann", "/lockstep help", "answered", "")
	c.workForge()
	c.want(c.at.written, 1) // the comment was written just now
	c.now.Advance(forge.BetweenAnswers)
	c.workForge()
	c.want([]any{c.at.written, len(c.at.comments), strings.Contains(c.at.comments[3], "Ann, 2027-")}, []any{2, 1, true})
	c.want(c.chats.CommentCounts()["linked"], int64(1))
	c.want(c.forges.AnswerCounts()["sent"], int64(2))
	c.want(c.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'linkForgeAccount' AND principal_id = 7 AND after ->> 'user' = '70'`), 1)
	accounts, err := c.chats.ForgeAccounts(t.Context(), person(7))
	c.ok(err)
	c.want([]any{len(accounts), accounts[0].Name, accounts[0].Workspace}, []any{1, "Ann", fmt.Sprintf("git.test/hook_%d", c.hook.ID)})
	theirs, err := c.chats.Accounts(t.Context(), person(7))
	c.ok(err)
	c.want(len(theirs), 0) // those of chats have a list of their own
	ended, err := c.chats.UnlinkForge(t.Context(), person(7), accounts[0].ID, "moved")
	c.ok(err)
	c.want(ended.User, "70")
	c.writing(70, "Ann", "/lockstep status", "unlinked", "not linked")
}

// workForge does what is due at forges.
func (c *commenting) workForge() {
	c.t.Helper()
	reviewed{winter: c.winter, at: c.at}.work()
}

// D63: the rules of the console: who requested may not approve, the group counts, and so do the rights of this moment; a rejection cancels
// the rollout, and a freeze needs the permission.
func TestCommentsFollowTheRules(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.links(10, "owner", user())
	c.links(90, "cid", person(9))
	c.links(80, "bob", person(8))
	approve := fmt.Sprintf("/lockstep approve %d", c.question())
	c.writing(10, "owner", approve, "refused", "Nothing was done") // has requested it, and is not in the group
	c.writing(90, "cid", approve, "refused", "Nothing was done")   // is not in the group
	_, err := c.pool.Exec(t.Context(), `UPDATE cd_members SET role = 'viewer' WHERE id = 8`)
	c.ok(err)
	c.writing(80, "bob", "/lockstep freeze 2h incident 7", "refused", "permission")
	c.writing(80, "bob", approve, "refused", "permission")
	c.maintains(8)
	c.writing(80, "bob", "/lockstep freeze 2h", "refused", "expected /lockstep freeze DURATION REASON")
	c.writing(80, "bob", "/lockstep freeze 2h incident 7", "answered", "stops the rollouts of "+c.application())
	c.want(c.countOf(`SELECT count(*) FROM cd_freezes WHERE reason LIKE 'incident 7 (in comment % on git.test/shop/config#3 as bob)'`), 1)
	c.writing(80, "bob", strings.Replace(approve, "approve", "reject", 1)+" too late", "answered", "rejected production")
	c.writing(80, "bob", approve, "refused", "")
	c.want(c.approvals(), 0)
	// No answer names a member, and none repeats what was written as a reason.
	c.want(c.countOf(`SELECT count(*) FROM cd_forge_comments c JOIN cd_members m ON m.organization_id = c.organization_id
		WHERE c.answer LIKE '%' || m.name || '%' OR c.answer || c.command LIKE '%too late%'`), 0)
	c.want(c.countOf(`SELECT count(*) FROM cd_forge_comments WHERE command = '/lockstep freeze'`), 3)
}

// D63: attacks: another's account, an account that was renamed, a code that another account writes, one that is used twice, has expired or
// was replaced, a member who has left, a machine, and a token without a permission.
func TestNobodyElseAnswersByComment(t *testing.T) {
	t.Parallel()
	c := comments(t)
	made, err := c.chats.MakeCode(t.Context(), person(7), c.hook.ID, "@Ann")
	c.ok(err)
	c.writing(66, "eve", made.Comment(), "refused", "for another account") // who has read it in the comment
	c.writing(70, "ann", made.Comment()+" x", "refused", "unknown")
	c.writing(70, "ann", made.Comment(), "linked", "linked now")
	c.writing(70, "ann", made.Comment(), "refused", "was used")
	approve := fmt.Sprintf("/lockstep approve %d", c.question())
	// The number counts, and not the name: neither who has taken the name that ann had, nor one who is called alike.
	c.writing(66, "ann", approve, "unlinked", "not linked")
	c.writing(70, "ann-renamed", "/lockstep why", "answered", "approval production")
	late, err := c.chats.MakeCode(t.Context(), person(8), c.hook.ID, "bob")
	c.ok(err)
	replacing, err := c.chats.MakeCode(t.Context(), person(8), c.hook.ID, "bob")
	c.ok(err)
	c.writing(80, "bob", late.Comment(), "refused", "unknown")
	c.now.Advance(10 * time.Minute)
	c.writing(80, "bob", replacing.Comment(), "refused", "expired")
	// Another member's code for an account that is linked already changes nothing, and reveals nobody.
	stolen, err := c.chats.MakeCode(t.Context(), person(8), c.hook.ID, "ann")
	c.ok(err)
	o, a := c.writes(70, "ann", stolen.Comment())
	c.hears("refused", "linked to another member", o, a)
	c.want(strings.Contains(a, "person-7"), false)
	// A hook proves nothing about the users of another one.
	c.hook = c.hooks("git.test/*", true)
	c.writing(70, "ann", approve, "unlinked", "not linked")
	c.links(90, "cid", person(9))
	_, err = c.pool.Exec(t.Context(), `UPDATE cd_members SET kind = 'agent' WHERE id = 9`)
	c.ok(err)
	c.writing(90, "cid", "/lockstep why", "unlinked", "Machines do not answer")
	weak := person(8)
	weak.Permissions = core.PermissionsOf(core.MayRead)
	c.links(80, "bob", weak)
	c.writing(80, "bob", "/lockstep why", "answered", "")
	c.writing(80, "bob", approve, "unlinked", "without the permission")
	_, err = c.access.RemoveMember(t.Context(), user(), 8)
	c.ok(err)
	c.writing(80, "bob", "/lockstep why", "unlinked", "has left Lockstep")
	c.want(c.approvals(), 0)
	for _, name := range []string{"", "a b", strings.Repeat("x", 256), "a\x00"} {
		_, err := c.chats.MakeCode(t.Context(), person(7), c.hook.ID, name)
		c.wrong(err, "/account")
	}
	_, err = c.chats.MakeCode(t.Context(), person(7), c.hooks("git.test/*", false).ID, "ann")
	c.wrong(err, "/hook")
	machine := person(7)
	machine.Type = core.PrincipalAgent
	if _, err := c.chats.MakeCode(t.Context(), machine, c.hook.ID, "ann"); !fault.Is(err, fault.Denied) {
		t.Errorf("found %v; want that it is for people", err)
	}
}

// D63: a comment counts for nothing on a fork, on the pull request of another organization or of no rollout, at a hook without commands or
// that was removed, and when one account writes too many; one that is delivered again, or whose text was changed since, is no second one.
func TestCommentsThatCountForNothing(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.links(70, "ann", person(7))
	approve := fmt.Sprintf("/lockstep approve %d", c.question())
	off := c.hooks("git.test/shop/*", false)
	narrow := c.hooks("git.test/shop/api", true)
	for name, change := range map[string]func(*event.PullRequestCommented){
		"a fork":                         func(d *event.PullRequestCommented) { d.Repository = "https://git.test/eve/config.git" },
		"another server":                 func(d *event.PullRequestCommented) { d.Repository = "https://evil.test/shop/config.git" },
		"another server by its name":     func(d *event.PullRequestCommented) { d.Repository = "https://git.test@evil.test/shop/config.git" },
		"another pull request":           func(d *event.PullRequestCommented) { d.Number = 4 },
		"a hook that takes no commands":  func(d *event.PullRequestCommented) { d.Hook = off.Key },
		"a hook of nobody":               func(d *event.PullRequestCommented) { d.Hook = strings.Repeat("0", 32) },
		"one that was made long ago":     func(d *event.PullRequestCommented) { d.MadeAt = c.now.Now().Add(-25 * time.Hour).Format(time.RFC3339) },
		"one of tomorrow":                func(d *event.PullRequestCommented) { d.MadeAt = c.now.Now().Add(time.Hour).Format(time.RFC3339) },
		"a repository beside the hook's": func(d *event.PullRequestCommented) { d.Hook = narrow.Key },
		"another path that ends like it": func(d *event.PullRequestCommented) { d.Repository = "https://git.test/shop/x/config.git" },
	} {
		data := c.written(70, "ann", approve)
		change(&data)
		c.publish(c.brings(org, data))
		if outcome, answer := c.kept(data.CommentID); outcome != "" || answer != "" {
			t.Errorf("%s: found %s %s; want nothing", name, outcome, answer)
		}
	}
	c.publish(c.brings(2, c.written(70, "ann", approve))) // the hook is of the first organization
	c.want([]any{c.approvals(), c.chats.CommentCounts()["ignored"]}, []any{0, int64(11)})
	_, err := c.forges.RemoveHook(t.Context(), user(), off.ID, "over")
	c.ok(err)

	c.now.Advance(time.Minute)
	data := c.written(70, "ann", "/lockstep why")
	again := c.brings(org, data)
	c.publish(again, again)
	data.Text = approve // edited, and delivered as another event
	c.publish(c.brings(org, data))
	data.Text, data.AuthorID = "/lockstep why", 80
	c.publish(c.brings(org, data))
	outcome, _ := c.kept(data.CommentID)
	c.want([]any{c.approvals(), outcome, c.chats.CommentCounts()["repeated"]}, []any{0, "answered", int64(3)})
	for range 40 {
		data := c.written(66, "eve", "/lockstep status")
		c.publish(c.brings(org, data))
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_forge_comments WHERE author_id = 66`), 30)
	c.workForge()
	c.want(c.at.written, 1) // one comment, however much is written
	_, err = c.forges.RemoveHook(t.Context(), user(), c.hook.ID, "over")
	c.ok(err)
	data = c.written(70, "ann", approve)
	c.publish(c.brings(org, data))
	outcome, _ = c.kept(data.CommentID)
	c.want([]any{c.approvals(), outcome}, []any{0, ""})
}

// D63: another application's program, which names this pull request as its own, answers no question of it.
func TestAnotherRolloutDoesNotTakeAPullRequest(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.links(70, "ann", person(7))
	_, err := c.pool.Exec(t.Context(), `INSERT INTO cd_deployment_links (organization_id, deployment_id, name, namespace, url, status)
		SELECT organization_id, id, '#3', '', 'https://git.test/shop/config/pulls/3', 'open' FROM cd_deployments d
		WHERE NOT EXISTS (SELECT FROM cd_deployment_links l WHERE l.deployment_id = d.id)`)
	c.ok(err)
	c.writing(70, "ann", fmt.Sprintf("/lockstep approve %d", c.question()), "answered", "approved production")
	c.want(c.approvals(), 1)
}

// D63: what people and others have written is text in the comment with answers.
func TestAnswersInCommentsAreText(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.links(70, "ann", person(7))
	c.writing(70, "ann", "/lockstep ```\u202e@all [x](javascript:y) <img> /merge", "refused", "")
	c.writing(70, "```\u202e@all [x](javascript:y) <img> /merge", "/lockstep help", "answered", "")
	c.workForge()
	inside := false
	for i, line := range strings.Split(c.at.comments[3], "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = !inside
		case !inside && i > 0 && strings.ContainsAny(strings.ReplaceAll(line, "`/lockstep help`", ""), "<>@[]`"), inside && strings.Contains(line, "```"),
			strings.HasPrefix(line, "/"), strings.Contains(line, "\u202e"):
			t.Errorf("found the line %q", line)
		}
	}
}

// D63: a process that is killed at any statement while it performs a command performs it at most once, and at least once unless its answer
// says that it may not have been.
func TestACommentSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	c := comments(t)
	c.links(10, "owner", user())
	c.maintains(1)
	mortal, died := c.mortal(c.now)
	deps := c.chats.Deps
	deps.Store, deps.Freezes, deps.View = mortal.store.ForChat(), mortal.freezes, mortal.view
	taker := chat.New(deps)
	report := func(of *chat.UseCases, comment, author int64, name, text string) error {
		c.comment = comment - 1
		data := c.written(author, name, text)
		e, err := event.New(event.Header{ID: fmt.Sprintf("comment-%d", comment), Source: event.SourceRegistry, Organization: org, Time: c.now.Now()}, data)
		c.ok(err)
		return of.ReportComments(context.WithoutCancel(t.Context()), []chat.CommentReport{c.reports(e, data)})[0]
	}
	interrupted := 0
	for n := int64(1); ; n++ {
		c.now.Advance(3 * time.Second)
		comment := 1000 + n
		text := fmt.Sprintf("/lockstep freeze 2h incident-%d", n)
		died.left.Store(n)
		err := report(taker, comment, 10, "owner", text)
		through := died.left.Load() > 1
		died.left.Store(0)
		c.ok(report(c.chats, comment, 10, "owner", text))
		made := c.countOf(`SELECT count(*) FROM cd_freezes WHERE reason LIKE $1`, fmt.Sprintf("incident-%d (%%", n))
		outcome, answer := c.kept(comment)
		reported := strings.Contains(answer, "interrupted")
		if made > 1 || made == 0 && !reported || outcome == "" || answer == "" {
			t.Fatalf("found %d freezes after a kill at statement %d, and %s: %s; want one, or an answer that names the interruption", made, n, outcome, answer)
		}
		if reported {
			interrupted++
		}
		if err == nil && through {
			break
		}
		if n == 200 {
			t.Fatalf("the command does not get through: %v", err)
		}
	}
	if interrupted == 0 {
		t.Error("no kill was between the two transactions")
	}
	made, err := taker.MakeCode(t.Context(), person(7), c.hook.ID, "owner-2")
	c.ok(err)
	for n := int64(1); ; n++ {
		died.left.Store(n)
		err := report(taker, 5000, 11, "owner-2", made.Comment())
		through := died.left.Load() > 1
		died.left.Store(0)
		if err == nil && through {
			break
		}
		if n == 200 {
			t.Fatalf("the code does not get through: %v", err)
		}
	}
	outcome, _ := c.kept(5000)
	c.want(outcome, "linked")
}

// D63: an answer that a forge refuses is tried again, and what a pull request has besides is done all the same: its plan waits for no
// answer, and no answer for a plan.
func TestAnswersAndPlansShareAPullRequest(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.links(70, "ann", person(7))
	c.at.answer = func(pullInputs) map[string]any {
		return map[string]any{"outcome": "refused", "why": "invalid: no"}
	}
	for range 30 {
		c.workForge()
		c.now.Advance(10 * time.Minute)
	}
	all, err := c.forges.Pulls(t.Context(), org, 0, 10)
	c.ok(err)
	c.want([]any{len(all), all[0].State, strings.Contains(all[0].Error, "tried 10 times")}, []any{1, forge.Failed, true})
	c.at.answer = nil
	c.writing(70, "ann", "/lockstep why", "answered", "")
	c.workForge()
	all, err = c.forges.Pulls(t.Context(), org, 0, 10)
	c.ok(err)
	c.want([]any{all[0].State, all[0].Outcome, strings.Count(c.at.comments[3], "```text")}, []any{forge.Sent, "another comment has the answers to commands", 2})
}

// D63: answers, which outsiders may cause, leave room for what is pushed, and what is pushed comes before them. A comment with a code that
// nobody has made leaves nothing behind on a pull request of no rollout.
func TestAnswersLeaveRoomForPushes(t *testing.T) {
	t.Parallel()
	c := comments(t)
	c.links(70, "ann", person(7))
	made, err := c.chats.MakeCode(t.Context(), person(8), c.hook.ID, "bob")
	c.ok(err)
	elsewhere := func(text string) string {
		data := c.written(80, "bob", text)
		data.Number = 4
		c.publish(c.brings(org, data))
		outcome, _ := c.kept(data.CommentID)
		return outcome
	}
	c.want([]any{elsewhere("/lockstep link " + strings.Repeat("A", 26)), elsewhere("/lockstep link"), elsewhere(made.Comment())}, []any{"", "", "linked"})
	c.want(c.countOf(`SELECT count(*) FROM cd_forge_pulls`), 2)
	waiting := func(from, to int) {
		_, err := c.pool.Exec(t.Context(), `INSERT INTO cd_forge_pulls (organization_id, hook_id, name, number, repository, host, asked_by, due_at,
			revision, answers) SELECT $1, $2, 'git.test/shop/config', n, 'https://git.test/shop/config.git', 'git.test', '{}', $3, 0, 1
			FROM generate_series($4::integer, $5::integer) n`, org, c.hook.ID, c.now.Now().Add(-time.Hour), from, to)
		c.ok(err)
	}
	waiting(100, 100+forge.MostPulls/2-3)
	c.want(c.countOf(`SELECT count(*) FROM cd_forge_pulls`), forge.MostPulls/2)
	again, err := c.chats.MakeCode(t.Context(), person(8), c.hook.ID, "bob")
	c.ok(err)
	data := c.written(80, "bob", again.Comment())
	data.Number = 5
	c.publish(c.brings(org, data))
	c.want([]any{c.countOf(`SELECT count(*) FROM cd_forge_pulls`), c.chats.CommentCounts()["unwritten"]}, []any{forge.MostPulls / 2, int64(1)})
	c.writing(70, "ann", "/lockstep why", "answered", "") // of one that waits already
	c.want(c.chats.CommentCounts()["unwritten"], int64(1))
	_, err = c.pool.Exec(t.Context(), `INSERT INTO cd_forge_pulls (organization_id, hook_id, name, number, repository, host, asked_by, due_at)
		SELECT $1, $2, 'git.test/shop/config', 9, 'https://git.test/shop/config.git', 'git.test', '{}', $3`, org, c.hook.ID, c.now.Now())
	c.ok(err)
	c.ok(c.store.ForForge().In(t.Context(), org, func(ctx context.Context, tx forge.Tx) error {
		due, found, err := tx.DueForgePull(ctx, c.now.Now(), c.now.Now(), time.Minute, 100, 100)
		c.want([]any{due.Number, found}, []any{int64(9), true})
		return err
	}))
}
