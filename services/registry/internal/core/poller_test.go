package core

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// shelf is a queue with one source.
type shelf struct {
	mu       sync.Mutex
	source   Source
	due      *time.Time
	outcomes []Outcome
	put      []time.Time
}

func (s *shelf) ClaimSources(_ context.Context, now, _ time.Time, _ int) ([]Source, error) {
	if s.due == nil || now.Before(*s.due) {
		return nil, nil
	}
	return []Source{s.source}, nil
}

func (s *shelf) TakeSource(_ context.Context, organization, id int64, _ time.Time) (Source, error) {
	if organization != s.source.Organization || id != s.source.ID {
		return Source{}, fault.New(fault.NotFound, "no source %d", id)
	}
	return s.source, nil
}

func (s *shelf) Postpone(_ context.Context, _ Source, until time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = &until
	s.put = append(s.put, until)
	return nil
}

func (s *shelf) SaveOutcome(_ context.Context, _ Source, o Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes = append(s.outcomes, o)
	s.due, s.source.Failures, s.source.Memory = o.Next, o.Failures, o.Memory
	return nil
}

// findings are a finder's results; the last one repeats.
type findings []func() (Finding, error)

func (s *findings) Find(context.Context, Source) (Finding, error) {
	f := (*s)[0]
	if len(*s) > 1 {
		*s = (*s)[1:]
	}
	return f()
}

func sees(tag string) func() (Finding, error) {
	return func() (Finding, error) {
		return Finding{Found: &Notification{Image: "r.example.com/a", Tag: tag, Digest: someDigest}, Memory: []byte(tag)}, nil
	}
}

func failsWith(err error) func() (Finding, error) {
	return func() (Finding, error) { return Finding{Memory: []byte("lost")}, err }
}

func stage(c *clocktest.Clock, interval time.Duration, answers ...func() (Finding, error)) (*Poller, *shelf) {
	s := &shelf{source: Source{ID: 7, Organization: 3, Ref: "test@1", Interval: interval, Place: "r.example.com"}}
	now := c.Now()
	s.due = &now
	all := findings(answers)
	return NewPoller(PollerDeps{
		Queue: s, Finders: map[string]Finder{"test@1": &all}, Clock: c, Log: slog.New(slog.DiscardHandler),
		Pace:    func(string, time.Time) time.Duration { return 0 },
		AskedOf: func(int64, int64, time.Time) time.Duration { return 0 },
		AskedAt: func(int64, string, time.Time) time.Duration { return 0 },
	}), s
}

// settled plays a round, and waits for its polls.
func settled(t *testing.T, p *Poller, at time.Time) (int, error) {
	t.Helper()
	n, err := p.round(t.Context(), at)
	p.polls.Wait()
	return n, err
}

func TestASourceIsPolledAtItsInterval(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	c := clocktest.New(start)
	away := fault.New(fault.Unavailable, "away")
	p, s := stage(c, 10*time.Minute, sees("1"), failsWith(away), failsWith(away), failsWith(away), sees("2"))
	var waits []time.Duration
	for range 5 {
		c.Advance(s.due.Sub(c.Now()))
		at := c.Now()
		if _, err := settled(t, p, at); err != nil {
			t.Fatal(err)
		}
		waits = append(waits, s.due.Sub(at))
	}
	for i, most := range []time.Duration{10, 20, 40, 60, 10} {
		if most *= time.Minute; waits[i] > most || waits[i] < most*3/4 {
			t.Errorf("look %d: the next after %s; want up to a quarter less than %s", i, waits[i], most)
		}
	}
	first, failed, last := s.outcomes[0], s.outcomes[3], s.outcomes[4]
	if first.Artifact == nil || first.Artifact.Organization != 3 || first.Artifact.Tag != "1" || first.Artifact.ID == last.Artifact.ID {
		t.Errorf("found %+v", first.Artifact)
	}
	// A failure keeps the memory, or the next poll would find known artifacts new.
	if failed.Problem != "away" || failed.Failures != 3 || string(failed.Memory) != "1" || last.Failures != 0 || string(last.Memory) != "2" {
		t.Errorf("outcomes %+v, %+v", failed, last)
	}
}

func TestARateLimitedServerSetsTheNextPoll(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	c := clocktest.New(start)
	p, s := stage(c, time.Minute, failsWith(Later{At: start.Add(time.Hour), Err: errors.New("slow down")}),
		failsWith(Later{At: start, Err: errors.New("slow down")}))
	for _, want := range []time.Duration{time.Hour, 0} {
		if _, err := settled(t, p, c.Now()); err != nil {
			t.Fatal(err)
		}
		if got := s.due.Sub(start); want != 0 && got != want {
			t.Errorf("next after %s, want %s", got, want)
		} else if want == 0 && got < time.Hour+time.Minute {
			t.Errorf("an instant that is past counts: next after %s", got)
		}
		c.Advance(time.Hour)
	}
}

func TestPollsOfAHostAreLimited(t *testing.T) {
	t.Parallel()
	c := clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC))
	p, s := stage(c, time.Minute, sees("1"))
	p.d.Pace = func(place string, _ time.Time) time.Duration {
		if place != "r.example.com" {
			t.Errorf("polled %q", place)
		}
		return 5 * time.Second
	}
	if n, err := settled(t, p, c.Now()); n != 1 || err != nil || len(s.outcomes) != 0 || len(s.put) != 1 ||
		!s.put[0].Equal(c.Now().Add(5*time.Second)) {
		t.Errorf("%d looks, %v, put back until %v", len(s.outcomes), err, s.put)
	}
	asked := p.d.Pace
	p.d.Pace = func(string, time.Time) time.Duration { t.Error("asked for a second turn"); return 0 }
	c.Advance(5 * time.Second)
	if _, err := settled(t, p, c.Now()); err != nil || len(s.outcomes) != 1 {
		t.Errorf("%d polls in its turn, %v", len(s.outcomes), err)
	}
	p.d.Pace = asked
	// A poll on demand does not wait.
	if o, err := p.PollNow(t.Context(), 3, 7); err != nil || o.Artifact == nil {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := p.PollNow(t.Context(), 4, 7); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization's source: %v", err)
	}
}

// TestTurnsOfRemovedSourcesAreDropped: a source that is removed while it waits for its turn leaves nothing behind.
func TestTurnsOfRemovedSourcesAreDropped(t *testing.T) {
	t.Parallel()
	c := clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC))
	p, s := stage(c, time.Minute, sees("1"))
	p.d.Pace = func(string, time.Time) time.Duration { return time.Minute }
	for id := range int64(1000) {
		s.source.ID = id
		now := c.Now()
		s.due = &now
		if _, err := settled(t, p, now); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.turns) != 1000 {
		t.Fatalf("%d sources wait", len(p.turns))
	}
	s.due = nil // all are removed
	c.Advance(time.Minute)
	if _, err := settled(t, p, c.Now()); err != nil || len(p.turns) != 1000 {
		t.Fatalf("%d turns when they come, %v", len(p.turns), err)
	}
	c.Advance(2 * pollLease)
	if _, err := settled(t, p, c.Now()); err != nil || len(p.turns) != 0 {
		t.Errorf("%d turns are left, %v", len(p.turns), err)
	}
}

// TestPollsOnDemandAreLimited: above the limit the call is refused, and the source keeps its schedule.
func TestPollsOnDemandAreLimited(t *testing.T) {
	t.Parallel()
	c := clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC))
	p, s := stage(c, time.Minute, sees("1"))
	p.d.AskedAt = func(organization int64, place string, _ time.Time) time.Duration {
		if organization != 3 || place != "r.example.com" {
			t.Errorf("polled %q of %d", place, organization)
		}
		return 4 * time.Second
	}
	if _, err := p.Try(t.Context(), s.source); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "r.example.com") {
		t.Errorf("a try: %v", err)
	}
	if _, err := p.PollNow(t.Context(), 3, 7); !fault.Is(err, fault.Refused) || len(s.put) != 1 ||
		!s.put[0].Equal(c.Now().Add(4*time.Second)) {
		t.Errorf("a look: %v, put back until %v", err, s.put)
	}
	p.d.AskedOf = func(organization, source int64, _ time.Time) time.Duration {
		if organization != 3 || source != 7 {
			t.Errorf("polled %d of %d", source, organization)
		}
		return time.Second
	}
	if _, err := p.PollNow(t.Context(), 3, 7); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "source 7") || len(s.put) != 1 {
		t.Errorf("a look at one source again and again: %v", err)
	}
	if len(s.outcomes) != 0 {
		t.Errorf("%d looks", len(s.outcomes))
	}
}

func TestFindingsAreChecked(t *testing.T) {
	t.Parallel()
	c := clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC))
	sha := "9d8ecd27c1b5bd0b0c4b18ad0b2b5a8e2a2b6b5f"
	for _, tt := range []struct {
		found Notification
		good  bool
	}{
		{Notification{Image: "git:git.example.com/shop/config#release/2", Digest: sha}, true},
		{Notification{Image: "git:git.example.com/shop/config#main?0123456789ab", Digest: sha, Tag: "v1"}, true},
		{Notification{Image: "git:git.example.com/shop/config", Digest: sha}, false},
		{Notification{Image: "git:git.example.com/shop/config#main", Digest: someDigest}, false},
		{Notification{Image: "r.example.com/a", Digest: sha}, false},
	} {
		p, s := stage(c, time.Minute, func() (Finding, error) { return Finding{Found: &tt.found}, nil })
		if _, err := settled(t, p, c.Now()); err != nil {
			t.Fatal(err)
		}
		if o := s.outcomes[0]; (o.Artifact != nil) != tt.good || (o.Problem == "") != tt.good {
			t.Errorf("%+v: %+v", tt.found, o)
		}
	}
	p, s := stage(c, 0, sees("1"))
	s.source.Ref = "unknown@1"
	if _, err := settled(t, p, c.Now()); err != nil || s.outcomes[0].Problem == "" {
		t.Errorf("a kind that nobody knows: %+v, %v", s.outcomes, err)
	}
}

// crowd is a queue with many sources that are all due, in turn.
type crowd struct {
	shelf
	due []Source
}

func (c *crowd) ClaimSources(_ context.Context, _, _ time.Time, most int) ([]Source, error) {
	taken := c.due[:min(most, len(c.due))]
	c.due = c.due[len(taken):]
	return taken, nil
}

// hangs is a finder whose servers answer when the test says so, but for those of the healthy host.
type hangs struct {
	healthy  string
	answer   chan struct{}
	asked    chan string
	finished chan string
}

func (h hangs) Find(_ context.Context, s Source) (Finding, error) {
	h.asked <- s.Place
	if s.Place != h.healthy {
		<-h.answer
	}
	h.finished <- s.Place
	return Finding{}, nil
}

// R4-07: servers that do not answer, of one host or of all hosts of an organization, keep nobody else's sources from being polled.
func TestServersThatDoNotAnswerHoldUpNobody(t *testing.T) {
	t.Parallel()
	c := clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC))
	p, _ := stage(c, time.Minute)
	h := hangs{healthy: "well.example.com", answer: make(chan struct{}), asked: make(chan string, 100), finished: make(chan string, 100)}
	queue := &crowd{}
	p.d.Queue, p.d.Finders = queue, map[string]Finder{"test@1": h}
	round := func() {
		t.Helper()
		if _, err := p.round(t.Context(), c.Now()); err != nil {
			t.Fatal(err)
		}
	}
	made := int64(0)
	of := func(organization int64, place string, n int) {
		for range n {
			made++
			queue.due = append(queue.due, Source{ID: made, Organization: organization, Ref: "test@1", Place: place})
		}
	}
	of(1, "hangs.example.com", 20)
	round()
	for range pollsOfPlace {
		<-h.asked
	}
	c.Advance(slowAfter)
	of(1, "other.example.com", 4) // of an organization whose polls last
	of(2, "hangs.example.com", 4) // of a host that has as many as it may
	of(2, h.healthy, 1)
	round()
	if at := <-h.finished; at != h.healthy {
		t.Errorf("found an answer of %q first", at)
	}
	close(h.answer)
	p.polls.Wait()
	if len(p.running) != 0 {
		t.Errorf("found %v running", p.running)
	}
	if len(queue.outcomes) != pollsOfPlace+1 || len(queue.put) != 4+4+4 {
		t.Errorf("found %d polls, %d put back; want %d, 12", len(queue.outcomes), len(queue.put), pollsOfPlace+1)
	}
	of(1, "other.example.com", 1)
	round()
	p.polls.Wait()
	if len(queue.outcomes) != pollsOfPlace+2 {
		t.Errorf("found %d polls; want that the organization's sources are polled again", len(queue.outcomes))
	}
}
