package outbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// Lanes is how many lanes an outbox has: as many replicas of a service may send at once. The tables know the number, too.
const Lanes = 8

// longestRun is how much of a run's id says which lane it is in. The id of a child has no more of its parent's.
const longestRun = 150

// observed comes before the run in what standing reports carry in its place (id.Observer).
const observed = "observer/"

var childOf = regexp.MustCompile(`^child:[1-9]:`)

// laneOf is the lane of an event: that of its organization and of the run that it is about, which its correlation names. A run, its
// children, the run that ends it after a cancellation, and the standing reports that any of them has registered share a lane: what they
// report is about the same rows. The function outbox_lane_of of the database finds the same.
func laneOf(e event.Sealed) int16 {
	run := strings.TrimPrefix(e.Correlation(), observed)
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

// mine are the lanes that this sender has.
func (s *Sender) mine() []int16 { return slices.Sorted(maps.Keys(s.sent)) }

// drop forgets a lane that is another's from now on.
func (s *Sender) drop(lane int16) {
	delete(s.sent, lane)
	delete(s.refused, part{lane, false})
	delete(s.refused, part{lane, true})
}

// theSenders are the sessions that are senders of a name (the lock of the query Join), and the lanes that each has. sqlc does not know
// pg_locks.
const theSenders = `-- name: TheSenders :many
WITH locks AS (
    SELECT l.pid, (l.classid::bigint << 32) | l.objid::bigint AS key FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
)
SELECT member.pid, array(
    SELECT k.lane FROM outbox_lane k JOIN locks ON locks.key = hashtextextended(current_schema() || '/outbox/lane/' || k.lane, 0)
    WHERE locks.pid = member.pid
)
FROM locks AS member WHERE member.key = hashtextextended(current_schema() || '/outbox/' || $1::text, 0)
ORDER BY member.pid`

// countLanes says how many sessions send lanes (the locks of the query TakeLanes), and how many lanes none sends.
const countLanes = `-- name: CountLanes :one
SELECT count(DISTINCT l.pid)::bigint, (count(*) FILTER (WHERE l.pid IS NULL))::bigint
FROM (SELECT hashtextextended(current_schema() || '/outbox/lane/' || lane, 0) AS key FROM outbox_lane) AS k
LEFT JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND l.classid = ((k.key >> 32) & 4294967295)::oid AND l.objid = (k.key & 4294967295)::oid`

// holder is a session that is a sender, and the lanes that it has.
type holder struct {
	process int32
	lanes   []int16
}

// shares says which lanes the sender of a process gives up, and which it takes: all have as many as the others, or one more. Who has more
// keeps what it has, up to its share; what nobody has goes to those who have less, one after the other. Each finds the same without asking
// the others, and no lane moves that need not. ok is false if it is not among the senders.
func shares(senders []holder, process int32) (leave, take []int16, ok bool) {
	senders = slices.Clone(senders)
	slices.SortFunc(senders, func(a, b holder) int {
		return cmp.Or(cmp.Compare(len(b.lanes), len(a.lanes)), cmp.Compare(a.process, b.process))
	})
	var free []int16
	for lane := range int16(Lanes) {
		if !slices.ContainsFunc(senders, func(h holder) bool { return slices.Contains(h.lanes, lane) }) {
			free = append(free, lane)
		}
	}
	for i, h := range senders {
		share := Lanes / len(senders)
		if i < Lanes%len(senders) {
			share++
		}
		more := min(max(share-len(h.lanes), 0), len(free))
		if h.process == process {
			slices.Sort(h.lanes)
			return h.lanes[min(share, len(h.lanes)):], free[:more], true
		}
		free = free[more:]
	}
	return nil, nil, false
}

// senders are the sessions that are senders.
func (s *Sender) senders(ctx context.Context) ([]holder, error) {
	rows, err := s.Pool.Query(ctx, theSenders, s.Name)
	if err != nil {
		return nil, pg.Classify(err, "look for the senders of the outbox")
	}
	senders, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h holder, err error) {
		err = row.Scan(&h.process, &h.lanes)
		return h, err
	})
	return senders, pg.Classify(err, "look for the senders of the outbox")
}

// errNotCounted ends a session whose lock the other senders do not see: it would never get a lane.
var errNotCounted = errors.New("the session of this sender of the outbox is none that its database knows: does it lead to the same server as the pool, " +
	"and past a pooler that gives a session to each transaction?")

// share takes the lanes that are this sender's, and leaves those that are another's, which it notifies. A lane has one sender at a time,
// since it is locked.
func (s *Sender) share(ctx context.Context, own *session) error {
	senders, err := s.senders(ctx)
	if err != nil {
		return err
	}
	leave, take, ok := shares(senders, own.process)
	if !ok {
		return errNotCounted
	}
	s.alone = len(senders) == 1
	if len(take)+len(leave) == 0 {
		return nil
	}
	for _, lane := range leave {
		s.drop(lane)
	}
	var taken []int16
	err = own.use(ctx, func(ctx context.Context, q *query.Queries) (err error) {
		if len(leave) > 0 {
			err = errors.Join(q.LeaveLanes(ctx, leave), q.Notify(ctx, own.name()+moved))
		}
		if err == nil && len(take) > 0 {
			taken, err = q.TakeLanes(ctx, take)
		}
		return err
	})
	if err == nil && len(taken) > 0 {
		err = query.New(s.Pool).TakeOver(ctx, taken)
	}
	if err != nil {
		return pg.Classify(err, "share the lanes of the outbox")
	}
	for _, lane := range taken {
		s.forget(lane)
	}
	s.Log.InfoContext(ctx, "outbox lanes are shared anew", "taken", taken, "left", leave, "senders", len(senders))
	return nil
}
