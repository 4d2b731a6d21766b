package store

import (
	"context"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/store/query"
)

// LastReport is the last event of a hook's deliveries.
type LastReport struct {
	Reference string
	At        time.Time
}

// Waiting is a hint that has not become an event. Attempts counts since its last report; Next is nil once it has been given up.
type Waiting struct {
	Reference string
	Heard     time.Time
	Attempts  int
	LastError string
	Next      *time.Time
}

// Refused is a part of a delivery that was left out.
type Refused struct {
	What, Reason string
	// Times is how often the same part was left out, First and Last when.
	Times       int64
	First, Last time.Time
}

// Refusals returns the last refusals of each sender that has any, the latest first.
func (s *Hooks) Refusals(ctx context.Context, senders []string) (map[string][]Refused, error) {
	rows, err := query.New(s.pool).Refusals(ctx, senders)
	if err != nil {
		return nil, pg.Classify(err, "read the refusals of %d senders", len(senders))
	}
	all := map[string][]Refused{}
	for _, r := range rows {
		all[r.Sender] = append(all[r.Sender], Refused{What: r.What, Reason: r.Reason, Times: r.Times, First: r.FirstAt, Last: r.LastAt})
	}
	return all, nil
}

// Status returns the last event and the hints of each hook that has any.
func (s *Hooks) Status(ctx context.Context, hooks []string) (map[string]LastReport, map[string][]Waiting, error) {
	q := query.New(s.pool)
	last, err := q.LastReported(ctx, hooks)
	if err != nil {
		return nil, nil, pg.Classify(err, "read the last events of %d hooks", len(hooks))
	}
	rows, err := q.Waiting(ctx, hooks)
	if err != nil {
		return nil, nil, pg.Classify(err, "read the hints of %d hooks", len(hooks))
	}
	reports, waiting := map[string]LastReport{}, map[string][]Waiting{}
	for _, l := range last {
		reports[l.Hook] = LastReport{Reference: l.Reference, At: l.ReportedAt}
	}
	for _, r := range rows {
		waiting[r.Hook] = append(waiting[r.Hook], Waiting{
			Reference: r.Reference, Heard: r.HeardAt, Attempts: int(r.Attempts), LastError: r.LastError, Next: r.NextAt,
		})
	}
	return reports, waiting, nil
}

// Reference formats what was published or deleted as people write it: image:tag@digest.
func Reference(a core.Artifact) string {
	if a.Deleted {
		return reference(a.Image, a.Tag, a.Digest) + deleted
	}
	return reference(a.Image, a.Tag, a.Digest)
}

// deleted ends the reference of what was deleted.
const deleted = " (deleted)"

// reference formats an image with its tag and digest as people write it.
func reference(image, tag, digest string) string {
	if tag != "" {
		image += ":" + tag
	}
	if digest != "" {
		image += "@" + digest
	}
	return image
}

// bounded returns a text that PostgreSQL accepts, UTF-8 without zero bytes, of bounded length. Responses of registries may be anything, and
// an error that cannot be stored would cause the same query at every lease.
func bounded(s string) string {
	const most = 1000
	if len(s) > most {
		s = s[:most] // a character that is cut here is corrected below
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
}
