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
const ChatPath = notify.CallbackPath

// Chats takes what chat servers send.
type Chats interface {
	Take(ctx context.Context, r chat.Request) (chat.Taken, error)
}

// chatHandler takes the presses of buttons. Nobody is signed in: the chat server proves what it sends, and package chat checks it.
type chatHandler struct {
	chats Chats
	log   *slog.Logger
}

// pressed slows down callers who prove nothing. A channel whose chat server has proved itself from an address is not slowed down by what
// others send from there: the addresses of Slack are those of all apps.
func (k keyring) pressed(h chatHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		credential := r.URL.Path + "\n" + k.guard.AddressOf(r)
		if !k.mayTry(w, r, "chat", credential) {
			return
		}
		switch err := h.take(w, r); {
		case err == nil:
			k.guard.Passed(k.clock.Now(), credential)
		case fault.Is(err, fault.Unauthenticated):
			k.guard.FailedAt(k.clock.Now(), k.guard.AddressOf(r))
			telemetry.AuthenticationFailed(telemetry.ProtocolHTTP, telemetry.OutcomeRefused)
		}
	}
}

// take answers one request. What it returns says whether a chat server has proved itself; the request has been answered.
func (h chatHandler) take(w http.ResponseWriter, r *http.Request) error {
	organization, err := organizationOf(r.PathValue("organization"))
	if err != nil || organization == 0 {
		err = fault.New(fault.Unauthenticated, "found no organization in the address; expected %sorganization_<number>/<channel>", ChatPath)
		known(w, "chat", err)
		return err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, chat.MaxBody))
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		refuse(w, http.StatusRequestEntityTooLarge, "INVALID", "chat: found a larger body than chat servers send")
		return errProvedNothing
	}
	if err != nil {
		return fault.New(fault.Unavailable, "the client is gone")
	}
	taken, err := h.chats.Take(r.Context(), chat.Request{
		Organization: organization, Channel: r.PathValue("channel"), Timestamp: r.Header.Get("X-Slack-Request-Timestamp"),
		Signature: r.Header.Get("X-Slack-Signature"), Body: body,
	})
	attrs := []slog.Attr{
		slog.Int64(telemetry.KeyOrganization, organization), slog.String("channel", taken.Channel), slog.String("outcome", taken.Outcome),
		slog.Int64("member", taken.Member),
	}
	if err != nil {
		attrs = append(attrs, slog.Any(telemetry.KeyError, err))
		h.log.LogAttrs(r.Context(), fault.Describe(fault.ClassOf(err)).Level, "press in a chat refused", attrs...)
		known(w, "chat", err)
		return err
	}
	h.log.LogAttrs(r.Context(), slog.LevelInfo, "press in a chat", attrs...)
	w.Header().Set("Content-Type", "application/json")
	answer := map[string]string{}
	if taken.Text != "" && taken.ByAnswer() {
		answer["ephemeral_text"] = taken.Text
	}
	_ = json.NewEncoder(w).Encode(answer) // a client that is gone needs no answer
	return nil
}
