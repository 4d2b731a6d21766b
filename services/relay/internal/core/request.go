package core

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
)

// The bounds of http.request. What it answers becomes part of a history.
const (
	defaultSeconds, mostSeconds = 30, 300
	defaultKept, mostKept       = 64 << 10, 256 << 10
	mostSent                    = 256 << 10
)

// CodeStatus is the error of a request whose answer still had a status to retry at the end.
const CodeStatus = "status"

// Web sends requests from inside the cluster. The error is Unavailable if there was no answer and the server cannot have executed the
// request, Conflict if it may have, and otherwise what a repeat would not change.
type Web interface {
	Send(ctx context.Context, r WebRequest) (WebAnswer, error)
}

// WebRequest is one request.
type WebRequest struct {
	Method string
	URL    *url.URL
	Header map[string]string
	Body   []byte
	// Credential is the name of one in the relay's configuration; "" for none. Its URLs have to cover the request's.
	Credential string
	Timeout    time.Duration
	// Keep is how much of the body is kept.
	Keep int
}

// WebAnswer is the answer to one. Names of headers are in lower case. Body is nil if it is longer than what is kept.
type WebAnswer struct {
	Status int
	Header map[string]string
	Body   []byte
	Size   int64
	Digest string
}

// ParseAllowance reads an entry of allow_requests: the beginning of URLs, in front of which methods may be, as in GET,HEAD http://….
func ParseAllowance(entry string) (methods []string, prefix string, err error) {
	prefix = entry
	if before, after, found := strings.Cut(entry, " "); found {
		methods, prefix = strings.Split(before, ","), after
	}
	for _, m := range methods {
		if !slices.Contains(methodsOfRequests(), m) {
			return nil, "", fault.New(fault.Invalid, "found the method %q, expected %s", m, strings.Join(methodsOfRequests(), ", "))
		}
	}
	if _, err := sealing.ParseURL(prefix, "https", "http"); err != nil {
		return nil, "", err
	}
	return methods, prefix, nil
}

func methodsOfRequests() []string {
	return []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"}
}

// permitRequest refuses a request to what the relay's configuration does not name. nil allows none: what a cluster's services trust is
// often only that a request comes from inside.
func (l Limits) permitRequest(method string, target *url.URL) error {
	for _, entry := range l.Requests {
		methods, prefix, err := ParseAllowance(entry)
		if err == nil && (methods == nil || slices.Contains(methods, method)) && sealing.Covers([]string{prefix}, target) {
			return nil
		}
	}
	return &Error{Code: CodeForbidden, Message: fmt.Sprintf("found %s %s://%s%s, expected a request that this relay's allow_requests has: %s",
		method, target.Scheme, target.Host, target.EscapedPath(), strings.Join(l.Requests, "; "))}
}

// requestCall are the arguments of http.request.
type requestCall struct {
	WebRequest

	repeatable bool
	retried    []int64
	shown      []string
}

// parseRequest parses them.
func parseRequest(call Call) (requestCall, error) {
	a, err := readArgs(call.Args)
	if err != nil {
		return requestCall{}, err
	}
	a.known["agent_id"] = true
	r := requestCall{WebRequest: WebRequest{
		Method: a.oneOf("method", methodsOfRequests()...), Header: map[string]string{"User-Agent": "Lockstep"}, Credential: a.text("credential", false),
		Timeout: time.Duration(a.bounded("timeout", defaultSeconds, mostSeconds)) * time.Second,
	}, shown: a.texts("response_headers")}
	if r.URL, err = sealing.ParseURL(a.text("url", true), "https", "http"); err != nil {
		a.problem("url", "%s", fault.Public(err))
	}
	r.Keep = defaultKept
	if a.values["max_body"] != nil {
		if r.Keep = int(a.number("max_body", 0)); r.Keep > mostKept {
			a.problem("max_body", "found %d, expected at most %d", r.Keep, mostKept)
		}
	}
	a.known["max_body"] = true
	r.Body = a.body(r.Header)
	given, _ := a.object("headers")
	for _, name := range slices.Sorted(maps.Keys(given.values)) {
		r.Header[name] = given.text(name, false)
	}
	r.repeatable = a.flag("repeatable") || r.Method != "POST" && r.Method != "PATCH"
	r.retried = a.statuses(r.repeatable)
	if !slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, r.Method) {
		r.Header["Idempotency-Key"] = call.ID
	}
	a.rest()
	return r, a.err()
}

// body reads the body of a request, and notes its type.
func (a args) body(header map[string]string) []byte {
	text := a.text("body", false)
	a.known["json"] = true
	content := []byte(text)
	if value := a.values["json"]; value != nil {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(value); err != nil || text != "" {
			a.problem("json", "expected a value, without body")
		}
		content, header["Content-Type"] = bytes.TrimSuffix(b.Bytes(), []byte("\n")), "application/json"
	}
	if len(content) > mostSent {
		a.problem("body", "found %d bytes, expected at most %d", len(content), mostSent)
	}
	return content
}

// statuses reads the statuses after which a request is repeated.
func (a args) statuses(repeatable bool) []int64 {
	a.known["retry_status"] = true
	list, given := a.values["retry_status"].([]any)
	if !given {
		if repeatable {
			return []int64{408, 425, 429, 500, 502, 503, 504}
		}
		return []int64{425, 429, 503} // the server has not executed it
	}
	var all []int64
	for i, each := range list {
		n, isNumber := each.(json.Number)
		status, err := n.Int64()
		if !isNumber || err != nil {
			a.problem(fmt.Sprintf("retry_status[%d]", i), "found %s, expected a whole number", describe(each))
		}
		all = append(all, status)
	}
	return all
}

// request sends a request from inside the cluster. Redirects are answers: they are not followed.
func (r *Runner) request(ctx context.Context, call Call) (map[string]any, error) {
	want, err := parseRequest(call)
	if err != nil {
		return nil, err
	}
	if err := r.limits.permitRequest(want.Method, want.URL); err != nil {
		return nil, err
	}
	if value, known := r.sent.of(call.ID); known { // the answer to an attempt was lost: the server is not asked again
		return value, nil
	}
	what := want.Method + " " + want.URL.Scheme + "://" + want.URL.Host + want.URL.EscapedPath()
	answer, err := r.web.Send(ctx, want.WebRequest)
	switch {
	case fault.Is(err, fault.Conflict) && !want.repeatable:
		return nil, &Error{Code: CodeUnreachable, Message: what + ": " + fault.Public(err) + "; the server may have executed it"}
	case fault.Is(err, fault.Conflict):
		return nil, &Error{Code: CodeUnreachable, Message: what + ": " + fault.Public(err), Retryable: true}
	case err != nil:
		return nil, err
	case slices.Contains(want.retried, int64(answer.Status)):
		return nil, &Error{Code: CodeStatus, Message: fmt.Sprintf("%s answered %d", what, answer.Status), Retryable: true}
	}
	value, err := fits(what, recorded(want, answer))
	if err == nil && want.Header["Idempotency-Key"] != "" {
		r.sent.keep(call.ID, value)
	}
	return value, err
}

// recorded is what the program receives, in the form of requests that the workflow service sends itself.
func recorded(want requestCall, answer WebAnswer) map[string]any {
	headers := map[string]any{}
	for _, name := range append([]string{"content-type", "etag", "last-modified", "link", "location", "retry-after", "x-request-id"}, want.shown...) {
		name = strings.ToLower(name)
		if value, given := answer.Header[name]; given && name != "set-cookie" {
			headers[name] = withoutSecrets(value)
		}
	}
	value := map[string]any{
		"status": answer.Status, "ok": answer.Status/100 == 2, "headers": headers, "size": answer.Size, "sha256": answer.Digest, "body": nil, "json": nil,
	}
	if answer.Body == nil || !utf8.Valid(answer.Body) || bytes.ContainsRune(answer.Body, 0) {
		return value
	}
	value["body"] = string(answer.Body)
	kind, _, err := mime.ParseMediaType(answer.Header["content-type"])
	if err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json")) {
		d := json.NewDecoder(bytes.NewReader(answer.Body))
		d.UseNumber()
		var decoded any
		if d.Decode(&decoded) == nil && !d.More() {
			value["json"] = decoded
		}
	}
	return value
}

// mostKnown is how many answers are remembered, and knownFor how long.
const (
	mostKnown = 200
	knownFor  = 15 * time.Minute
)

// answers remembers what changing requests have led to: an answer to the control plane may get lost, and the call is repeated then. After a
// restart the server recognizes a repeat by its Idempotency-Key, if at all.
type answers struct {
	mu    sync.Mutex
	now   func() time.Time
	calls []known
}

type known struct {
	call  string
	at    time.Time
	value map[string]any
}

func (a *answers) of(call string) (map[string]any, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget()
	for _, k := range a.calls {
		if k.call == call {
			return k.value, true
		}
	}
	return nil, false
}

func (a *answers) keep(call string, value map[string]any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget()
	if len(a.calls) == mostKnown {
		a.calls = a.calls[1:]
	}
	a.calls = append(a.calls, known{call, a.now(), value})
}

// forget drops what is too old. The oldest is the first.
func (a *answers) forget() {
	now := a.now()
	a.calls = slices.DeleteFunc(a.calls, func(k known) bool { return now.Sub(k.at) > knownFor })
}
