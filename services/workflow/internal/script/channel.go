package script

import (
	"encoding/json"
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
	tokens := make([]string, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case channel:
			tokens[i] = v.token
		case starlark.String:
			tokens[i] = string(v)
		}
		if !history.IsToken(tokens[i]) {
			return nil, fmt.Errorf("receive: found a %s, expected a channel or its token", arg.Type())
		}
	}
	fingerprint, err := json.Marshal([]any{tokens, limit})
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
		v, err = message(v)
	}
	if err == nil && onError == onErrorReturn {
		v = envelope(v, nil)
	}
	return v, err
}

// message is the recorded event as a program sees it.
func message(v starlark.Value) (starlark.Value, error) {
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
	return m, nil
}
