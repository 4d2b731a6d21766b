package bus

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const (
	// batchAtLeast is the size from which a batch costs less than its messages one by one: the server stages it in files of its own,
	// and syncs these and the stream's once. With sync_interval always, as Lockstep is installed, both cost the same at 8 messages, and
	// at 12 the batch a quarter less; without, a batch costs less only from about 128 on.
	batchAtLeast = 10
	// batchAtMost and batchBytes bound a batch. The server takes 1000 messages.
	batchAtMost = 256
	batchBytes  = 4 << 20
	// listenersWithin is a pause in which the listeners of OnHint are notified of a new connection.
	listenersWithin = 10 * time.Millisecond
)

// The headers of an atomic batch (NATS ADR-50), and the number of the refusal of one that holds a duplicate.
const (
	batchIDHeader       = "Nats-Batch-Id"
	batchSequenceHeader = "Nats-Batch-Sequence"
	batchCommitHeader   = "Nats-Batch-Commit"

	duplicateInBatch jetstream.ErrorCode = 10201
)

// PublishAll stores events in the order given, each under its message id, as PublishAttempt does, and answers one error, or
// nil, for each that it has tried. It ends at the first error that is Unavailable, for that event and for all after it; an
// event that is Invalid, because it is too large, or Denied is passed over. It also ends, then without an error, when the connection is
// lost and back meanwhile, before OnHint reports that: a listener that has to send something first can do so.
//
// So nothing in a stream is ever before what was given before it, unless that was refused permanently. Many are sent as an
// atomic batch, which the server stores whole or not at all; one whose answer is lost, or that is refused for whatever
// reason, a duplicate in it or an event that is denied, is sent again one by one, where the stream drops what it has. A
// server that knows no batches (before 2.12) gets one event after the other.
func (c *Conn) PublishAll(ctx context.Context, events []event.Sealed, msgIDs []string) []error {
	here := c.notified.Load()
	same := func() bool { return c.nc.Stats().Reconnects == here }
	if !same() {
		_ = clock.Sleep(ctx, c.clock, listenersWithin) // a caller that tries again at once would be too early
		return nil
	}
	// No answer comes over another connection than the question went.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer c.back.add(stop)()
	all, errs := make([]outgoing, len(events)), make([]error, len(events))
	for i, e := range events {
		all[i] = outgoing{Sealed: e, msgID: msgIDs[i]}
	}
	for done := 0; done < len(all); {
		run := all[done : done+c.together(all[done:])]
		if len(run) < batchAtLeast || c.publishBatch(ctx, run) != nil {
			tried := c.publishEach(ctx, run, errs[done:], same)
			if tried < len(run) {
				return errs[:done+tried]
			}
			if last := errs[done+tried-1]; last != nil && !refused(last) {
				return errs[:done+tried]
			}
		}
		done += len(run)
		if !same() {
			return errs[:done]
		}
	}
	return errs
}

// refused reports whether err concerns one event and not those after it.
func refused(err error) bool { return fault.ClassOf(err) != fault.Unavailable }

// together is how many of the first messages fit in one batch.
func (c *Conn) together(all []outgoing) int {
	stream, bytes := streamOf(all[0].Subject()), 0
	if !c.takes.batches(stream) {
		return 1
	}
	for n, o := range all {
		if n == batchAtMost || streamOf(o.Subject()) != stream {
			return n
		}
		if bytes += len(o.JSON()); bytes > batchBytes {
			return max(n, 1)
		}
	}
	return len(all)
}

// publishEach publishes one after the other and says how many it has tried; errs takes what came of them. An attempt on
// another connection than the one it began on does not count.
func (c *Conn) publishEach(ctx context.Context, run []outgoing, errs []error, same func() bool) (tried int) {
	for i := range run {
		if !same() {
			return i
		}
		o := &run[i]
		o.begin(ctx, c.clock.Now())
		err := c.publishWhile(ctx, *o, same)
		o.end(c.clock.Now(), err)
		if err != nil && !refused(err) && !same() {
			return i
		}
		if errs[i] = err; err != nil && !refused(err) {
			return i + 1
		}
	}
	return len(run)
}

// publishBatch stores all of run, or nothing of it; on an error it may be either.
func (c *Conn) publishBatch(ctx context.Context, run []outgoing) error {
	subjects, began := make(map[string]bool, 1), c.clock.Now()
	for i := range run {
		o := &run[i]
		o.begin(ctx, began)
		subjects[o.Subject()] = true
		if int64(len(o.JSON()))+headerRoom > c.nc.MaxPayload() {
			return fault.New(fault.Invalid, "a message of the batch may be too large")
		}
	}
	concerns := func(subject string) bool { return subjects[subject] }
	id := rand.Text()
	batch := []string{id} // for every message: nobody changes it
	var answer *nats.Msg
	err := c.denied.watch(ctx, publishWithin, concerns, func(ctx context.Context) (err error) {
		for i, o := range run {
			msg := o.message()
			msg.Header[batchIDHeader] = batch
			msg.Header[batchSequenceHeader] = []string{strconv.Itoa(i + 1)}
			if i < len(run)-1 {
				err = c.nc.PublishMsg(msg) // unanswered: what is missing the commit finds out
			} else {
				msg.Header[batchCommitHeader] = []string{"1"}
				answer, err = c.nc.RequestMsgWithContext(ctx, msg)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fault.Because(err, fault.Unavailable, "publish a batch: the event bus did not confirm it")
	}
	if err := c.confirmed(answer.Data, id, streamOf(run[0].Subject()), len(run)); err != nil {
		return err
	}
	now := c.clock.Now()
	for i := range run {
		run[i].end(now, nil)
	}
	return nil
}

// headerRoom is more than the headers of a message take.
const headerRoom = 4 << 10

// confirmed reads the answer to a commit. A stream that refuses batches is sent none until it has been looked at again.
func (c *Conn) confirmed(answer []byte, id, stream string, count int) error {
	var ack struct {
		Error *jetstream.APIError `json:"error"`
		Batch string              `json:"batch"`
		Count int                 `json:"count"`
	}
	if err := json.Unmarshal(answer, &ack); err != nil {
		return fault.Because(err, fault.Unavailable, "publish a batch: the answer is not JSON")
	}
	switch {
	case ack.Error != nil:
		if ack.Error.ErrorCode != duplicateInBatch {
			c.takes.set(stream, false)
		}
		return fault.Because(ack.Error, fault.Unavailable, "publish a batch: %s", ack.Error.Description)
	case ack.Batch != id || ack.Count != count:
		c.takes.set(stream, false)
		return fault.Because(errors.New(string(answer)), fault.Unavailable, "publish a batch: the stream did not take it as one")
	default:
		return nil
	}
}

// batchTakers are the streams that take atomic batches. The zero value knows of none.
type batchTakers struct {
	mu sync.Mutex
	by map[string]bool
}

// learn reads what the server says that a stream does.
func (t *batchTakers) learn(s jetstream.Stream) {
	config := s.CachedInfo().Config
	t.set(config.Name, config.AllowAtomicPublish)
}

func (t *batchTakers) set(stream string, takes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[string]bool{}
	}
	t.by[stream] = takes
}

func (t *batchTakers) batches(stream string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.by[stream]
}
