package script

import (
	"fmt"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// The bounds of a retry.
const (
	maxAttempts = 1000
	maxBackoff  = 100
	maxFinal    = 32
)

// retrying reads run's retry: True for the engine's own way, False for none, or a dict or struct with some of attempts,
// initial and max_interval (seconds), backoff (a factor) and non_retryable (codes). Errors begin with what follows
// "retry" in a sentence.
func retrying(v starlark.Value) (again bool, policy *history.RetryPolicy, err error) {
	if b, ok := v.(starlark.Bool); ok {
		return bool(b), nil, nil
	}
	items, err := members(v)
	if err != nil {
		return false, nil, err
	}
	p := new(history.RetryPolicy)
	for _, item := range items {
		name, _ := starlark.AsString(item[0])
		switch name {
		case "attempts":
			n, ok := item[1].(starlark.Int)
			attempts, small := n.Int64()
			if !ok || !small || attempts < 1 || attempts > maxAttempts {
				return false, nil, fmt.Errorf(".attempts is %s, expected a whole number from 1 to %d", item[1], maxAttempts)
			}
			p.Attempts = int(attempts)
		case "initial":
			p.Initial, err = pause(name, item[1])
		case "max_interval":
			p.Longest, err = pause(name, item[1])
		case "backoff":
			f, ok := starlark.AsFloat(item[1])
			if !ok || !(f >= 1 && f <= maxBackoff) { // NaN fails too
				return false, nil, fmt.Errorf(".backoff is %s, expected a number from 1 to %d", item[1], maxBackoff)
			}
			p.Backoff = f
		case "non_retryable":
			p.Final, err = codes(item[1])
		default:
			return false, nil, fmt.Errorf(" has %s, expected only attempts, initial, max_interval, backoff and non_retryable", item[0])
		}
		if err != nil {
			return false, nil, err
		}
	}
	return true, p, nil
}

// members are those of a dict or struct.
func members(v starlark.Value) ([]starlark.Tuple, error) {
	switch v := v.(type) {
	case starlark.IterableMapping:
		return v.Items(), nil
	case *starlarkstruct.Struct:
		var items []starlark.Tuple
		for _, name := range v.AttrNames() {
			member, err := v.Attr(name)
			if err != nil {
				return nil, err
			}
			items = append(items, starlark.Tuple{starlark.String(name), member})
		}
		return items, nil
	default:
		return nil, fmt.Errorf(" is a %s, expected True, False, a dict or a struct", v.Type())
	}
}

// pause is a time between two attempts, above zero.
func pause(name string, v starlark.Value) (time.Duration, error) {
	d, err := duration(name, v)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf(".%s is %s, expected a number of seconds above zero", name, v)
	}
	return d, nil
}

// codes are those of errors.
func codes(v starlark.Value) ([]string, error) {
	list, ok := v.(starlark.Iterable)
	if !ok {
		return nil, fmt.Errorf(".non_retryable is a %s, expected a list of codes", v.Type())
	}
	var codes []string
	for item := range starlark.Elements(list) {
		code, ok := starlark.AsString(item)
		if !ok || code == "" || len(codes) == maxFinal {
			return nil, fmt.Errorf(".non_retryable holds %s, expected at most %d codes", item, maxFinal)
		}
		codes = append(codes, code)
	}
	return codes, nil
}
