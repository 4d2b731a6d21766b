package ociregistry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/id"
)

const (
	notificationType = "application/vnd.docker.distribution.events.v2+json"
	retryInterval    = time.Second
	notifyTimeout    = 5 * time.Second
)

// envelope is a Docker Distribution notification (distribution/distribution, docs/about/notifications.md).
type envelope struct {
	Events []notification `json:"events"`
}

type notification struct {
	ID        string  `json:"id"`
	Timestamp string  `json:"timestamp"`
	Action    string  `json:"action"`
	Target    target  `json:"target"`
	Request   request `json:"request"`
}

type target struct {
	MediaType  string `json:"mediaType"`
	Size       int    `json:"size"`
	Length     int    `json:"length"`
	Digest     string `json:"digest"`
	Repository string `json:"repository"`
	URL        string `json:"url"`
	Tag        string `json:"tag,omitempty"`
}

type request struct {
	ID     string `json:"id"`
	Host   string `json:"host"`
	Method string `json:"method"`
}

// queue holds notifications on disk until they have been accepted. Distribution's own queue is in memory; ours is not,
// so that the demo's story survives a killed registry.
type queue struct {
	dir, url, token string
	clock           clock.Clock
	log             *slog.Logger
	client          *http.Client
	added           chan struct{}
}

func openQueue(c Config, log *slog.Logger) (*queue, error) {
	q := &queue{
		dir: filepath.Join(c.Dir, "notifications"), url: c.NotifyURL, token: c.NotifyToken, clock: c.Clock, log: log,
		client: &http.Client{Timeout: notifyTimeout}, added: make(chan struct{}, 1),
	}
	if err := os.MkdirAll(q.dir, 0o750); err != nil {
		return nil, fmt.Errorf("notifications: %w", err)
	}
	return q, nil
}

// add queues the notification of a pushed manifest.
func (q *queue) add(m manifest, digest, host string) error {
	if q.url == "" {
		return nil
	}
	now := q.clock.Now()
	n := notification{
		ID: id.New(now), Timestamp: now.UTC().Format(time.RFC3339Nano), Action: "push",
		Target: target{
			MediaType: m.MediaType, Size: len(m.Body), Length: len(m.Body), Digest: digest, Repository: m.Repository,
			URL: "http://" + host + "/v2/" + m.Repository + "/manifests/" + digest,
		},
		Request: request{ID: id.New(now), Host: host, Method: http.MethodPut},
	}
	if !strings.Contains(m.Reference, ":") {
		n.Target.Tag = m.Reference
	}
	if err := writeJSON(filepath.Join(q.dir, n.ID+".json"), n); err != nil {
		return err
	}
	select {
	case q.added <- struct{}{}:
	default:
	}
	return nil
}

// run sends what is queued, oldest first, until ctx ends.
func (q *queue) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := eachJSON(q.dir, func(path string, n notification) error { return q.deliver(ctx, path, n) }); err != nil {
			if ctx.Err() == nil {
				q.log.WarnContext(ctx, "notification not accepted", "error", err)
			}
			_ = clock.Sleep(ctx, q.clock, retryInterval)
			continue
		}
		select {
		case <-ctx.Done():
		case <-q.added:
		}
	}
}

// deliver sends one notification and forgets it once it has been accepted, or refused permanently.
func (q *queue) deliver(ctx context.Context, path string, n notification) error {
	body, err := json.Marshal(envelope{Events: []notification{n}})
	if err != nil {
		return fmt.Errorf("encode notification %s: %w", n.ID, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, q.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("notification %s: %w", n.ID, err)
	}
	r.Header.Set("Content-Type", notificationType)
	r.Header.Set("Authorization", "Bearer "+q.token)
	answer, err := q.client.Do(r)
	if err != nil {
		return fmt.Errorf("notification %s: %w", n.ID, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	switch {
	case answer.StatusCode < 300:
	case answer.StatusCode == http.StatusBadRequest || answer.StatusCode == http.StatusUnprocessableEntity:
		q.log.ErrorContext(ctx, "notification refused", "id", n.ID, "status", answer.StatusCode, "answer", string(text))
	default:
		return fmt.Errorf("notification %s: the receiver answered %d: %s", n.ID, answer.StatusCode, text)
	}
	return os.Remove(path)
}
