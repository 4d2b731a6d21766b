package cluster

import (
	"context"
	"strings"

	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// TaskLog reads the end of a container's log.
func (c *Cluster) TaskLog(ctx context.Context, pod core.Ref, container string, lines, atMost int64) (string, error) {
	text, err := c.Logs(ctx, core.LogRequest{Namespace: pod.Namespace, Pod: pod.Name, Container: container, Lines: lines, Bytes: atMost})
	if err != nil {
		return "", err
	}
	return endOf(text, int(atMost)), nil
}

// endOf returns the last bytes of a text, from the beginning of a line if there is one among them.
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
