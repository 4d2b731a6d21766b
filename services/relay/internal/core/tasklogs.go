package core

import (
	"context"
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret/redact"
)

// The bounds of logs: they become part of a history.
const (
	shownTaskLines, mostTaskLines = 50, 1000
	mostTaskLog                   = 64 << 10
	mostTaskPods                  = 10
)

// logs returns the end of what the pods of a task have printed.
func (k taskKind) logs(ctx context.Context, r *Runner, call Call) (map[string]any, error) {
	a, err := readArgs(call.Args)
	if err != nil {
		return nil, err
	}
	ref, lines, container := k.parseNamed(a), a.bounded("lines", shownTaskLines, mostTaskLines), a.name("container", false)
	a.rest()
	if err := a.err(); err != nil {
		return nil, err
	}
	if err := r.limits.checkTask(k, ref); err != nil {
		return nil, err
	}
	o, err := r.cluster.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if !owns(o, call.Organization) {
		return nil, notOurs(ref)
	}
	pods, more, err := r.cluster.List(ctx, Selection{
		Kind: Kind{APIVersion: "v1", Kind: "Pod"}, Namespace: ref.Namespace, Labels: k.podLabel + "=" + ref.Name,
	}, mostTaskPods)
	if err != nil {
		return nil, err
	}
	return k.read(ctx, r, pods, container, lines, more)
}

// read reads the end of each pod's log; together they have at most mostTaskLog.
func (k taskKind) read(
	ctx context.Context, r *Runner, pods []Object, container string, lines int64, truncated bool,
) (map[string]any, error) {
	all, left := []any{}, mostTaskLog
	for _, pod := range pods {
		name := pod.text("metadata", "name")
		from := k.containerOf(pod, container)
		text, err := r.objects.Logs(ctx, LogRequest{
			Namespace: pod.text("metadata", "namespace"), Pod: name, Container: from, Lines: lines, Bytes: int64(left),
		})
		switch {
		// A container that has not started, and a pod that has gone since, have printed nothing that could be read.
		case fault.Is(err, fault.NotFound), fault.Is(err, fault.Invalid):
			continue
		case err != nil:
			return nil, err
		}
		truncated = truncated || len(text) > left
		text = withoutSecrets(endOf(text, left))
		left = max(0, left-len(text))
		all = append(all, map[string]any{"pod": name, "container": from, "text": text})
	}
	return map[string]any{"logs": all, "truncated": truncated}, nil
}

// containerOf returns the container to read: the one asked for, else that of the kind if the pod has it, else the pod's own default.
func (k taskKind) containerOf(pod Object, asked string) string {
	if asked != "" {
		return asked
	}
	first := annotation(pod, "kubectl.kubernetes.io/default-container")
	for _, each := range pod.list("spec", "containers") {
		m, _ := each.(map[string]any)
		name := Object(m).text("name")
		if name == k.container {
			return name
		}
		if first == "" {
			first = name
		}
	}
	return first
}

// cutKey is a text that begins inside a private key: all before its end.
var cutKey = regexp.MustCompile(`(?s)^.*?-----(BEGIN|END) [A-Z ]*PRIVATE KEY-----`)

// withoutSecrets replaces what looks like a secret, and bytes that are not text: a log is read by more people than its program's secrets
// are meant for. It finds what has one of the usual forms, no more: programs must not print secrets.
func withoutSecrets(log string) string {
	log = strings.ToValidUTF8(strings.ReplaceAll(log, "\x00", ""), "�")
	if found := cutKey.FindStringSubmatch(log); found != nil && found[1] == "END" {
		log = redact.Mark + log[len(found[0]):]
	}
	log, _ = redact.Text(log)
	return log
}
