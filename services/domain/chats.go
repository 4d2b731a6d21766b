package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	neturl "net/url"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
)

// maxReply is how much of the answer to a reply is read, in bytes.
const maxReply = 4 << 10

// chatAnswers makes the use cases of answers from chats. Replies to Slack go through the guarded transport.
func (s *service) chatAnswers(c Config, sealer *keyset.Keyset, now clock.Clock) (*chat.UseCases, error) {
	transport, err := httpx.New(httpx.Config{Allow: c.Drivers.AllowNetworks, Log: s.log})
	if err != nil {
		return nil, fmt.Errorf("drivers.allow_networks: %w", err)
	}
	client := transport.Client()
	return chat.New(chat.Deps{
		Store: s.store.ForChat(), Rollouts: s.rollouts, Calls: s.policies, Freezes: s.freezes, View: s.view, Secrets: s.credentials,
		Sealer: sealer, Clock: now, URL: c.PublicURL, Wake: s.wakePublishers,
		Reply: func(ctx context.Context, url string, t chat.Taken) {
			if err := replyInSlack(ctx, client, url, t); err != nil {
				s.log.WarnContext(ctx, "replying in a chat failed", slog.Any(telemetry.KeyError, err))
			}
		},
	}), nil
}

// replyInSlack has Slack show a text to the one who has pressed a button, and leave the message as it is.
func replyInSlack(ctx context.Context, client *http.Client, url string, t chat.Taken) error {
	message := t.Message()
	message["response_type"], message["replace_original"] = "ephemeral", false
	body, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("write a reply: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a reply: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		if of, is := errors.AsType[*neturl.Error](err); is {
			err = of.Err // without the address: with it others could reply, too
		}
		return fmt.Errorf("send a reply: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxReply)) // so that the connection can be used again
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("send a reply: Slack answered with status %d", answer.StatusCode)
	}
	return nil
}
