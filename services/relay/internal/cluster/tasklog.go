package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// mostRead bounds what is read of a log to find its last bytes: lines may have any length.
const mostRead = 4 << 20

// TaskLog reads the end of a container's log.
func (c *Cluster) TaskLog(ctx context.Context, pod core.Ref, container string, lines, atMost int64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request := c.raw.Get().AbsPath("/api/v1/namespaces", pod.Namespace, "pods", pod.Name, "log").
		Param("tailLines", strconv.FormatInt(lines, 10)).Param("limitBytes", strconv.Itoa(mostRead))
	if container != "" {
		request = request.Param("container", container)
	}
	stream, err := request.Stream(ctx)
	if err != nil {
		return "", classify(err, "read the log of", pod)
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, mostRead))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", fmt.Errorf("read the log of %s: %w", pod, err)
	}
	return endOf(string(text), int(atMost)), nil
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
