package core

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/source"
)

const someDigest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// queue is a HintQueue with one hint in memory.
type queue struct {
	mu      sync.Mutex
	hint    *Hint
	due     *time.Time
	settled []Artifact
	reasons []string
	// dropped and published are the arguments of Drop and Publish.
	dropped   []Refusal
	published []Artifact
}

func (q *queue) Claim(_ context.Context, now, until time.Time, _ int) ([]Hint, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hint == nil || q.due == nil || q.due.After(now) {
		return nil, nil
	}
	q.hint.Attempts++
	q.due = &until
	return []Hint{*q.hint}, nil
}

func (q *queue) Settle(_ context.Context, _ Hint, a Artifact) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settled, q.hint = append(q.settled, a), nil
	return nil
}

func (q *queue) Later(_ context.Context, _ Hint, reason string, at *time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reasons, q.due = append(q.reasons, reason), at
	return nil
}

func (q *queue) Drop(_ context.Context, _ Hint, why Refusal) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped, q.hint = append(q.dropped, why), nil
	return nil
}

func (q *queue) Publish(_ context.Context, _ Hint, a Artifact) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.published = append(q.published, a)
	return nil
}

func (q *queue) Forget(context.Context, time.Time, time.Time) error { return nil }

// answers are a registry's responses, one after the other; the last one repeats.
type answers []error

func (a *answers) Digest(context.Context, int64, string, string, string) (string, error) {
	err := (*a)[0]
	if len(*a) > 1 {
		*a = (*a)[1:]
	}
	if err != nil {
		return "", err
	}
	return someDigest, nil
}

// Access is granted for the registry of r.example.com only.
func (a *answers) Access(_ int64, image string) bool {
	return strings.HasPrefix(image, "r.example.com/")
}

func waiting(at time.Time) *queue {
	return &queue{due: &at, hint: &Hint{
		ID: "1", Hook: "h",
		Notification: Notification{Source: "/hooks/h", Image: "r.example.com/a", Tag: "1"},
	}}
}

// askedAt runs a resolver until it is idle, and returns the times of its queries.
func askedAt(t *testing.T, q *queue, a answers, attempts int) []time.Duration {
	t.Helper()
	start := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	q.due = &start
	c := clocktest.New(start)
	r := NewResolver(ResolverDeps{Queue: q, Registries: &a, Clock: c, Log: slog.New(slog.DiscardHandler), Attempts: attempts})
	var asked []time.Duration
	for q.hint != nil && q.due != nil {
		if wait := q.due.Sub(c.Now()); wait > 0 {
			c.Advance(wait)
		}
		asked = append(asked, c.Now().Sub(start))
		if _, err := r.round(t.Context(), c.Now()); err != nil {
			t.Fatal(err)
		}
	}
	return asked
}

func TestARegistryIsQueriedUntilItAnswers(t *testing.T) {
	t.Parallel()
	q := waiting(time.Time{})
	away := fault.New(fault.Unavailable, "away")
	asked := askedAt(t, q, answers{away, fault.New(fault.NotFound, "not yet"), errors.New("odd"), nil}, 0)
	if len(asked) != 4 || !slices.IsSorted(asked) || asked[1] < 700*time.Millisecond || asked[3] > 8*time.Second {
		t.Errorf("asked after %v", asked)
	}
	if len(q.settled) != 1 || q.settled[0].Digest != someDigest || q.settled[0].ID != Identify("/hooks/h", "r.example.com/a:1@"+someDigest) {
		t.Errorf("settled %+v", q.settled)
	}
	if want := []string{"away", "not yet", "odd"}; !slices.Equal(q.reasons, want) {
		t.Errorf("reasons are %q", q.reasons)
	}
}

func TestAHintIsGivenUp(t *testing.T) {
	t.Parallel()
	q := waiting(time.Time{})
	if asked := askedAt(t, q, answers{fault.New(fault.NotFound, "gone")}, 5); len(asked) != 5 || q.due != nil || q.hint == nil {
		t.Errorf("asked %d times, and then due at %v", len(asked), q.due)
	}
	q = waiting(time.Time{})
	if asked := askedAt(t, q, answers{fault.New(fault.Invalid, "no image")}, 5); len(asked) != 1 || q.hint == nil {
		t.Errorf("what can never be was queried %d times", len(asked))
	}
}

func TestPausesGrowAndDiffer(t *testing.T) {
	t.Parallel()
	last := time.Duration(0)
	for n := range 40 {
		p := Pause("a", n)
		if p < last || p > longestPause || p < firstPause/2 {
			t.Errorf("after %d attempts: %s, before that %s", n, p, last)
		}
		last = p
	}
	seen := map[time.Duration]bool{}
	for _, id := range strings.Split("one two three four five six seven eight", " ") {
		seen[Pause(id, 30)] = true
	}
	if len(seen) < 5 {
		t.Errorf("eight hints pause %d ways", len(seen))
	}
	total := time.Duration(0)
	for n := range DefaultAttempts {
		total += Pause("a", n)
	}
	if total < 30*time.Hour {
		t.Errorf("a registry may be away for %s", total)
	}
}

// TestAHintThatEndsTheProcessIsGivenUp: an attempt counts before it is made, so that a hint which kills every process is not tried more
// often than others.
func TestAHintThatEndsTheProcessIsGivenUp(t *testing.T) {
	t.Parallel()
	q := waiting(time.Time{})
	start := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	q.due = &start
	c := clocktest.New(start)
	asked := 0
	for range 5 { // processes that die of it, one after the other
		r := NewResolver(ResolverDeps{Queue: q, Registries: deadly{&asked}, Clock: c, Log: slog.New(slog.DiscardHandler), Attempts: 3})
		func() {
			defer func() { _ = recover() }()
			hints, err := q.Claim(t.Context(), c.Now(), c.Now().Add(lease), perRound)
			if err != nil || len(hints) == 0 {
				return
			}
			if err := r.ask(t.Context(), hints[0]); err != nil {
				t.Error(err)
			}
		}()
		c.Advance(lease)
	}
	if asked != 3 || q.due != nil || q.hint == nil || len(q.reasons) != 1 || !strings.Contains(q.reasons[0], "no process") {
		t.Errorf("asked %d times, due %v, reasons %q", asked, q.due, q.reasons)
	}
}

// deadly ends the calling process.
type deadly struct{ asked *int }

func (d deadly) Access(int64, string) bool { return true }

func (d deadly) Digest(context.Context, int64, string, string, string) (string, error) {
	*d.asked++
	panic("the process ends")
}

type taken struct {
	artifacts []Artifact
	hints     []Hint
	refusals  []Refusal
	// old is the result of Superseded.
	old []string
}

func (s *taken) Take(_ context.Context, _ string, artifacts []Artifact, hints []Hint, refusals []Refusal) error {
	s.artifacts, s.hints, s.refusals = append(s.artifacts, artifacts...), append(s.hints, hints...), append(s.refusals, refusals...)
	return nil
}

func (s *taken) Superseded(context.Context, []Artifact) ([]string, error) { return s.old, nil }

// TestAReportFromBeforeATagMovedIsVerified: only the registry knows whether the tag moved back or an old delivery is replayed (D43).
func TestAReportFromBeforeATagMovedIsVerified(t *testing.T) {
	t.Parallel()
	reported := []Notification{
		{Image: "r.example.com/a", Tag: "1", Digest: someDigest},
		{Image: "r.example.com/b", Tag: "1", Digest: someDigest},
	}
	s := &taken{old: []string{Identify("/hooks/h", "r.example.com/a:1@"+someDigest)}}
	receipt, err := NewHookIntake(NewIntake(nil, nil, naming(), clock.System()), s, nil).Accept(t.Context(), Hook{Name: "h"}, reported, nil)
	if err != nil || receipt.Resolving != 1 || len(receipt.Events) != 1 || len(s.hints) != 1 || len(s.artifacts) != 1 {
		t.Fatalf("%+v, %v; stored %+v and %+v", receipt, err, s.artifacts, s.hints)
	}
	if h := s.hints[0]; h.Notification.Image != "r.example.com/a" || h.Notification.Tag != "1" ||
		h.ID != Identify("/hooks/h", "r.example.com/a:1") {
		t.Errorf("the hint is %+v", h)
	}
	// Only senders without identifiers have a line; otherwise the identifier shows what is the same.
	for _, tt := range []struct {
		n    Notification
		line bool
	}{
		{Notification{Source: "/s", Image: "r.example.com/a", Tag: "1", Digest: someDigest}, true},
		{Notification{Source: "/s", Image: "git:git.example.com/shop/a#main", Digest: "9d8ecd27c1b5bd0b0c4b18ad0b2b5a8e2a2b6b5f"}, true},
		{Notification{Source: "/s", Image: "r.example.com/a", Digest: someDigest}, false},
		{Notification{Source: "/s", ID: "4711", Image: "r.example.com/a", Tag: "1", Digest: someDigest}, false},
	} {
		a, problems := Check(identified(tt.n))
		if len(problems) > 0 || (a.Line != "") != tt.line {
			t.Errorf("%+v has line %q, %v", tt.n, a.Line, problems)
		}
		if b := a.After("x"); b.ID == a.ID || b != a.After("x") || b == a.After("y") {
			t.Errorf("%+v comes after x as %+v", a, b)
		}
	}
}

func TestHookIntake(t *testing.T) {
	t.Parallel()
	named := Names{Image: "image", Tag: "tag", Digest: "digest"}
	for name, tt := range map[string]struct {
		hook      Hook
		in        Notification
		image     string
		resolving bool
		field     string
	}{
		"with digest": {in: Notification{Image: "r.example.com/a", Digest: someDigest, Names: named}, image: "r.example.com/a"},
		"without":     {in: Notification{Image: "r.example.com/a", Tag: "1"}, image: "r.example.com/a", resolving: true},
		"to be verified": {
			hook: Hook{Verify: true}, in: Notification{Image: "r.example.com/a", Digest: someDigest},
			image: "r.example.com/a", resolving: true,
		},
		"another host": {
			hook: Hook{Host: "proxy:5000"}, in: Notification{Image: "r.example.com/a", Digest: someDigest},
			image: "proxy:5000/a",
		},
		"a host and path": {
			hook: Hook{Host: "art.example.com/virtual"},
			in:   Notification{Place: "art.example.com/local", Image: "a/b", Digest: someDigest}, image: "art.example.com/virtual/a/b",
		},
		"a place": {
			in:    Notification{Place: "art.example.com/local", Image: "a/b", Digest: someDigest},
			image: "art.example.com/local/a/b",
		},
		"no host":            {in: Notification{Image: "shop/api", Digest: someDigest}, field: "image"},
		"no host, no digest": {in: Notification{Image: "shop/api", Tag: "1"}, field: "image"},
		"neither":            {in: Notification{Image: "r.example.com/a"}, field: "tag"},
		"a wrong digest":     {hook: Hook{Verify: true}, in: Notification{Image: "r.example.com/a", Digest: "sha256:1"}, field: "digest"},
		"no image":           {in: Notification{Tag: "1"}, field: "image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &taken{}
			tt.hook.Name = "h"
			receipt, err := NewHookIntake(NewIntake(nil, nil, naming(), clock.System()), s, nil).Accept(t.Context(), tt.hook,
				[]Notification{tt.in}, nil)
			if tt.field != "" {
				if err != nil || len(receipt.Refused) != 1 || receipt.Refused[0].Fields[0].Name != tt.field || len(s.artifacts)+len(s.hints) != 0 ||
					len(s.refusals) != 1 {
					t.Errorf("%+v, %v; stored %+v; want a refusal about %s", receipt, err, s, tt.field)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.resolving {
				if receipt.Resolving != 1 || s.hints[0].Notification.Image != tt.image || s.hints[0].Hook != "h" {
					t.Errorf("%+v, %+v", receipt, s.hints)
				}
				return
			}
			if len(receipt.Events) != 1 || s.artifacts[0].Image != tt.image || s.artifacts[0].ID != receipt.Events[0] {
				t.Errorf("%+v, %+v", receipt, s.artifacts)
			}
		})
	}
	many := make([]Notification, maxArtifacts+1)
	for i := range many {
		many[i] = Notification{ID: strconv.Itoa(i), Image: "r.example.com/a", Digest: someDigest}
	}
	s := &taken{}
	receipt, err := NewHookIntake(NewIntake(nil, nil, naming(), clock.System()), s, nil).Accept(t.Context(), Hook{Name: "h"}, many, nil)
	if err != nil || len(receipt.Events) != maxArtifacts || len(s.refusals) != 1 ||
		!strings.Contains(s.refusals[0].Reason, "found 501 artifacts") {
		t.Errorf("more than any vendor sends: %d events, refused %+v, %v", len(receipt.Events), s.refusals, err)
	}
}

// naming returns the canonical names of sources.
func naming() Naming { return Naming{Host: source.NormalizeHost, Image: source.NormalizeImage} }

// TestADeletionIsConfirmedByTheRegistry: only an answer that it does not exist confirms a deletion, and only one that it does refutes it.
func TestADeletionIsConfirmedByTheRegistry(t *testing.T) {
	t.Parallel()
	const other = "sha256:1b4f0e9851971998e732078544c96b36c3d01cedf7caa332359d6f1d83567014"
	away := errors.New("status 500")
	missing := fault.New(fault.NotFound, "no such manifest")
	tests := []struct {
		name     string
		digest   string
		answers  answers
		attempts int
		settled  bool
		dropped  bool
		asked    int
	}{
		{name: "not there", answers: answers{missing}, settled: true, asked: 1},
		{name: "not there any more", answers: answers{nil, nil, missing}, settled: true, asked: 3},
		{name: "still there", answers: answers{nil}, dropped: true, asked: deletionQueries},
		{name: "still there under that digest", digest: someDigest, answers: answers{nil}, dropped: true, asked: deletionQueries},
		{name: "the tag names another digest", digest: other, answers: answers{nil}, settled: true, asked: 1},
		{name: "another kind of artifact", answers: answers{OtherKind{"a Helm chart"}}, dropped: true, asked: deletionQueries},
		{name: "a registry that is away says nothing", answers: answers{away, away, away, missing}, settled: true, asked: 4},
		{name: "a registry that stays away says nothing", answers: answers{away}, attempts: 20, asked: 20},
		{name: "what can never be asked says nothing", answers: answers{fault.New(fault.Invalid, "no registry")}, asked: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := waiting(time.Time{})
			q.hint.Notification.Deleted, q.hint.Notification.Digest = true, tt.digest
			if got := len(askedAt(t, q, tt.answers, tt.attempts)); got != tt.asked {
				t.Errorf("asked %d times, want %d: %q", got, tt.asked, q.reasons)
			}
			if settled := len(q.settled) == 1 && q.settled[0].Deleted && q.settled[0].Digest == tt.digest &&
				q.settled[0].Seen == SeenUnknown; settled != tt.settled {
				t.Errorf("settled as %+v, want a deletion: %v", q.settled, tt.settled)
			}
			if dropped := len(q.dropped) == 1; dropped != tt.dropped || len(q.published) > 0 {
				t.Errorf("dropped %+v, published %+v; want dropped: %v", q.dropped, q.published, tt.dropped)
			}
		})
	}
}
