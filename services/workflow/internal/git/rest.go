package git

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// rest asks a forge's interface for JSON.
type rest struct {
	client *http.Client
	// forge is the interface's name, and url the repository's, for messages.
	forge, url string
	// project is the path of the repository at its forge.
	project string
	// base is the address of the project in the interface, user that of the credential's own account, and authorization what we show them.
	base, user, authorization string
	// graph is the address of GitHub's GraphQL interface, which alone says who an App is.
	graph string
	// now is the time, and seen what the last answer says about the requests that are still accepted.
	now  func() time.Time
	seen *allowance
}

// ask sends a request below the project's address, and reads the answer into out. in and out may be nil.
func (r rest) ask(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fault.Because(err, fault.Internal, "encode a request to %s", r.url)
		}
		body = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, r.base+path, body)
	if err != nil {
		return fault.Because(err, fault.Invalid, "%s cannot be looked up at its %s", r.url, r.forge)
	}
	request.Header.Set("Authorization", r.authorization)
	request.Header.Set("Accept", "application/json")
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	client := *r.client
	if method != http.MethodGet {
		// What is written goes to the project that was named, and to none that took its place.
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	answer, err := client.Do(request)
	if err != nil {
		if fault.Is(err, fault.Denied) { // by the rules about where a program may go
			return fault.Because(err, fault.Refused, "%s may not be reached: %s", r.url, fault.Public(err))
		}
		return silent(r.url, err)
	}
	defer answer.Body.Close()
	r.look(answer)
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		return fault.Because(err, fault.Unavailable, "reading from %s was interrupted", r.url)
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return r.classify(answer, raw)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fault.Because(err, fault.NotFound, "%s does not answer like %s", r.url, r.forge)
	}
	return nil
}

// classify turns a status into an error for the caller.
func (r rest) classify(answer *http.Response, body []byte) error {
	status := answer.StatusCode
	// GitHub says 403 of too many requests as well.
	limited := answer.Header.Get("X-Ratelimit-Remaining") == "0" || answer.Header.Get("Retry-After") != ""
	switch {
	case status == http.StatusUnauthorized:
		return fault.New(fault.Unauthenticated, "%s does not accept the configured credentials", r.url)
	case status == http.StatusTooManyRequests, status == http.StatusForbidden && limited, status == http.StatusServiceUnavailable && limited:
		return fault.Because(&limitError{r.pause(answer)}, fault.Unavailable, "%s answers with status %d", r.url, status)
	case status >= http.StatusInternalServerError:
		return fault.New(fault.Unavailable, "%s answers with status %d", r.url, status)
	case status == http.StatusForbidden:
		return fault.New(fault.Denied, "the configured credentials may not use %s: %s", r.url, messageOf(body))
	case status == http.StatusNotFound:
		return fault.New(fault.NotFound, "%s has no such thing, or does not show it", r.url)
	default:
		return fault.New(fault.Refused, "%s refuses with status %d: %s", r.url, status, messageOf(body))
	}
}

// messageOf is the message of a refusal, shortened.
func messageOf(body []byte) string {
	var document struct {
		Message any `json:"message"`
		Errors  any `json:"errors"`
	}
	text := string(body)
	if json.Unmarshal(body, &document) == nil {
		if found := sentences(document.Message); len(found) > 0 {
			text = strings.Join(found, "; ")
		}
		if found := sentences(document.Errors); len(found) > 0 && document.Message != nil { // why, where the message only says that it failed
			text += ": " + strings.Join(found, "; ")
		}
	}
	const most = 300
	return strings.ToValidUTF8(text[:min(len(text), most)], "?")
}

// sentences are the texts of a member of an answer: one, a list of them as at GitLab, or of objects with a message as at GitHub.
func sentences(member any) (found []string) {
	switch m := member.(type) {
	case string:
		return []string{m}
	case []any:
		for _, one := range m {
			if object, is := one.(map[string]any); is {
				one = object["message"]
			}
			if text, is := one.(string); is {
				found = append(found, text)
			}
		}
	}
	return found
}

// missing turns NotFound into an error that says what is missing.
func missing(err error, format string, args ...any) error {
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, format, args...)
	}
	return err
}

// decode reads content as forges put it into JSON: base64, some of them in lines.
func (r rest) decode(content string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(content, "\n", ""))
	if err != nil {
		return nil, fault.Because(err, fault.NotFound, "%s does not answer like %s", r.url, r.forge)
	}
	return b, nil
}

func encode(content []byte) string { return base64.StdEncoding.EncodeToString(content) }
