package script

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// channel is an address of the run as the program holds it. Outside of the program it is its token.
type channel struct {
	token string
}

var _ starlark.HasAttrs = channel{}

// String does not show the token: it is the right to answer, and printed lines are read by many.
func (channel) String() string { return "<channel>" }

// Type is "channel".
func (channel) Type() string { return "channel" }

// Freeze has nothing to do: a program cannot change a channel.
func (channel) Freeze() {}

// Truth is always true.
func (channel) Truth() starlark.Bool { return true }

// Hash is the token's, so that channels may be keys of a dict.
func (c channel) Hash() (uint32, error) { return starlark.String(c.token).Hash() }

// Attr is token.
func (c channel) Attr(name string) (starlark.Value, error) {
	if name == "token" {
		return starlark.String(c.token), nil
	}
	return nil, starlark.NoSuchAttrError(fmt.Sprintf("channel has no .%s; it has token", name))
}

// AttrNames is token.
func (channel) AttrNames() []string { return []string{"token"} }

// makeChannel makes an address at which this run can be answered.
func makeChannel(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	v, err := recorded(thread, fn, args, kwargs, history.KindChannel, func(e program.Environment) any { return e.Token() })
	if err != nil {
		return nil, err
	}
	token, _ := starlark.AsString(v) // nothing else is recorded
	return channel{token}, nil
}

// maxChannels bounds what one receive listens to. Each is a row and a look-up of its own.
const maxChannels = 32

// receive(channel, …, timeout=None, on_error="fail") waits for the first message to one of the channels, and returns it as {id,
// time, token, data}, or None after timeout seconds. A message that arrived before is returned at once. Without a timeout the
// configured default applies, whose end fails the run (D12), as a message does that cannot be read; with on_error="return" the answer is
// {ok, value, error, code}. In place of a channel its token will do.
func receive(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	var timeout starlark.Value
	onError := onErrorFail
	if err := starlark.UnpackArgs(fn.Name(), nil, kwargs, "timeout??", &timeout, "on_error?", &onError); err != nil {
		return nil, err
	}
	if err := checkOnError(onError); err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	limit, err := duration("timeout", timeout)
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	if len(args) < 1 || len(args) > maxChannels {
		return nil, fmt.Errorf("receive: found %d channels, expected 1 to %d", len(args), maxChannels)
	}
	tokens, named := make([]string, len(args)), make([]string, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case channel:
			if tokens[i], named[i] = v.token, v.token; !history.IsToken(v.token) {
				named[i] = "inbox" // the handle of the run is no argument
			}
			continue
		case starlark.String:
			tokens[i], named[i] = string(v), string(v)
		}
		if !history.IsToken(tokens[i]) {
			return nil, fmt.Errorf("receive: found a %s, expected a channel or its token", arg.Type())
		}
	}
	fingerprint, err := json.Marshal([]any{named, limit})
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	op := b.op(history.KindReceive, "", fingerprint)
	op.Channels, op.Timeout = tokens, within(timeout, limit)
	c, err := b.block(op)
	if err != nil {
		return nil, err
	}
	if c.Error != nil {
		return b.result("receive", onError, c)
	}
	v, err := b.result("receive", onErrorFail, c)
	if err == nil && v != starlark.None {
		v, err = b.message(v)
	}
	if err == nil && onError == onErrorReturn {
		v = envelope(v, nil)
	}
	return v, err
}

// message is the recorded event as a program sees it.
func (b *branch) message(v starlark.Value) (starlark.Value, error) {
	var body *Object
	event, ok := v.(*Object)
	if ok {
		data, _ := event.get("data")
		body, ok = data.(*Object)
	}
	if !ok {
		return nil, fmt.Errorf("receive: the recorded value is no message")
	}
	m := newObject(4)
	for _, part := range []struct {
		name, of string
		from     *Object
	}{{"id", "id", event}, {"time", "time", event}, {"token", "channel", body}, {"data", "data", body}} {
		value, found := part.from.get(part.of)
		if !found {
			value = starlark.None
		}
		m.set(part.name, value)
	}
	if asked, _ := body.get("call"); asked == starlark.True {
		of, err := messageName(m)
		if err != nil {
			return nil, err
		}
		if b.machine.calls == nil {
			b.machine.calls = map[call]bool{}
		}
		b.machine.calls[of] = true
	}
	return m, nil
}

// call names a message whose sender waits for an answer.
type call struct {
	token, id string
}

// messageName reads from a message which one it is.
func messageName(m *Object) (call, error) {
	token, _ := m.get("token")
	id, _ := m.get("id")
	address, hasToken := starlark.AsString(token)
	name, hasID := starlark.AsString(id)
	if !hasToken || !hasID {
		return call{}, errors.New("found an object without token and id, expected what receive has returned")
	}
	return call{token: address, id: name}, nil
}

// maxReplyError bounds the error of an answer, in bytes.
const maxReplyError = 4 << 10

// reply(message, value=None, error=None) answers a message whose sender waits for an answer: with a value, or with an error. It answers
// whether a caller waits: not where the message was only sent, was answered before, or was received by another generation of the run. Then
// nothing is recorded.
func reply(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	var to, failure starlark.Value
	var value starlark.Value = starlark.None
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs, "message", &to, "value?", &value, "error??", &failure); err != nil {
		return nil, err
	}
	m, is := to.(*Object)
	if !is {
		return nil, fmt.Errorf("reply: message is a %s, expected what receive has returned", to.Type())
	}
	of, err := messageName(m)
	if err != nil {
		return nil, fmt.Errorf("reply: message: %w", err)
	}
	answer, err := b.answer(value, failure)
	if err != nil {
		return nil, err
	}
	if !b.machine.calls[of] {
		return starlark.False, nil
	}
	delete(b.machine.calls, of)
	fingerprint, err := json.Marshal([]any{of.token, of.id, answer})
	if err != nil {
		return nil, fmt.Errorf("reply: %w", err)
	}
	op := b.op(history.KindReply, "", fingerprint)
	_, err = b.machine.immediate(op, func() history.Completion {
		b.machine.emits = append(b.machine.emits, history.Emit{ID: of.id, Type: history.TypeMessage, Data: answer, Answers: of.token})
		return history.Completion{Op: op.Ref, Value: answer}
	})
	if err != nil {
		return nil, err
	}
	return starlark.True, nil
}

// answer encodes what a program answers.
func (b *branch) answer(value, failure starlark.Value) (json.RawMessage, error) {
	var given history.Answer
	if failure != nil && failure != starlark.None {
		text, is := starlark.AsString(failure)
		if !is || text == "" || len(text) > maxReplyError {
			return nil, fmt.Errorf("reply: error is %.80s, expected a string of 1 to %d bytes", failure.String(), maxReplyError)
		}
		if value != starlark.None {
			return nil, errors.New("reply: found a value and an error, expected one of them")
		}
		given.Error = history.Storable(text)
	} else {
		encoded, err := encode(value, b.machine.limits.Value)
		if err != nil {
			return nil, fmt.Errorf("reply: value: %w", err)
		}
		given.Value = encoded
	}
	answer, err := json.Marshal(given)
	if err != nil {
		return nil, fmt.Errorf("reply: %w", err)
	}
	return answer, nil
}

// inbox is the channel that every run has: what is sent to the run by its id arrives there, also what was sent with its start.
func inbox(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs); err != nil {
		return nil, err
	}
	return channel{history.InboxToken(b.machine.env.Ref)}, nil
}
