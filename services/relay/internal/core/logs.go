package core

import (
	"context"
	"strings"
)

// The bounds of k8s.logs. What it answers becomes part of a history.
const (
	defaultLines, maxLines = 200, 5000
	maxLog                 = 128 << 10
)

// logs reads the end of the log of a container, without what looks like a secret.
func (r *Runner) logs(ctx context.Context, call Call) (map[string]any, error) {
	want, err := parseLogs(call)
	if err != nil {
		return nil, err
	}
	ref := Ref{Kind: Kind{APIVersion: "v1", Kind: "Pod"}, Namespace: want.Namespace, Name: want.Pod}
	if !r.limits.Objects.Logs {
		return nil, &Error{Code: CodeForbidden, Message: ref.String() + ": this relay's allow_logs is false"}
	}
	if err := r.limits.permitNamespace(ref); err != nil {
		return nil, err
	}
	var text string
	err = r.persist(ctx, ref, func() (err error) {
		text, err = r.objects.Logs(ctx, want)
		return err
	})
	if err != nil {
		return nil, err
	}
	cut := int64(len(text)) > want.Bytes
	return fits(ref.String(), map[string]any{"text": withoutSecrets(endOf(text, int(want.Bytes))), "truncated": cut})
}

// endOf returns the last bytes of a log, which say why something has failed: from the beginning of a line if there is one among them.
func endOf(text string, atMost int) string {
	if len(text) <= atMost {
		return text
	}
	text = text[len(text)-atMost:]
	if _, after, found := strings.Cut(text, "\n"); found && after != "" {
		return after
	}
	return text
}

// parseLogs parses the arguments of k8s.logs.
func parseLogs(call Call) (LogRequest, error) {
	a, err := readArgs(call.Args)
	if err != nil {
		return LogRequest{}, err
	}
	a.known["agent_id"] = true
	l := LogRequest{
		Namespace: a.name("namespace", true), Pod: a.name("pod", true), Container: a.name("container", false),
		Lines: a.bounded("lines", defaultLines, maxLines), Bytes: a.bounded("max_bytes", maxLog/4, maxLog),
		Seconds: a.bounded("since_seconds", 0, 7*24*3600), Previous: a.flag("previous"),
	}
	a.rest()
	return l, a.err()
}

// bounded reads an optional whole number from 1 to most.
func (a args) bounded(name string, otherwise, most int64) int64 {
	if a.values[name] == nil {
		a.known[name] = true
		return otherwise
	}
	n := a.number(name, 1)
	if n > most {
		a.problem(name, "found %d, expected at most %d", n, most)
	}
	return n
}
