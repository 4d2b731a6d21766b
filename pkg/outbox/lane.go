package outbox

import (
	"context"
	"crypto/sha256"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// Lanes is how many lanes an outbox has: as many replicas of a service may send at once. The tables know the number, too.
const Lanes = 8

// longestRun is how much of a run's id says which lane it is in. The id of a child has no more of its parent's.
const longestRun = 150

var childOf = regexp.MustCompile(`^child:[1-9]:`)

// laneOf is the lane of an event: that of its organization and of the run that it is about, which its correlation names. A run, its
// children, and the run that ends it after a cancellation share a lane: what they report is about the same rows. The function
// outbox_lane_of of the database finds the same.
func laneOf(e event.Sealed) int16 {
	run := e.Correlation()
	run = run[len(childOf.FindString(run)):]
	run, _, _ = strings.Cut(run, "/")
	if len(run) > longestRun {
		if characters := []rune(run); len(characters) > longestRun {
			run = string(characters[:longestRun])
		}
	}
	sum := sha256.Sum256([]byte(e.Organization() + "/" + strings.TrimSuffix(run, "-cancelled")))
	return int16(sum[0] % Lanes)
}

// mine are the lanes that this sender has, and the place in each up to which nothing waits for its first publication.
func (s *Sender) mine() (lanes []int16, sent []int64) {
	lanes = slices.Sorted(maps.Keys(s.sent))
	sent = make([]int64, len(lanes))
	for i, lane := range lanes {
		sent[i] = s.sent[lane]
	}
	return lanes, sent
}

// countSenders says how many sessions are senders of a name (the lock of the query Join), and how many of them come before the session of a
// process of the database. sqlc does not know pg_locks.
const countSenders = `-- name: CountSenders :one
SELECT count(*)::integer, (count(*) FILTER (WHERE l.pid < $2::integer))::integer
FROM pg_locks l, (SELECT hashtextextended(current_schema() || '/outbox/' || $1::text, 0) AS key) AS k
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.classid = ((k.key >> 32) & 4294967295)::oid AND l.objid = (k.key & 4294967295)::oid`

// countLanes says how many sessions send lanes (the locks of the query TakeLanes), and how many lanes none sends.
const countLanes = `-- name: CountLanes :one
SELECT count(DISTINCT l.pid)::bigint, (count(*) FILTER (WHERE l.pid IS NULL))::bigint
FROM (SELECT hashtextextended(current_schema() || '/outbox/lane/' || lane, 0) AS key FROM outbox_lane) AS k
LEFT JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND l.classid = ((k.key >> 32) & 4294967295)::oid AND l.objid = (k.key & 4294967295)::oid`

// share takes the lanes that are this sender's, and leaves those that are another's. The senders share them evenly, in the order of their
// sessions: each finds the same without asking the others. One that has just left leaves its lanes to the others when they look again; a
// lane has one sender at a time, since it is locked.
func (s *Sender) share(ctx context.Context, own *session) error {
	var senders, before int32
	if err := s.Pool.QueryRow(ctx, countSenders, s.Name, own.process).Scan(&senders, &before); err != nil {
		return pg.Classify(err, "count the senders of the outbox")
	}
	s.alone = senders <= 1
	var take, leave []int16
	for lane := range int16(Lanes) {
		wanted := int32(lane)%max(senders, 1) == before
		_, has := s.sent[lane]
		switch {
		case wanted && !has:
			take = append(take, lane)
		case has && !wanted:
			leave = append(leave, lane)
			delete(s.sent, lane)
		}
	}
	if len(take)+len(leave) == 0 {
		return nil
	}
	var taken []int16
	err := own.use(ctx, func(ctx context.Context, q *query.Queries) (err error) {
		if len(leave) > 0 {
			if err := q.LeaveLanes(ctx, leave); err != nil {
				return err
			}
		}
		if len(take) > 0 {
			taken, err = q.TakeLanes(ctx, take)
		}
		return err
	})
	if err != nil {
		return pg.Classify(err, "share the lanes of the outbox")
	}
	for _, lane := range taken {
		s.sent[lane], s.overdue = 0, time.Time{}
	}
	if len(taken)+len(leave) > 0 {
		s.Log.InfoContext(ctx, "outbox lanes are shared anew", "taken", taken, "left", leave, "senders", senders)
	}
	return nil
}
