package domain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
)

// reviewers is an engine with forges behind it, whose pull requests have one comment each.
type reviewers struct {
	mu sync.Mutex
	// inputs are those of all runs, and order their ids.
	inputs map[string]pullInputs
	order  []string
	// comments are what the forges have, by number; written counts how often one was written.
	comments map[int64]string
	written  int
	// reads is what a pull request is; answer what a run reports in place of that all is well, nil for that.
	reads  event.PullRequestRead
	answer func(in pullInputs) map[string]any
	away   error
	// arrives has what a run has read arrive.
	arrives func(data event.PullRequestRead, run string)
}

type pullInputs struct {
	Pull struct {
		ID  int64
		Run int
	}
	Change *struct {
		RepoURL string `json:"repo_url"`
		Number  int64
		AskedBy []string `json:"asked_by"`
	}
	Comment *struct {
		RepoURL   string `json:"repo_url"`
		Number    int64
		Marker    string
		Body      string
		OnlyKnown bool `json:"only_known"`
		Known     string
	}
	Render *struct {
		RepoURL string `json:"repo_url"`
		Targets []map[string]any
	}
	Reading *event.PullRequestRead
	Status  *struct {
		RepoURL                          string `json:"repo_url"`
		Commit, Name, State, Description string
	}
}

func (r *reviewers) Start(_ context.Context, w handoff.Workflow) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away != nil {
		return "", r.away
	}
	if _, again := r.inputs[w.ID]; again {
		return "run-of-" + w.ID, nil
	}
	var in pullInputs
	if err := json.Unmarshal(w.Inputs, &in); err != nil {
		return "", err
	}
	if w.ID != id.ForgePullRun(in.Pull.ID, in.Pull.Run) {
		return "", fault.New(fault.Invalid, "found run %s for %+v", w.ID, in.Pull)
	}
	r.inputs[w.ID], r.order = in, append(r.order, w.ID)
	switch {
	case r.answer != nil && r.answer(in)["outcome"] != "read" && r.answer(in)["outcome"] != "sent":
	case in.Change != nil:
		read := r.reads
		read.PullRequestID, read.Run, read.Rendered = in.Pull.ID, in.Pull.Run, nil
		r.arrives(read, w.ID)
	case in.Reading != nil:
		read := *in.Reading
		read.PullRequestID, read.Run, read.Rendered = in.Pull.ID, in.Pull.Run, r.reads.Rendered
		r.arrives(read, w.ID)
	default:
		if _, known := r.comments[in.Comment.Number]; known || !in.Comment.OnlyKnown {
			r.comments[in.Comment.Number] = in.Comment.Marker + "\n" + in.Comment.Body
			r.written++
		}
	}
	return "run-of-" + w.ID, nil
}

func (r *reviewers) WorkflowByID(_ context.Context, _ int64, run string) (handoff.WorkflowRun, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in, known := r.inputs[run]
	if !known {
		return handoff.WorkflowRun{}, fault.New(fault.NotFound, "no run %s", run)
	}
	status := map[string]any{"outcome": "read"}
	if in.Comment != nil {
		status = map[string]any{"outcome": "sent", "link": ""}
		if _, known := r.comments[in.Comment.Number]; known {
			status["link"] = fmt.Sprintf("https://git.test/shop/config/pulls/%d#1", in.Comment.Number)
		}
	}
	if r.answer != nil {
		status = r.answer(in)
	}
	found := handoff.WorkflowRun{ID: run, State: handoff.WorkflowCompleted}
	if status["outcome"] == nil {
		found.State = handoff.WorkflowRunning
	}
	for key, value := range status {
		text, _ := json.Marshal(value)
		found.Status = append(found.Status, handoff.WorkflowPair{Key: key, Value: string(text)})
	}
	return found, nil
}

// reviewed is a shop whose pull requests have their plans written.
type reviewed struct {
	winter
	at   *reviewers
	hook forge.MadeHook
}

func reviewing(t *testing.T) reviewed {
	t.Helper()
	r := reviewed{winter: clocked(t)}
	r.at = &reviewers{inputs: map[string]pullInputs{}, comments: map[int64]string{}, reads: event.PullRequestRead{
		State: "open", Into: "main", Head: shaOf(7), Message: "Two replicas", Paths: []string{"deploy/api.yaml"}, Resources: []string{"changed Deployment shop/api"},
	}}
	r.at.arrives = func(data event.PullRequestRead, run string) { r.deliver(r.emit(data, run)) }
	r.forges = r.forging(r.service)
	r.on = events.New(r.intake, r.rollouts, r.forges, r.chats, r.inbox)
	r.withManifests()
	r.weighted(`"checks":{"proposed":[{"key":"ticket"}]},`)
	var err error
	r.hook, err = r.forges.AddHook(t.Context(), user(), forge.NewHook{Forge: "gitea", Repositories: []string{"git.test/shop/*"}, Plans: true, Reason: "plans"})
	r.ok(err)
	r.work() // its pipelines are read
	return r
}

func (r reviewed) forging(s *service) *forge.UseCases {
	return forge.New(forge.Deps{
		Store: s.store.ForForge(), Engine: r.at, Checks: s.view, Plans: s.triggers, Pipelines: bundle.Flows{}, Secrets: derives{}, Clock: r.now,
	})
}

// pushes reports a pull request as the registry does.
func (r reviewed) pushes(number int64, askedBy string) {
	r.t.Helper()
	r.reportsPull(event.PullRequestReported{Hook: r.hook.Key, Repository: "https://git.test/shop/config.git", Number: number, AskedBy: askedBy})
}

func (r reviewed) reportsPull(data event.PullRequestReported) event.Event {
	r.t.Helper()
	r.mu.Lock()
	r.count++
	name := fmt.Sprintf("%s/pull/%d", r.t.Name(), r.count)
	r.mu.Unlock()
	e, err := event.New(event.Header{ID: name, Source: event.SourceRegistry, Organization: org, Time: r.now.Now()}, data)
	r.ok(err)
	r.publish(e)
	return e
}

// work does what is due, and has every run looked at, until nothing is left.
func (r reviewed) work() {
	r.t.Helper()
	for range 2000 {
		w, worked, err := r.forges.WorkDue(r.t.Context())
		if err != nil && !fault.Is(err, fault.Unavailable) {
			r.ok(err)
		}
		if !worked {
			return
		}
		for _, p := range r.pulls() {
			if p.ID == w.Pull && p.Started && p.State == forge.Sending {
				run := id.ForgePullRun(p.ID, p.Run)
				r.deliver(r.emit(event.WorkflowCompleted{WorkflowID: run}, run))
			}
		}
	}
	r.t.Fatal("pull requests do not come to an end")
}

func (r reviewed) pulls() []forge.Pull {
	r.t.Helper()
	all, err := r.forges.Pulls(r.t.Context(), org, 0, 100)
	r.ok(err)
	return all
}

// R4-27, D60: a pull request that a forge reports gets one comment, with which applications it touches, by which strategy, what they would
// have to pass and which objects change; a push changes it in its place, and a report that is repeated changes nothing.
func TestAPullRequestGetsItsPlan(t *testing.T) {
	t.Parallel()
	r := reviewing(t)
	r.pushes(3, "")
	r.work()
	r.want(len(r.at.comments), 1)
	got := r.at.comments[3]
	for _, want := range []string{
		"<!-- lockstep plan o1 -->\n### Lockstep plan\n", "`/lockstep plan`", r.application.Name + ": no trigger begins a rollout once the change is at the head of main",
		"quick sync: ", "  changed: deploy/api.yaml\n", "check ticket: ", "changed Deployment shop/api\n", "commit " + shaOf(7)[:12],
	} {
		if !strings.Contains(got, want) {
			t.Errorf("found %s; want %q", got, want)
		}
	}
	status := r.at.inputs[r.at.order[1]].Status
	r.want([]any{status.RepoURL, status.Commit, status.Name, status.State, status.Description}, []any{
		"https://git.test/shop/config.git", shaOf(7), "lockstep/plan", "success", r.application.Name + " (quick sync); conditions to pass: 3",
	})
	p := r.pulls()[0]
	r.want([]any{p.State, p.Outcome, p.Link, p.Head, p.Name, p.Host}, []any{
		forge.Sent, "its comment has the plan", "https://git.test/shop/config/pulls/3#1", shaOf(7), "git.test/shop/config", "git.test",
	})
	again := r.reportsPull(event.PullRequestReported{Hook: r.hook.Key, Repository: "https://git.test/shop/config.git", Number: 3})
	r.work()
	r.want(r.at.written, 1) // within a minute
	r.now.Advance(time.Minute)
	r.at.reads.Head = shaOf(8)
	r.work()
	r.want([]any{r.at.written, strings.Contains(r.at.comments[3], shaOf(8)[:12])}, []any{2, true})
	r.publish(again)
	r.now.Advance(time.Hour)
	r.work()
	r.want(r.at.written, 2)
	r.pushes(3, "ann")
	r.work()
	r.want([]any{r.at.written, r.at.inputs[r.at.order[4]].Change.AskedBy, r.pulls()[0].AskedBy}, []any{3, []string{"ann"}, []string{}})
	// A user who asks after a writer takes nothing from the writer: both are looked up.
	for _, who := range []string{"ann", "eve", "ann", "mallory"} {
		r.pushes(4, who)
	}
	r.want(r.pulls()[0].AskedBy, []string{"eve", "ann", "mallory"})
	for i := range 12 {
		r.pushes(4, fmt.Sprint("user", i))
	}
	asked := r.pulls()[0].AskedBy
	r.want([]any{len(asked), asked[0], asked[9]}, []any{10, "user2", "user11"})
	_, err := r.pool.Exec(t.Context(), `DELETE FROM cd_forge_pulls WHERE number = 4`)
	r.ok(err)
	r.want(r.forges.PullCounts()["sent"], int64(3))
	// A status that the forge refuses is reported, and the comment stays what it is.
	r.at.answer = func(in pullInputs) map[string]any {
		if in.Comment == nil {
			return map[string]any{"outcome": "read"}
		}
		return map[string]any{"outcome": "sent", "link": "https://git.test/shop/config/pulls/3#1", "unset": "unauthorized: the token may not"}
	}
	r.now.Advance(time.Minute)
	r.pushes(3, "")
	r.work()
	r.want([]any{r.pulls()[0].State, r.pulls()[0].Outcome}, []any{
		forge.Sent, "its comment has the plan; the status of its commit was not set: unauthorized: the token may not",
	})
	// So is one that the forge takes later: the server is left alone for as long, and the comment is not written again.
	r.at.answer = func(in pullInputs) map[string]any {
		if in.Comment == nil {
			return map[string]any{"outcome": "read"}
		}
		return map[string]any{"outcome": "sent", "link": "https://git.test/shop/config/pulls/3#1", "unset": "limited: later", "wait": 120}
	}
	r.now.Advance(time.Minute)
	r.pushes(3, "")
	r.work()
	r.want([]any{r.pulls()[0].State, r.pulls()[0].Link, r.countOf(`SELECT count(*) FROM cd_forge_hosts WHERE pull_paused_until = $1`, r.now.Now().Add(2*time.Minute))},
		[]any{forge.Sent, "https://git.test/shop/config/pulls/3#1", 1})
	r.now.Advance(3 * time.Minute)
	r.at.answer = nil
	r.want(r.countOf(`SELECT count(*) FROM cd_forge_statuses`), 0)
}

// R4-27: what a pull request says is text in the comment: no markup, mention, command or end of the block, and nothing that only members
// know.
func TestACommentHasNoMarkupOfOthers(t *testing.T) {
	t.Parallel()
	r := reviewing(t)
	evil := "evil\n```\n# <img src=x> @all [a](javascript:b)\n/merge\n<!-- lockstep plan o1 -->\u202e"
	r.at.reads.Message, r.at.reads.Paths, r.at.reads.Resources = evil, []string{evil, "deploy/api.yaml"}, []string{evil}
	r.pushes(3, "")
	r.work()
	got := r.at.comments[3]
	inside := false
	for i, line := range strings.Split(got, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = !inside
		case !inside && i > 0 && strings.ContainsAny(strings.ReplaceAll(line, "`/lockstep plan`", ""), "<>@[]`"), inside && strings.Contains(line, "```"),
			strings.HasPrefix(line, "/"), strings.Contains(line, "\u202e"):
			t.Errorf("found the line %q in %s", line, got)
		}
	}
	if inside || !strings.Contains(got, "''' # <img src=x> @all") {
		t.Errorf("found %s; want the texts within blocks", got)
	}
	r.at.reads.Paths = nil
	for i := range 2000 {
		r.at.reads.Paths = append(r.at.reads.Paths, fmt.Sprintf("deploy/%s/%04d.yaml", strings.Repeat("`", 60), i))
	}
	r.at.reads.More = true
	r.now.Advance(time.Minute)
	r.pushes(3, "")
	r.work()
	if got := r.at.comments[3]; len(got) > 56_000 || !strings.Contains(got, "changed: 1980 more") || !strings.Contains(got, "It changes more files than were read") {
		t.Errorf("found %d bytes: %.3000s", len(got), got)
	}
}

// R4-27, D60: the comment has what differs in objects, folded and as text; what does not fit is counted.
func TestACommentShowsWhatDiffers(t *testing.T) {
	t.Parallel()
	r := reviewing(t)
	r.at.reads.Diffs = []event.ResourceDiff{
		{Object: "changed Deployment shop/api", Diff: "@@ -1 +1 @@\n-replicas: 1\n+replicas: 2\n+evil: ```\n", Truncated: true},
		{Object: "changed Service shop/api"},
	}
	r.pushes(3, "")
	r.work()
	want := "\n<details><summary>What differs</summary>\n\n```diff\n# changed Deployment shop/api\n@@ -1 +1 @@\n-replicas: 1\n+replicas: 2\n+evil: '''\n" +
		"# the rest is left out\n```\n\n</details>\n"
	if got := r.at.comments[3]; !strings.HasSuffix(got, want) {
		t.Errorf("found %s; want %s", got, want)
	}
	r.at.reads.Diffs = nil
	for i := range 60 {
		r.at.reads.Diffs = append(r.at.reads.Diffs, event.ResourceDiff{Object: fmt.Sprint("changed Pod x", i), Diff: "@@ -1 +1 @@\n+" + strings.Repeat("x", 2000) + "\n/merge\n"})
	}
	r.now.Advance(time.Minute)
	r.pushes(3, "")
	r.work()
	got := r.at.comments[3]
	if len(got) > 56_000 || !strings.Contains(got, "\nWhat differs in 20 more objects is not shown.\n") || strings.Contains(got, "\n/merge") {
		t.Errorf("found %d bytes: %.3000s", len(got), got)
	}
}

// R4-27: the address of the comment is kept, and named with the next run, so that it is the one also after the account of the credential
// has changed. One that the forge does not let that account change is not written again and again, and people learn what to do.
func TestTheCommentIsFoundByItsAddress(t *testing.T) {
	t.Parallel()
	r := reviewing(t)
	const link = "https://git.test/shop/config/pulls/3#1"
	r.pushes(3, "")
	r.work()
	r.at.answer = func(in pullInputs) map[string]any {
		if in.Comment == nil {
			return map[string]any{"outcome": "read"}
		}
		return map[string]any{"outcome": "sent", "link": link, "held": "another account has written the comment"}
	}
	r.now.Advance(time.Minute)
	r.pushes(3, "")
	r.work()
	r.want([]any{r.at.inputs[r.at.order[1]].Comment.Known, r.at.inputs[r.at.order[3]].Comment.Known}, []any{"", link})
	p := r.pulls()[0]
	r.want([]any{p.State, p.Link, p.Outcome}, []any{
		forge.Sent, link, "its comment is not up to date: another account has written the comment. Delete it at " + link +
			", and a new one is written with the next push or comment",
	})
	runs := len(r.at.order)
	r.now.Advance(24 * time.Hour)
	r.work()
	r.want(len(r.at.order), runs)
}

// R4-27: where the comment is, is known for a year: the account of the credential may change while a pull request is open. What has no
// comment is forgotten after 30 days.
func TestTheAddressOfACommentIsKeptForAYear(t *testing.T) {
	t.Parallel()
	r := reviewing(t)
	left := func(link string, days int) int {
		t.Helper()
		r.pushes(3, "")
		r.work()
		_, err := r.pool.Exec(t.Context(), `UPDATE cd_forge_pulls SET state = 'sent', link = $1, sent_at = $2`, link, r.now.Now().AddDate(0, 0, -days))
		r.ok(err)
		r.pushes(4, "") // whatever is settled next forgets
		r.work()
		return r.countOf(`SELECT count(*) FROM cd_forge_pulls WHERE number = 3`)
	}
	const link = "https://git.test/shop/config/pulls/3#1"
	for _, one := range []struct {
		link string
		days int
		want int
	}{{"", 31, 0}, {link, 31, 1}, {link, 364, 1}, {link, 366, 0}} {
		if got := left(one.link, one.days); got != one.want {
			t.Errorf("with the address %q after %d days: found %d; want %d", one.link, one.days, got, one.want)
		}
	}
}

// R4-27: nothing is written about a change that touches no application, unless there is a comment by now, nor about one that is over, or
// that comes from a fork and was not asked for by one who may write; and applications can be left out.
func TestPullRequestsWithoutAPlan(t *testing.T) {
	t.Parallel()
	r := reviewing(t)
	r.at.reads.Into = "next"
	r.pushes(3, "")
	r.work()
	r.want([]any{len(r.at.comments), r.pulls()[0].Outcome}, []any{0, "it touches no application"})
	r.at.reads.Into, r.at.reads.Refused = "main", "it comes from a fork, and eve may not write to the repository"
	r.pushes(4, "eve")
	r.at.reads.State = "closed"
	r.work()
	r.want([]any{len(r.at.comments), r.pulls()[0].Outcome}, []any{0, "it is closed"})
	r.at.reads.State = "open"
	r.now.Advance(time.Minute)
	r.pushes(4, "eve")
	r.work()
	r.want([]any{len(r.at.comments), r.pulls()[0].Outcome}, []any{0, "it comes from a fork, and eve may not write to the repository"})
	r.at.reads.Refused = ""
	r.now.Advance(time.Minute)
	r.pushes(4, "")
	r.work()
	r.want(len(r.at.comments), 1)
	off := false
	_, err := r.forges.PutMirror(t.Context(), user(), forge.NewMirror{Application: r.application.Name, Plans: &off, Reason: "ours alone"})
	r.ok(err)
	r.now.Advance(time.Minute)
	r.pushes(4, "")
	r.work()
	if got := r.at.comments[4]; !strings.Contains(got, "The change touches no application.") || strings.Contains(got, "```") {
		t.Errorf("found %s; want the application left out", got)
	}
	all, err := r.forges.PutMirror(t.Context(), user(), forge.NewMirror{Application: r.application.Name, Enabled: true})
	r.ok(err)
	r.want(all.Plans, false) // what is not given stays
	r.want(r.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'putForgeMirror' AND reason = 'ours alone' AND after->>'plans' = 'false'`), 1)
}

// R4-27: reports count for nothing that come for a hook that writes no plans, may not report the repository, or was removed, or about a
// repository that no application follows; and no organization has more than a thousand waiting.
func TestPullRequestsThatCountForNothing(t *testing.T) {
	t.Parallel()
	r := reviewing(t)
	other, err := r.forges.AddHook(t.Context(), user(), forge.NewHook{Forge: "gitea", Repositories: []string{"git.test/shop/*"}})
	r.ok(err)
	for _, data := range []event.PullRequestReported{
		{Hook: other.Key, Repository: "https://git.test/shop/config", Number: 3},
		{Hook: strings.Repeat("0", 32), Repository: "https://git.test/shop/config", Number: 3},
		{Hook: r.hook.Key, Repository: "https://git.test/shop/others", Number: 3},
		{Hook: r.hook.Key, Repository: "https://evil.test/shop/config", Number: 3},
		{Hook: r.hook.Key, Repository: "https://git.test@evil.test/shop/config", Number: 3},
	} {
		r.reportsPull(data)
	}
	r.want([]any{len(r.pulls()), r.forges.PullCounts()["ignored"]}, []any{0, int64(5)})
	r.pushes(3, "")
	_, err = r.forges.RemoveHook(t.Context(), user(), r.hook.ID, "over")
	r.ok(err)
	r.work()
	r.want([]any{len(r.at.order), r.pulls()[0].State, r.pulls()[0].Error}, []any{0, forge.Failed, "its hook was removed"})
	r.pushes(3, "")
	r.want(r.pulls()[0].State, forge.Failed)

	r.hook, err = r.forges.AddHook(t.Context(), user(), forge.NewHook{Forge: "gitea", Repositories: []string{"git.test/shop/*"}, Plans: true})
	r.ok(err)
	_, err = r.pool.Exec(t.Context(), `INSERT INTO cd_forge_pulls (organization_id, hook_id, name, number, repository, host, asked_by, due_at)
		SELECT $1, $2, 'git.test/shop/config', n, 'https://git.test/shop/config', 'git.test', '{}', $3 FROM generate_series(1001, 1999) n`,
		org, r.hook.ID, r.now.Now().Add(24*time.Hour))
	r.ok(err)
	r.pushes(5, "")
	r.pushes(6, "")
	r.want(r.countOf(`SELECT count(*) FROM cd_forge_pulls WHERE number IN (5, 6)`), 1)

	_, err = r.pool.Exec(t.Context(), `UPDATE cd_forge_pulls SET asked_by = '{eve}' WHERE number BETWEEN 1001 AND 1500`)
	r.ok(err)
	_, err = r.pool.Exec(t.Context(), `DELETE FROM cd_forge_pulls WHERE number > 1600`)
	r.ok(err)
	_, err = r.pool.Exec(t.Context(), `UPDATE cd_forge_pulls SET state = 'sent', sent_at = $1 WHERE number = 1600`, r.now.Now())
	r.ok(err)
	r.pushes(7, "eve")
	r.pushes(1600, "eve")
	r.pushes(8, "")
	r.want(r.countOf(`SELECT count(*) FROM cd_forge_pulls WHERE number = 7 OR number = 1600 AND state <> 'sent'`), 0)
	r.want(r.countOf(`SELECT count(*) FROM cd_forge_pulls WHERE number = 8`), 1)
	_, err = r.pool.Exec(t.Context(), `DELETE FROM cd_forge_pulls WHERE number = 1500`)
	r.ok(err)
	r.pushes(7, "eve")
	r.want(r.countOf(`SELECT count(*) FROM cd_forge_pulls WHERE number = 7`), 1)
}

// R4-27: pull requests are begun at most twenty times a minute at a server, whatever anybody asks for, and statuses wait for none of them;
// what was pushed comes first.
func TestPullRequestsHaveTheirOwnBudget(t *testing.T) {
	long(t)
	t.Parallel()
	r := reviewing(t)
	for n := range int64(30) {
		r.pushes(100+n, "eve")
	}
	r.pushes(3, "")
	_, err := r.pool.Exec(t.Context(), `INSERT INTO cd_forge_statuses
			(organization_id, repository, host, commit_sha, name, application_id, environment_id, phase, credential, due_at)
		SELECT $1, 'https://git.test/shop', 'git.test', $2, 'lockstep/shop/dev/a', $3, 1, 'success', '', $4`,
		org, shaOf(7), r.application.ID, r.now.Now())
	r.ok(err)
	r.work()
	r.want([]any{len(r.at.comments), len(r.at.comments[3]) > 0}, []any{20, true})
	r.now.Advance(time.Minute)
	r.work()
	r.want(len(r.at.comments), 31)
}

// R4-27: a forge that is away or limits requests has its pull requests wait, and is given up for none of them at once; what it refuses is
// shown.
func TestPullRequestsOfAForgeThatIsAway(t *testing.T) {
	long(t)
	t.Parallel()
	r := reviewing(t)
	r.at.answer = func(pullInputs) map[string]any {
		return map[string]any{"outcome": "away", "why": "unreachable: no answer"}
	}
	for n := range int64(10) {
		r.pushes(n+1, "")
	}
	r.work()
	before := len(r.at.order)
	for range 6 {
		r.now.Advance(10*time.Minute + time.Second)
		r.work()
	}
	if n := len(r.at.order) - before; before > 3 || n > 7 {
		t.Errorf("found %d runs, and %d within an hour; want one at a time", before, n)
	}
	r.at.answer = func(in pullInputs) map[string]any {
		if in.Comment != nil {
			return map[string]any{"outcome": "limited", "why": "status 429", "wait": 600}
		}
		return map[string]any{"outcome": "read"}
	}
	r.now.Advance(10*time.Minute + time.Second)
	r.work()
	r.want([]any{r.at.written, r.forges.PullCounts()["limited"] > 0}, []any{0, true})
	r.at.answer = func(pullInputs) map[string]any {
		return map[string]any{"outcome": "refused", "why": "unauthorized: no"}
	}
	for range 40 {
		r.now.Advance(10*time.Minute + time.Second)
		r.work()
	}
	p := r.pulls()[0]
	r.want([]any{p.State, p.Error}, []any{forge.Failed, "unauthorized: no; it was tried 10 times"})
	r.want(r.countOf(`SELECT count(*) FROM cd_forge_pulls WHERE reading IS NOT NULL OR inputs IS NOT NULL`), 0)
	r.at.answer = nil
	r.pushes(p.Number, "ann")
	r.now.Advance(time.Minute)
	r.work()
	r.want(r.at.written, 1)
}

// R4-27: whatever comes of pull requests, the statuses of their server are not paused for it; what fails because of one is its own failure
// alone, and none is begun while less than half of the quota is left.
func TestPullRequestsPauseNoStatuses(t *testing.T) {
	t.Parallel()
	r := reviewing(t)
	server := func() forge.Host {
		hosts, err := r.forges.Hosts(t.Context(), org)
		r.ok(err)
		return hosts[0]
	}
	r.at.answer = func(pullInputs) map[string]any {
		return map[string]any{"outcome": "away", "why": "unreachable: no answer"}
	}
	r.pushes(3, "")
	r.work()
	h := server()
	r.want([]any{h.PausedUntil.After(r.now.Now()), h.Failures, h.Problem, h.Pulls.PausedUntil.After(r.now.Now()), h.Pulls.Failures}, []any{
		false, 0, "", true, 1,
	})
	resets := r.now.Now().Add(30 * time.Minute)
	r.at.answer = func(in pullInputs) map[string]any {
		status := map[string]any{"outcome": "read", "limit": 5000, "remaining": 400, "resets_at": resets}
		if in.Comment != nil {
			status["outcome"], status["link"] = "sent", ""
		}
		return status
	}
	r.now.Advance(time.Minute)
	r.work()
	h = server()
	r.want([]any{r.at.written, h.PausedUntil.After(r.now.Now()), h.Pulls.PausedUntil, h.Pulls.Failures}, []any{1, false, resets, 0})
	_, err := r.pool.Exec(t.Context(), `UPDATE cd_forge_hosts SET pull_paused_until = 'epoch', quota_remaining = 2499`) // by statuses
	r.ok(err)
	r.pushes(4, "")
	r.now.Advance(time.Minute)
	r.work()
	r.want(r.at.written, 1)
	_, err = r.pool.Exec(t.Context(), `UPDATE cd_forge_hosts SET quota_remaining = 2500`)
	r.ok(err)
	r.work()
	r.want(r.at.written, 2)
	source, err := os.ReadFile("internal/core/forge/pull.star")
	r.ok(err)
	if !strings.Contains(string(source), "\nAWAY = [\"unreachable\"]\n") {
		t.Error("what one pull request may cause counts as a server that is away")
	}
}

// R4-27, D64: of the quota that all organizations share less than half is left: pull requests wait for it, without being looked at
// meanwhile.
func TestPullRequestsWaitForASharedQuota(t *testing.T) {
	t.Parallel()
	r := reviewing(t)
	resets := r.now.Now().Add(30 * time.Minute)
	_, err := r.pool.Exec(t.Context(), `INSERT INTO forge_budgets (host, quota_limit, quota_remaining, quota_resets_at) VALUES ('git.test', 5000, 2000, $1)`, resets)
	r.ok(err)
	r.pushes(1, "")
	looks := 0
	for range 10 {
		_, worked, err := r.forges.WorkDue(t.Context())
		r.ok(err)
		if worked {
			looks++
		}
	}
	r.want([]any{looks <= 1, r.at.written}, []any{true, 0})
	r.now.Advance(31 * time.Minute)
	r.work()
	r.want(r.at.written, 1)
}

// R4-27: a run that an engine has from another release, whose program was another one, is looked at, and is not begun a second time.
func TestARunOfAnotherReleaseIsLookedAt(t *testing.T) {
	t.Parallel()
	r := reviewing(t)
	r.pushes(3, "")
	_, _, err := r.forges.WorkDue(t.Context())
	r.ok(err)
	_, err = r.pool.Exec(t.Context(), `UPDATE cd_forge_pulls SET started = false, due_at = $1`, r.now.Now()) // killed before it could note that
	r.ok(err)
	r.at.away = fault.New(fault.Conflict, "another program")
	_, _, err = r.forges.WorkDue(t.Context())
	r.ok(err)
	p := r.pulls()[0]
	r.want([]any{p.State, p.Started, p.Run, p.Attempts}, []any{forge.Sending, true, 1, 0})
	r.at.away = nil
	r.work()
	r.want([]any{r.at.written, len(r.at.order)}, []any{1, 2})
}

// R4-27, D47: only the run that was started for a pull request says what was read of it.
func TestAForgedReadingChangesNothing(t *testing.T) {
	t.Parallel()
	r := reviewing(t)
	r.at.arrives = func(event.PullRequestRead, string) {}
	r.pushes(3, "")
	for range 5 {
		_, _, err := r.forges.WorkDue(t.Context())
		r.ok(err)
		r.now.Advance(5 * time.Second)
	}
	p := r.pulls()[0]
	r.want([]any{p.State, p.Run}, []any{forge.Sending, 1})
	data := r.at.reads
	data.PullRequestID, data.Run, data.Message = p.ID, p.Run, "forged"
	for _, run := range []string{"nightly", id.ForgePullRun(p.ID, p.Run+1), id.ForgeStatusRun(p.ID, p.Run), id.OnboardingRun(1, 1)} {
		errs := r.on.Domain(t.Context(), []bus.Delivery{{Event: r.emit(data, run), Attempt: 1}})
		if !fault.Is(errors.Join(errs...), fault.Invalid) {
			t.Errorf("%q: found %v; want it refused", run, errs)
		}
	}
	r.want(r.countOf(`SELECT count(*) FROM cd_forge_pulls WHERE reading IS NOT NULL`), 0)
	data.Message = "mine"
	r.deliver(r.emit(data, id.ForgePullRun(p.ID, p.Run)))
	r.work()
	r.want(r.at.written, 1)
}

// R4-27: a process that is killed at any statement, and an engine that is away, lose no pull request and write no comment twice.
func TestPlansSurviveAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	r := reviewing(t)
	mortal, died := r.mortal(r.now)
	forges := r.forging(mortal)
	r.at.away = fault.New(fault.Unavailable, "no engine")
	crashes := 0
	for round := range 3 {
		r.at.reads.Head = shaOf(20 + round)
		r.pushes(3, "")
		for n := int64(2); n < 3000; n++ {
			died.left.Store(n % 90)
			_, worked, err := forges.WorkDue(t.Context())
			through := died.left.Load() > 1
			died.left.Store(0)
			if err != nil && !errors.Is(err, r.at.away) {
				crashes++
			}
			if n == 120 {
				r.at.away = nil
			}
			p := r.pulls()[0]
			if err == nil && through && !worked && p.State == forge.Sent && p.Head == shaOf(20+round) {
				break
			}
			if !worked {
				r.now.Advance(time.Minute)
			}
		}
		r.want([]any{r.at.written, strings.Contains(r.at.comments[3], shaOf(20 + round)[:12])}, []any{round + 1, true})
	}
	if crashes < 20 {
		t.Errorf("found %d crashes; want more", crashes)
	}
	r.want(len(r.at.order), 6)
}
