package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/time/rate"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// The headers by which senders of CloudEvents ask for permission to deliver (CloudEvents, HTTP 1.1 Web Hooks, "Abuse Protection").
const (
	requestOrigin = "Webhook-Request-Origin"
	requestRate   = "Webhook-Request-Rate"
	// allowedPerMinute is the default rate of a hook.
	allowedPerMinute = 200 * 60
	maxOrigin        = 253
)

// handshake answers senders that ask for permission to deliver. It is always granted on delivery paths, whether or not the hook exists:
// each delivery has to prove its origin. The callback address that senders may name is not used.
func handshake(formats []Format, c clock.Clock, next http.Handler) http.Handler {
	limit := rate.NewLimiter(strangersPerSecond, strangersAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get(requestOrigin)
		takes := strings.HasPrefix(r.URL.Path, HookPath) || slices.ContainsFunc(formats, func(f Format) bool { return f.Path == r.URL.Path })
		if r.Method != http.MethodOptions || !takes || origin == "" {
			next.ServeHTTP(w, r)
			return
		}
		if !limit.AllowN(c.Now(), 1) {
			tooMany(w, r)
			return
		}
		if len(origin) > maxOrigin {
			refuse(w, r, refusal{
				status: http.StatusBadRequest, field: "webhook-request-origin", found: strconv.Itoa(len(origin)) + " bytes",
				expected: "a host name",
			})
			return
		}
		h := w.Header()
		h.Set("Allow", http.MethodPost)
		h.Set("Webhook-Allowed-Origin", origin)
		if r.Header.Get(requestRate) != "" {
			h.Set("Webhook-Allowed-Rate", strconv.Itoa(allowedPerMinute))
		}
		w.WriteHeader(http.StatusOK)
	})
}

// validated answers the event by which Azure Event Grid, in its own schema, asks for permission to deliver, and reports whether it was one.
// The sender has been authenticated before.
func validated(w http.ResponseWriter, r *http.Request, body []byte) bool {
	if !strings.EqualFold(r.Header.Get("Aeg-Event-Type"), "SubscriptionValidation") {
		return false
	}
	var events []struct {
		Data struct {
			Code string `json:"validationCode"`
		} `json:"data"`
	}
	const maxCode = 512
	if json.Unmarshal(body, &events) != nil || len(events) != 1 || events[0].Data.Code == "" || len(events[0].Data.Code) > maxCode {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"validationResponse": events[0].Data.Code}) // the sender hung up
	return true
}
