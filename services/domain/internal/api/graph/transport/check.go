package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// maxBody is how many bytes a request may have.
const maxBody = 1 << 20

// Check checks method, content type and body of a request, so that GraphQL sees only complete and readable ones. A request without an
// actor in its context is answered 401.
func Check(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok := core.ActorFrom(r.Context())
		if !ok || actor.Organization <= 0 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="lockstep"`)
			refuse(w, http.StatusUnauthorized, fault.Describe(fault.Unauthenticated).GraphQL, "nobody has been authenticated")
			return
		}
		switch r.Method {
		case http.MethodGet:
			if r.URL.Query().Get("query") == "" {
				refuse(w, http.StatusBadRequest, invalid, "query: missing; expected a GraphQL query in the URL, or a POST")
				return
			}
		case http.MethodPost:
			if !checkPost(w, r) {
				return
			}
		default:
			w.Header().Set("Allow", "GET, POST")
			refuse(w, http.StatusMethodNotAllowed, invalid, fmt.Sprintf("method: found %s; expected GET or POST", r.Method))
			return
		}
		next.ServeHTTP(w, r.WithContext(withResume(r.Context(), r)))
	})
}

const invalid = "INVALID"

// checkPost reads the body of a request and puts it back if it is one; otherwise it answers.
func checkPost(w http.ResponseWriter, r *http.Request) bool {
	found := r.Header.Get("Content-Type")
	media, parameters, err := mime.ParseMediaType(found)
	if charset := parameters["charset"]; err != nil || media != "application/json" || (charset != "" && !strings.EqualFold(charset, "utf-8")) {
		refuse(w, http.StatusUnsupportedMediaType, invalid, fmt.Sprintf("content-type: found %q; expected application/json in UTF-8", found))
		return false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		refuse(w, http.StatusRequestEntityTooLarge, invalid, fmt.Sprintf("body: found more; expected at most %d bytes", maxBody))
		return false
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, invalid, fmt.Sprintf("body: found an end after %d bytes; expected as many as the header announces",
			len(body)))
		return false
	}
	var request struct {
		Query         *string         `json:"query"`
		OperationName *string         `json:"operationName"`
		Variables     map[string]any  `json:"variables"`
		Extensions    json.RawMessage `json:"extensions"`
	}
	if err := json.Unmarshal(body, &request); err != nil || request.Query == nil {
		problem := "body: found no query; expected {\"query\": \"…\"}"
		var mismatch *json.UnmarshalTypeError
		switch {
		case errors.As(err, &mismatch):
			problem = fmt.Sprintf("%s: found %s; expected {\"query\": \"…\", \"variables\": {…}}",
				strings.TrimSuffix("body."+mismatch.Field, "."), mismatch.Value)
		case err != nil:
			problem = fmt.Sprintf("body: %s; expected {\"query\": \"…\", \"variables\": {…}}", err)
		}
		refuse(w, http.StatusBadRequest, invalid, problem)
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return true
}

// refuse answers a request that GraphQL has not seen, in GraphQL's form.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/graphql-response+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // an error means that the caller hung up
		"errors": []any{map[string]any{"message": message, "extensions": map[string]any{"code": code}}},
	})
}
