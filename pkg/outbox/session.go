package outbox

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// session is the connection that holds a sender's locks, and that it is notified on. Whatever happens to it, the locks end with it.
type session struct {
	conn *pgx.Conn
	// process is that of the connection in the database.
	process int32
	schema  string

	asked chan func()

	mu        sync.Mutex
	interrupt context.CancelFunc // ends the wait for notifications, for what was asked
}

// join makes this one of the senders; nil if one of the release before is the only one.
func (s *Sender) join(ctx context.Context) (*session, error) {
	pooled, err := pg.Session(ctx, s.Pool)
	if err != nil {
		return nil, err
	}
	ok, err := query.New(pooled).Join(ctx, s.Name)
	if err != nil || !ok {
		pooled.Release()
		return nil, pg.Classify(err, "become a sender of the outbox")
	}
	own := &session{conn: pooled.Hijack(), asked: make(chan func(), 1)}
	q := query.New(own.conn)
	self, err := q.Self(ctx) // a pooler between makes up what the protocol says
	own.schema, own.process = self.Schema, self.Process
	if err == nil {
		err = errors.Join(q.Listen(ctx), q.Notify(ctx, own.name()+moved))
	}
	if err != nil {
		own.close(ctx)
		return nil, pg.Classify(err, "listen for new events")
	}
	return own, nil
}

// close ends the session, and with it the locks, whatever state it is in. The other senders are notified, if possible: else they find it at
// their next look.
func (o *session) close(ctx context.Context) {
	closing, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer stop()
	if q := query.New(o.conn); !o.conn.IsClosed() && q.LeaveAll(closing) == nil {
		_ = q.Notify(closing, o.name()+moved)
	}
	_ = o.conn.Close(closing)
}

// moved ends the notification by which the others hear that the lanes are to be shared anew: the session has joined, or left some.
const moved = "/lanes"

// name distinguishes the notifications of this session from those of others.
func (o *session) name() string { return "/" + strconv.Itoa(int(o.process)) }

// listen calls notified for each notification of this schema that is not this session's own, and does what use asks; anew is set if the
// lanes are to be shared anew. It returns when the connection, and with it the locks, are gone.
func (o *session) listen(ctx context.Context, notified func(anew bool)) error {
	for {
		waiting, interrupt := context.WithCancel(ctx)
		o.mu.Lock()
		o.interrupt = interrupt // before it looks: what is asked from now on interrupts the wait
		o.mu.Unlock()
		select {
		case do := <-o.asked:
			interrupt()
			do()
			continue
		default:
		}
		n, err := o.conn.WaitForNotification(waiting)
		interrupted := waiting.Err() != nil
		interrupt()
		switch {
		case err == nil:
			by, ours := strings.CutPrefix(n.Payload, o.schema)
			by, anew := strings.CutSuffix(by, moved)
			if ours && by != o.name() && (by == "" || by[0] == '/') {
				notified(anew)
			}
		case ctx.Err() == nil && interrupted && !o.conn.IsClosed():
		default:
			return pg.Classify(err, "hold the locks of a sender")
		}
	}
}

// use does something with the connection while listen runs.
func (o *session) use(ctx context.Context, do func(ctx context.Context, q *query.Queries) error) error {
	done := make(chan error, 1)
	select {
	case o.asked <- func() { done <- do(ctx, query.New(o.conn)) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	o.mu.Lock()
	if o.interrupt != nil {
		o.interrupt()
	}
	o.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done(): // also when listen ends
		return context.Cause(ctx)
	}
}
