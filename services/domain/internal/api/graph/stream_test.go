package graph_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/transport"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// sent is one event of a stream.
type sent struct{ id, name, data string }

// following is a client of a stream.
type following struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

// follow opens a stream for an organization, from a cursor and a Last-Event-ID.
func (f *fixture) follow(organization int64, after, last string) *following {
	f.t.Helper()
	return f.followRollout(organization, after, last, "")
}

// followRollout is follow for one rollout only; "" for all.
func (f *fixture) followRollout(organization int64, after, last, rollout string) *following {
	f.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := actor(organization)
		a.Permissions = f.as
		f.handler.ServeHTTP(w, r.WithContext(core.WithActor(r.Context(), a)))
	}))
	f.t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(f.t.Context())
	f.t.Cleanup(cancel)
	only := "null"
	if rollout != "" {
		only = fmt.Sprintf("%q", rollout)
	}
	variables := fmt.Sprintf(`{"rollout":%s}`, only)
	if after != "" {
		variables = fmt.Sprintf(`{"after":%q,"rollout":%s}`, after, only)
	}
	body := `{"query":"subscription($after: String, $rollout: ID) { journal(after: $after, rollout: $rollout) { cursor rollout { id } transition { subject event } } }","variables":` + variables + `}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	if f.seen != "" {
		r.Header.Set("Lockstep-Position", f.seen)
	}
	response, err := server.Client().Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = response.Body.Close() })
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" || response.StatusCode != http.StatusOK {
		f.t.Fatalf("answered %d %s", response.StatusCode, got)
	}
	return &following{t: f.t, lines: bufio.NewScanner(response.Body), cancel: cancel}
}

// next waits for an event; heartbeats are skipped.
func (c *following) next() (e sent) {
	c.t.Helper()
	for c.lines.Scan() {
		switch line := c.lines.Text(); {
		case line == "" && e.name != "":
			return e
		case strings.HasPrefix(line, "id: "):
			e.id = line[4:]
		case strings.HasPrefix(line, "event: "):
			e.name = line[7:]
		case strings.HasPrefix(line, "data: "):
			e.data = line[6:]
		}
	}
	c.t.Fatalf("the stream ended: %v", c.lines.Err())
	return e
}

// words are the verbs of the next n rows, with the last row's cursor.
func (c *following) words(n int) (words []string, cursor string) {
	c.t.Helper()
	for range n {
		e := c.next()
		var data struct {
			Data struct {
				Journal struct {
					Cursor     string
					Transition struct{ Event string }
				}
			}
		}
		if err := json.Unmarshal([]byte(e.data), &data); err != nil || e.name != "next" || e.id == "" || e.id != data.Data.Journal.Cursor {
			c.t.Fatalf("event %+v, %v; want a row with its cursor as the id", e, err)
		}
		words, cursor = append(words, data.Data.Journal.Transition.Event), e.id
	}
	return words, cursor
}

// settled asks where the journal ends, which waits for every transaction of the server: on a busy machine those of other tests, which make
// databases for themselves, may be longer than one question waits.
func (f *fixture) settled(query string) answer {
	f.t.Helper()
	for tries := 1; ; tries++ {
		a := f.ask(ours, query, nil)
		if tries == 12 || len(a.Errors) == 0 || a.Errors[0].Extensions.Code != fault.Describe(fault.Unavailable).GraphQL {
			return a
		}
	}
}

func TestTheJournalIsFollowedFromWhereverOneWas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story()
	var data struct {
		Journal struct {
			Nodes []struct{ Transition struct{ Event string } }
		}
		JournalCursor string
	}
	f.settled(`{ journal(first: 100) { nodes { transition { event } } } journalCursor }`).into(t, &data)
	var all []string
	for _, n := range data.Journal.Nodes {
		all = append(all, n.Transition.Event)
	}
	if len(all) < 12 {
		t.Fatalf("the journal has %q", all)
	}
	whole := f.follow(ours, core.CursorOf(0), "")
	words, cursor := whole.words(5)
	if !slices.Equal(words, all[:5]) {
		t.Errorf("the first five are %q, want %q", words, all[:5])
	}
	whole.cancel()
	// As after a restart of the server: another stream, of another handler, that knows nothing but the cursor. What the
	// client has seen last counts before what it asked for at first.
	again := f.follow(ours, core.CursorOf(0), cursor)
	if words, _ = again.words(len(all) - 5); !slices.Equal(words, all[5:]) {
		t.Errorf("the rest are %q, want %q", words, all[5:])
	}
	// And on from there, as things happen; a second one begins at the cursor that came with the first page.
	fresh := f.follow(ours, data.JournalCursor, "")
	must(f.rollouts.PauseRollout(t.Context(), actor(ours), 2, "wait"))(t)
	for _, c := range []*following{again, fresh} {
		if words, _ := c.words(1); words[0] != "pause" {
			t.Errorf("then came %q, want the pause", words)
		}
	}
}

func TestAStreamShowsOneOrganizationAndWantsPermission(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story()
	other := f.follow(theirs, core.CursorOf(0), "")
	a := f.application(theirs, "theirs", "api")
	f.pipeline(theirs, a, f.environment(theirs, "qa", core.TierQA))
	f.rollout(theirs, a)
	if words, _ := other.words(4); !slices.Equal(words, []string{"create", "plan", "create", "create"}) {
		t.Errorf("the other organization saw %q, want its own four", words)
	}
	broken := f.follow(ours, "not-a-cursor!", "")
	if e := broken.next(); !strings.Contains(e.data, `"INVALID"`) {
		t.Errorf("a malformed cursor: %+v", e)
	}
	if e := broken.next(); e.name != "complete" {
		t.Errorf("after the error: %+v", e)
	}
	f.as = 0
	if e := f.follow(ours, core.CursorOf(0), "").next(); e.name != "complete" {
		t.Errorf("a caller who may not read gets %+v", e)
	}
}

func TestNoRowIsSkippedThatCommitsLate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story()
	var data struct{ JournalCursor string }
	f.settled(`{ journalCursor }`).into(t, &data)
	c := f.follow(ours, data.JournalCursor, "")
	// A transaction takes a position and does not commit; a later one commits first.
	late, err := f.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	row := `INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, principal_type, reason) VALUES (1, 2, 'in_progress', 'in_progress', 'pause', 'user', 'late')`
	if _, err := late.Exec(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	must(f.rollouts.PauseRollout(t.Context(), actor(ours), 2, "early"))(t)
	must(f.rollouts.ResumeRollout(t.Context(), actor(ours), 2, ""))(t)
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if words, _ := c.words(3); !slices.Equal(words, []string{"pause", "pause", "resume"}) {
		t.Errorf("received %q, want the late one first: nothing is skipped", words)
	}
}

func TestOneRolloutIsFollowedByItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story()
	var data struct {
		Rollout struct {
			Journal struct{ Nodes []struct{ Event string } }
		}
	}
	f.ask(ours, `{ rollout(id: "rollout_2") { journal(first: 100) { nodes { event } } } }`, nil).into(t, &data)
	var all []string
	for _, n := range data.Rollout.Journal.Nodes {
		all = append(all, n.Event)
	}
	if words, _ := f.followRollout(ours, core.CursorOf(0), "", "rollout_2").words(len(all)); !slices.Equal(words, all) {
		t.Errorf("followed %q, want its own journal: %q", words, all)
	}
	// It continues where it was, by cursor, and what happens to others is not even read: that would be a query of its own.
	_, half := f.followRollout(ours, core.CursorOf(0), "", "rollout_2").words(len(all) / 2)
	must(f.rollouts.PauseRollout(t.Context(), actor(ours), 2, "more"))(t)
	c, before := f.followRollout(ours, core.CursorOf(0), half, "rollout_2"), f.queries.of("JournalBetween")
	if words, _ := c.words(len(all) - len(all)/2 + 1); !slices.Equal(words, append(slices.Clone(all[len(all)/2:]), "pause")) {
		t.Errorf("continued with %q, want the rest of %q and a pause", words, all)
	}
	if read := f.queries.of("JournalBetween") - before; read > 0 {
		t.Errorf("the journal of the organization was read %d times", read)
	}
	for organization, rollout := range map[int64]string{ours: "rollout_99999", theirs: "rollout_2"} {
		if e := f.followRollout(organization, core.CursorOf(0), "", rollout).next(); !strings.Contains(e.data, `"NOT_FOUND"`) {
			t.Errorf("%s for organization %d: received %+v, want NOT_FOUND", rollout, organization, e)
		}
	}
}

// TestAMemberHasAsManySubscriptionsAsAllowed, and others have theirs; one that has ended counts no more.
func TestAMemberHasAsManySubscriptionsAsAllowed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	streams := transport.NewStreams(2)
	f.handler = graph.NewHandler(graph.Deps{Domain: f.domain(), Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Streams: streams})
	f.story()
	first, second := f.follow(ours, "", ""), f.follow(ours, "", "")
	f.follow(theirs, "", "")
	refused := func() (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/graphql",
			strings.NewReader(`{"query":"subscription{journal{cursor}}"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "text/event-stream")
		response, body := f.serve(ours, r)
		return response.StatusCode, response.Header.Get("Retry-After") + string(body)
	}
	if status, body := refused(); status != http.StatusTooManyRequests || !strings.Contains(body, "found 2 open subscriptions") ||
		!strings.HasPrefix(body, "60") {
		t.Errorf("a third one is answered %d %s", status, body)
	}
	if n := testutil.CollectAndCount(streams); n != 2 {
		t.Errorf("%d metrics, want 2", n)
	}
	want := "# HELP lockstep_subscriptions Open GraphQL subscriptions.\n# TYPE lockstep_subscriptions gauge\nlockstep_subscriptions 3\n"
	if err := testutil.CollectAndCompare(streams, strings.NewReader(want), "lockstep_subscriptions"); err != nil {
		t.Error(err)
	}
	first.cancel()
	for first.lines.Scan() { // to its end
	}
	two := strings.Replace(want, " 3\n", " 2\n", 1)
	wait.For(t, "the subscription that ended does not count", func() bool {
		return testutil.CollectAndCompare(streams, strings.NewReader(two), "lockstep_subscriptions") == nil
	})
	f.follow(ours, "", "")
	second.cancel()
}

// positions are those of a database that advances with each question.
type positions struct{ asked atomic.Int64 }

func (*positions) Begin(ctx context.Context, _ string) (context.Context, error) { return ctx, nil }

func (p *positions) Position(context.Context) (string, error) {
	return fmt.Sprintf("0/%X", p.asked.Add(1)), nil
}

// Requirement D65: a client that reads after an event, from a standby, finds what the event is about.
func TestAnEventHasItsPositionForThoseWhoAsk(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	known := &positions{}
	f.handler = graph.NewHandler(graph.Deps{Domain: f.domain(), Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Reads: known})
	f.story()
	if e := f.follow(ours, core.CursorOf(0), "").next(); strings.Contains(e.data, "position") || known.asked.Load() > 0 {
		t.Errorf("a client that does not ask: received %s after %d questions, expected no position", e.data, known.asked.Load())
	}
	f.seen = "now"
	c := f.follow(ours, core.CursorOf(0), "")
	for _, want := range []string{`"extensions":{"position":"0/1"}`, `"extensions":{"position":"0/2"}`} {
		if e := c.next(); !strings.Contains(e.data, want) {
			t.Errorf("received %s, expected %s", e.data, want)
		}
	}
}
