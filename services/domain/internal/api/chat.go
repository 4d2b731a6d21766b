package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// ChatPath is the path to which chat servers send that a button was pressed: POST, with the organization and the name of the channel below.
// Slash commands are sent to CommandPath below that.
const (
	ChatPath    = notify.CallbackPath
	CommandPath = "/command"
)

// Chats takes what chat servers send.
type Chats interface {
	Take(ctx context.Context, r chat.Request) (chat.Taken, error)
	Command(ctx context.Context, r chat.Request) (chat.Taken, error)
}

// chatHandler takes the presses of buttons, and slash commands. Nobody is signed in: the chat server proves what it sends, and package chat
// checks it.
type chatHandler struct {
	chats Chats
	log   *slog.Logger
}

// pressed slows down callers who prove nothing. A channel whose chat server has proved itself from an address is not slowed down by what
// others send from there: the addresses of Slack are those of all apps.
func (k keyring) pressed(take func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		credential := r.URL.Path + "\n" + k.guard.AddressOf(r)
		if !k.mayTry(w, r, "chat", credential) {
			return
		}
		switch err := take(w, r); {
		case err == nil:
			k.guard.Passed(k.clock.Now(), credential)
		case fault.Is(err, fault.Unauthenticated):
			k.guard.FailedAt(k.clock.Now(), k.guard.AddressOf(r))
			telemetry.AuthenticationFailed(telemetry.ProtocolHTTP, telemetry.OutcomeRefused)
		}
	}
}

// request reads one request; nil where it has been answered, with what that says about the chat server.
func (h chatHandler) request(w http.ResponseWriter, r *http.Request) (*chat.Request, error) {
	organization, err := organizationOf(r.PathValue("organization"))
	if err != nil || organization == 0 {
		err = fault.New(fault.Unauthenticated, "found no organization in the address; expected %sorganization_<number>/<channel>", ChatPath)
		known(w, "chat", err)
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, chat.MaxBody))
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		refuse(w, http.StatusRequestEntityTooLarge, "INVALID", "chat: found a larger body than chat servers send")
		return nil, errProvedNothing
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the client is gone")
	}
	return &chat.Request{
		Organization: organization, Channel: r.PathValue("channel"), Timestamp: r.Header.Get("X-Slack-Request-Timestamp"),
		Signature: r.Header.Get("X-Slack-Signature"), Body: body,
	}, nil
}

// logged writes what became of a request.
func (h chatHandler) logged(r *http.Request, what string, taken chat.Taken, err error) {
	attrs := []slog.Attr{
		slog.Int64(telemetry.KeyOrganization, taken.Organization), slog.String("channel", taken.Channel), slog.String("outcome", taken.Outcome),
		slog.Int64("member", taken.Member),
	}
	if taken.Verb != "" {
		attrs = append(attrs, slog.String("command", taken.Verb))
	}
	if err != nil {
		attrs = append(attrs, slog.Any(telemetry.KeyError, err))
		h.log.LogAttrs(r.Context(), fault.Describe(fault.ClassOf(err)).Level, what+" refused", attrs...) //nolint:sloglint // one of two texts
		return
	}
	h.log.LogAttrs(r.Context(), slog.LevelInfo, what, attrs...) //nolint:sloglint // one of two texts
}

// take answers the press of a button. What it returns says whether a chat server has proved itself; the request has been answered.
func (h chatHandler) take(w http.ResponseWriter, r *http.Request) error {
	asked, err := h.request(w, r)
	if asked == nil {
		return err
	}
	taken, err := h.chats.Take(r.Context(), *asked)
	h.logged(r, "press in a chat", taken, err)
	if err != nil {
		known(w, "chat", err)
		return err
	}
	answer := map[string]any{}
	if taken.Text != "" && taken.ByAnswer() {
		answer["ephemeral_text"] = taken.Text
	}
	return answered(w, answer)
}

// command answers a slash command as take does a press: to its user alone. Who has proved itself gets a text also if it cannot be
// performed.
func (h chatHandler) command(w http.ResponseWriter, r *http.Request) error {
	asked, err := h.request(w, r)
	if asked == nil {
		return err
	}
	taken, err := h.chats.Command(r.Context(), *asked)
	h.logged(r, "command in a chat", taken, err)
	if err != nil && taken.Text == "" {
		known(w, "chat", err)
		return err
	}
	answer := map[string]any{}
	if taken.Text != "" {
		answer = taken.Message()
		answer["response_type"] = "ephemeral"
	}
	return answered(w, answer)
}

func answered(w http.ResponseWriter, answer map[string]any) error {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // a client that is gone needs no answer
	return nil
}
