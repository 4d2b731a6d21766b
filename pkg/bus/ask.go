package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Headers of an answer that is an error: its class, and the message and fields as JSON.
const (
	headerClass = "Lockstep-Error-Class"
	// answersAtOnce bounds how many requests on one subject are worked on; more wait in the client's queue.
	answersAtOnce = 16
	// askWithin is for callers whose context never ends.
	askWithin = 2 * time.Minute
)

type refusal struct {
	Message string        `json:"message"`
	Fields  []fault.Field `json:"fields,omitempty"`
}

// Ask sends a request to the service that answers a subject and waits for one answer, as long as ctx has but no longer than two minutes: it
// is a question that may get lost, for what can be asked again. The error has the class that the other side gave it; Unavailable when no
// service answers.
func (c *Conn) Ask(ctx context.Context, subject string, request []byte) ([]byte, error) {
	var answer *nats.Msg
	concerns := func(s string) bool { return s == subject }
	err := c.denied.watch(ctx, askWithin, concerns, func(ctx context.Context) (err error) {
		answer, err = c.nc.RequestWithContext(ctx, subject, request)
		return err
	})
	switch {
	case fault.Is(err, fault.Denied):
		return nil, err
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fault.Because(err, fault.Unavailable, "nobody answers %s at the moment", subject)
	case err != nil:
		return nil, fault.Because(err, fault.Unavailable, "%s was not answered in time", subject)
	}
	named := answer.Header.Get(headerClass)
	if named == "" {
		return answer.Data, nil
	}
	class, err := strconv.Atoi(named)
	if err != nil {
		return nil, fmt.Errorf("%s was answered with an error of class %q: %w", subject, named, err)
	}
	var r refusal
	if err := json.Unmarshal(answer.Data, &r); err != nil {
		return nil, fmt.Errorf("%s was answered with an error that cannot be read: %w", subject, err)
	}
	if len(r.Fields) > 0 {
		return nil, fault.InvalidFields(r.Fields...)
	}
	return nil, fault.New(fault.Class(class), "%s", r.Message)
}

// Answer answers the requests on a subject, shared with this service's other instances, until ctx ends. It returns as
// soon as the subscription stands. What fn panics with is answered as an internal error.
func (c *Conn) Answer(ctx context.Context, subject string, fn func(ctx context.Context, request []byte) ([]byte, error)) error {
	places := make(chan struct{}, answersAtOnce)
	return c.subscribe(ctx, subject, c.user, func(m *nats.Msg) {
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			reply := &nats.Msg{Subject: m.Reply, Header: nats.Header{}}
			data, err := c.answer(ctx, fn, m.Data)
			if err != nil {
				reply.Header.Set(headerClass, strconv.Itoa(int(fault.ClassOf(err))))
				c.log.Log(ctx, fault.Describe(fault.ClassOf(err)).Level, "a request was refused", telemetry.KeySubject, subject,
					telemetry.KeyError, err)
				data, _ = json.Marshal(refusal{Message: fault.Public(err), Fields: fault.FieldsOf(err)}) // text alone
			}
			reply.Data = data
			if err := c.nc.PublishMsg(reply); err != nil {
				c.log.DebugContext(ctx, "answer not sent", telemetry.KeySubject, subject, telemetry.KeyError, err)
			}
		}()
	})
}

func (c *Conn) answer(ctx context.Context, fn func(context.Context, []byte) ([]byte, error), request []byte) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(ctx, request)
}
