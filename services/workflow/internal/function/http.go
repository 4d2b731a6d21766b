package function

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// The bounds of http.request.
const (
	defaultSeconds, mostSeconds = 30, 300
	defaultKept, mostKept       = 64 << 10, 1 << 20
	mostKeptInCluster           = 256 << 10
	mostHeaders                 = 64
	mostRetryAfter              = 10 * time.Minute
)

// CodeStatus is the code of an answer that still has a status to retry when the timeout ends.
const CodeStatus = "status"

// IdempotencyHeader is the header with the id of a call.
const IdempotencyHeader = "Idempotency-Key"

// httpRequest is http.request. Its calls with methods that only read are no changes.
func httpRequest(web activity.Web) *Function {
	text := func(name, doc string) Field { return Field{Name: name, Doc: doc, Type: Text} }
	return &Function{
		spec: Spec{
			Name: "http.request", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: false,
			Effect: activity.Changes, Touches: touchesURL, EffectOf: effectOfRequest, TakesBackAt: opensWorkflows,
			Check: checkRequest, LocationOf: sentFrom, Web: true,
			Doc: "Sends an HTTP request. Answers `{status, ok, headers, body, json, size, sha256}`: `ok` is whether the status is 2xx, `body` the text of\n" +
				"the answer, `json` the value if the answer is JSON, `size` and `sha256` the length and digest of the body. `body` and `json` are None\n" +
				"if the body is longer than `max_body`, and `body` if it is not UTF-8 text; an answer of more than 64 MiB is an error. `headers` has\n" +
				"lower-case names.\n\n" +
				"An answer is a value, whatever its status, except for those of `retry_status`: after these the request is repeated until the timeout of\n" +
				"the call, not before the time in `Retry-After`; the error is then `status`. If no answer was received, it is repeated, too. A method\n" +
				"that changes something and is not idempotent by itself (`POST`, `PATCH`) is repeated only if the server cannot have executed it, or\n" +
				"with `repeatable`. Every attempt of a call carries the same `Idempotency-Key`.\n\n" +
				"Only `GET` and `HEAD` follow redirects, at most three. Servers that are not public can be reached only if an operator allows them\n" +
				"(`http_allow_networks`). `GET`, `HEAD` and `OPTIONS` change nothing and need no passage.\n" +
				"A `PUT` that stops or terminates a Workflow at an Argo Server (`…/api/v1/workflows/NAMESPACE/NAME/stop`) is executed after an abort, too,\n" +
				"if its body is at most `{name, namespace}` in `json`, and a passage opens that path (a place with `url_path` `/api/v1/workflows/`).",
			Arguments: []Field{
				{Name: "url", Doc: "The URL, `https://…`.", Type: Text, Required: true},
				{
					Name: "method", Doc: "The method; `GET` by default.", Type: Text,
					OneOf: []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"},
				},
				{Name: "headers", Doc: "Headers to send. What proves an identity is sent with `credential` instead.", Type: Texts},
				text("body", "The body, as text."),
				{Name: "json", Doc: "The body, as a value that is sent as JSON; either this or `body`.", Type: Any},
				{Name: "timeout", Doc: "The timeout of one attempt in seconds, at most 300; 30 by default.", Type: Number, Least: 1},
				{
					Name: "agent_id", Type: Number, Least: 1,
					Doc: "The number of an agent, whose relay sends the request from inside its cluster: to what its `allow_requests` names, and with a `credential` of its " +
						"`request_credentials`. Not with `url_credential`, `json_credentials` and `sign`. Body and answer have at most 256 KiB, and no redirect is followed.",
				},
				text("credential", "The name of a credential of the organization, or of one that an operator has configured for it (`http_credentials`), or of one of the "+
					"run's `secrets`. It is sent only to the URLs that it is bound to, also after a redirect."),
				text("url_credential", "The name of a credential that is the URL itself, such as that of an incoming webhook. It has to begin with `url`, and its "+
					"credential has to be bound to it. Either this or `credential`."),
				{
					Name: "json_credentials", Doc: "Names of credentials whose secrets are members of the body, by the names of the members: for servers that expect a secret there. " +
						"A name that begins with / is a JSON Pointer to a member of an object inside. The body has to be an object in `json`, without these members. " +
						"Not with `url_credential`.", Type: Texts,
				},
				{
					Name: "sign", Doc: "Names of credentials whose secrets sign the request as [Standard Webhooks](https://www.standardwebhooks.com) does, with a signature " +
						"for each: two while a secret is replaced. A secret is `whsec_` and 24 to 64 bytes in Base64.",
					Type: List, Element: &Field{Type: Text, Required: true},
				},
				text("sign_id", "The identifier of the signed message (`webhook-id`), by which receivers recognize a repeat; that of the call by default."),
				{
					Name: "retry_status", Doc: "The statuses after which the request is repeated; by default 408, 425, 429, 500, 502, 503 and 504, and for `POST` and `PATCH` " +
						"without `repeatable` 425, 429 and 503. An empty list makes every status a value.",
					Type: List, Element: &Field{Type: Number, Least: 100},
				},
				{Name: "repeatable", Doc: "The server executes a request once even if it receives it twice, such as by its `Idempotency-Key`.", Type: Flag},
				{
					Name: "response_headers", Doc: "Headers of the answer to record besides `content-type`, `etag`, `last-modified`, `link`, `location`, `retry-after` and " +
						"`x-request-id`.",
					Type: List, Element: &Field{Type: Text, Required: true},
				},
				{Name: "max_body", Doc: "The maximum length of the recorded body in bytes, at most 1 MiB; 64 KiB by default. 0 records only the digest.", Type: Number},
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			r, err := requestOf(call)
			if err != nil {
				return nil, err
			}
			answer, err := web.Send(ctx, r)
			if err != nil {
				return nil, unsent(err)
			}
			if err := repeated(call.Args, r, answer); err != nil {
				return nil, err
			}
			return recorded(ctx, call.Args, answer), nil
		},
	}
}

// sentFrom is where a request is sent from.
func sentFrom(args map[string]any) activity.Location {
	if args["agent_id"] != nil {
		return activity.Cluster
	}
	return activity.InProcess
}

// touchesURL is what a request changes. One from inside a cluster changes the namespace of the service that it is sent to, or, as far as is
// known, anything there.
func touchesURL(args map[string]any) []activity.Place {
	if agent, given := whole(args["agent_id"]); given {
		return []activity.Place{{Agent: agent, Namespace: namespaceOf(text(args, "url"))}}
	}
	return []activity.Place{{URL: text(args, "url")}}
}

// serviceHost is the name of a service in its cluster.
var serviceHost = regexp.MustCompile(`^[a-z0-9-]+\.([a-z0-9-]+)\.svc(?:\.cluster\.local)?\.?$`)

// namespaceOf is the namespace of the service that a URL is of; "" for any other host.
func namespaceOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	if found := serviceHost.FindStringSubmatch(strings.ToLower(u.Hostname())); found != nil {
		return found[1]
	}
	return ""
}

// method is that of a call.
func method(args map[string]any) string {
	if m := text(args, "method"); m != "" {
		return m
	}
	return http.MethodGet
}

// effectOfRequest is Reads for methods that change nothing (RFC 9110, 9.2.1), and TakesBack for what ends a Workflow at an Argo Server, as
// workflow.stop and workflow.terminate do through a relay (R2-34).
func effectOfRequest(args map[string]any) activity.Effect {
	switch method(args) {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return activity.Reads
	case http.MethodPut:
		if args["agent_id"] == nil && endsWorkflow(args) {
			return activity.TakesBack
		}
	}
	return activity.Changes
}

// workflowsPath is where an Argo Server has its Workflows, by their namespaces.
const workflowsPath = "/api/v1/workflows/"

// opensWorkflows reports whether a place is declared as Workflows at an Argo Server. At other places the path does not say what a request
// does: a bucket has content at any path.
func opensWorkflows(opened, touched activity.Place) bool {
	return opened.URL != activity.AnyURL && opened.Covers(touched) > 0 && strings.Contains(activity.SameURL(opened.URL)+"/", workflowsPath)
}

// workflowEnd is the path at which an Argo Server ends a Workflow, with the namespace and the name.
var workflowEnd = regexp.MustCompile(`^(?:/[A-Za-z0-9._~-]+)*` + workflowsPath + `([a-z0-9-]+)/([a-z0-9.-]+)/(?:stop|terminate)$`)

// endsWorkflow reports whether a request does nothing but end a Workflow at an Argo Server. One whose URL servers might read in several
// ways does not, nor one that brings anything else: with a nodeFieldSelector a stop ends one node, and the Workflow continues.
func endsWorkflow(args map[string]any) bool {
	raw, _ := args["url"].(string)
	u, err := url.Parse(raw)
	if err != nil || u.RawQuery != "" || u.EscapedPath() != u.Path || path.Clean(u.Path) != u.Path {
		return false
	}
	found := workflowEnd.FindStringSubmatch(u.Path)
	if found == nil || args["url_credential"] != nil || args["body"] != nil || args["json_credentials"] != nil {
		return false
	}
	if args["json"] == nil {
		return true
	}
	body, isObject := args["json"].(map[string]any)
	for name, value := range body {
		if name != "namespace" && name != "name" || name == "namespace" && value != found[1] || name == "name" && value != found[2] {
			return false
		}
	}
	return isObject
}

// repeats reports whether a request may be sent twice: by its method (RFC 9110, 9.2.2), or because the program says so.
func repeats(args map[string]any) bool {
	m := method(args)
	declared, _ := args["repeatable"].(bool)
	return declared || m != http.MethodPost && m != http.MethodPatch
}

// checkRequest finds what is wrong with arguments that are of the right types.
func checkRequest(args map[string]any) (wrong []fault.Field) {
	report := func(name, format string, values ...any) {
		wrong = append(wrong, fault.Field{Name: name, Problem: fmt.Sprintf(format, values...)})
	}
	_, isText := args["body"].(string)
	if isText && args["json"] != nil {
		report("json", "found with body, expected one of them")
	}
	if m := method(args); (isText || args["json"] != nil) && (m == http.MethodGet || m == http.MethodHead) {
		report("body", "found with the method %s, expected none", m)
	}
	if n, given := whole(args["timeout"]); given && n > mostSeconds {
		report("timeout", "found %d, expected at most %d seconds", n, mostSeconds)
	}
	if n, given := whole(args["max_body"]); given && n > mostKept {
		report("max_body", "found %d, expected at most %d bytes", n, mostKept)
	}
	headers := texts(args, "headers")
	if len(headers) > mostHeaders {
		report("headers", "found %d, expected at most %d", len(headers), mostHeaders)
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if problem := wrongHeader(name); problem != "" {
			report("headers."+name, "%s", problem)
		}
		if strings.ContainsFunc(headers[name], func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			report("headers."+name, "found a control character, expected text in one line")
		}
	}
	if list, _ := args["response_headers"].([]any); len(list) > mostHeaders {
		report("response_headers", "found %d, expected at most %d", len(list), mostHeaders)
	}
	wrong = append(wrong, checkSigned(args)...)
	if args["agent_id"] != nil {
		for _, name := range []string{"url_credential", "json_credentials", "sign", "sign_id"} {
			if args[name] != nil {
				report(name, "found with agent_id, expected none: secrets for requests from inside a cluster are those of its relay")
			}
		}
		if n, given := whole(args["max_body"]); given && n > mostKeptInCluster {
			report("max_body", "found %d with agent_id, expected at most %d bytes", n, mostKeptInCluster)
		}
	}
	for _, name := range list(args, "response_headers") {
		if strings.EqualFold(name, "set-cookie") {
			report("response_headers", "found set-cookie, which may be a secret")
		}
	}
	return wrong
}

// mostSignatures is how many secrets sign a request at most.
const mostSignatures = 4

// signID is the form of a message's identifier: the signature is over it, a dot, the time, a dot and the body.
var signID = regexp.MustCompile(`^[A-Za-z0-9_/-]{1,255}$`)

// checkSigned finds what is wrong with the arguments about secret URLs and signatures.
func checkSigned(args map[string]any) (wrong []fault.Field) {
	if text(args, "url_credential") != "" && text(args, "credential") != "" {
		wrong = append(wrong, fault.Field{Name: "url_credential", Problem: "found with credential, expected one of them"})
	}
	if n := len(list(args, "sign")); n > mostSignatures {
		wrong = append(wrong, fault.Field{Name: "sign", Problem: fmt.Sprintf("found %d, expected at most %d", n, mostSignatures)})
	}
	if secrets := texts(args, "json_credentials"); len(secrets) > 0 {
		if _, isObject := args["json"].(map[string]any); !isObject || text(args, "url_credential") != "" || len(secrets) > mostSignatures {
			wrong = append(wrong, fault.Field{Name: "json_credentials", Problem: fmt.Sprintf(
				"found %d with a body that is no object in json, or with url_credential; expected at most %d members of json", len(secrets), mostSignatures)})
		}
	}
	if id := text(args, "sign_id"); id != "" && !signID.MatchString(id) {
		wrong = append(wrong, fault.Field{Name: "sign_id", Problem: fmt.Sprintf("found %.100q, expected letters, digits, -, _ and /", id)})
	}
	return wrong
}

// wrongHeader says why a program may not set a header.
func wrongHeader(name string) string {
	switch strings.ToLower(name) {
	case "webhook-id", "webhook-timestamp", "webhook-signature":
		return "it is set by the argument sign"
	case "authorization", "proxy-authorization", "cookie":
		return "its value would be recorded in the history; expected the argument credential instead"
	case "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "proxy-connection", "expect",
		"accept-encoding":
		return "it is not the program's to set"
	case "x-http-method-override", "x-http-method", "x-method-override": // a GET, which needs no passage, would be a DELETE to some servers
		return "servers would take it for the method; expected the argument method instead"
	}
	if name == "" || strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "expected the name of a header"
	}
	return ""
}

// requestOf translates checked arguments.
func requestOf(call activity.Call) (activity.WebRequest, error) {
	args := call.Args
	r := activity.WebRequest{
		Organization: call.Organization, Delivery: id.Delivers(call.Workflow), Method: method(args), URL: text(args, "url"),
		Header:     map[string]string{"User-Agent": "Lockstep"},
		Credential: text(args, "credential"), Secrets: call.Secrets, Repeatable: repeats(args),
		Timeout: defaultSeconds * time.Second, Keep: defaultKept,
	}
	if effectOfRequest(args).Mutates() {
		r.Header[IdempotencyHeader] = call.ID
	}
	if body, given := args["body"].(string); given {
		r.Body = []byte(body)
	}
	if args["json"] != nil {
		encoded, err := plainJSON(args["json"])
		if err != nil {
			return r, err
		}
		r.Body, r.Header["Content-Type"] = encoded, "application/json"
	}
	for name, value := range texts(args, "headers") {
		r.Header[http.CanonicalHeaderKey(name)] = value
	}
	r.URLCredential = text(args, "url_credential")
	if secrets := texts(args, "json_credentials"); len(secrets) > 0 {
		r.JSONCredentials = secrets
	}
	if sign := list(args, "sign"); len(sign) > 0 {
		r.Sign = sign
		r.SignID = cmp.Or(text(args, "sign_id"), signed(call.ID))
	}
	if n, given := whole(args["timeout"]); given {
		r.Timeout = time.Duration(n) * time.Second
	}
	if n, given := whole(args["max_body"]); given {
		r.Keep = int(n)
	}
	return r, nil
}

// signed is the identifier of a call as that of a message.
func signed(call string) string { return strings.ReplaceAll(call, ".", "_") }

// plainJSON encodes a value as other programs do: <, > and & as they are.
func plainJSON(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, fault.Because(err, fault.Invalid, "json: found a value that JSON does not have")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// unsent is the error of a request without an answer.
func unsent(err error) error {
	if fault.Is(err, fault.Conflict) { // the server may have executed it: to repeat it is the program's decision
		return &history.FunctionError{Code: history.CodeUnreachable, Message: fault.Public(err)}
	}
	return err
}

// repeated is the error that has the engine repeat the request; nil if the answer is the value.
func repeated(args map[string]any, r activity.WebRequest, answer activity.WebAnswer) error {
	statuses := []int{408, 425, 429, 500, 502, 503, 504}
	if !r.Repeatable {
		statuses = []int{425, 429, 503} // the server has not executed it
	}
	if list, given := args["retry_status"].([]any); given {
		statuses = nil
		for _, each := range list {
			n, _ := whole(each)
			statuses = append(statuses, int(n))
		}
	}
	if !slices.Contains(statuses, answer.Status) {
		return nil
	}
	refusal := &history.FunctionError{
		Code: CodeStatus, Message: fmt.Sprintf("%s answered %d", activity.SameURL(r.URL), answer.Status), Retryable: true,
	}
	refusal.After = retryAfter(answer.Header)
	return refusal
}

// retryAfter is how long a server asks to wait: seconds, or a time, which is compared with the server's own.
func retryAfter(header map[string]string) time.Duration {
	if seconds, err := strconv.Atoi(header["retry-after"]); err == nil {
		return max(0, min(time.Duration(min(seconds, 1<<20))*time.Second, mostRetryAfter))
	}
	at, err := http.ParseTime(header["retry-after"])
	now, errNow := http.ParseTime(header["date"])
	if err != nil || errNow != nil {
		return 0
	}
	return max(0, min(at.Sub(now), mostRetryAfter))
}

// recorded is the value that the program receives, without secrets that the server has sent back.
func recorded(ctx context.Context, args map[string]any, answer activity.WebAnswer) map[string]any {
	headers := map[string]any{}
	wanted := append([]string{
		"content-type", "etag", "last-modified", "link", "location", "retry-after", "x-request-id",
	}, list(args, "response_headers")...)
	for _, name := range wanted {
		if value, given := answer.Header[strings.ToLower(name)]; given {
			headers[strings.ToLower(name)] = history.Storable(value)
		}
	}
	value := map[string]any{
		"status": answer.Status, "ok": answer.Status/100 == 2, "headers": headers, "size": answer.Size, "sha256": answer.Digest,
		"body": nil, "json": nil,
	}
	if answer.Body != nil && utf8.Valid(answer.Body) && !bytes.ContainsRune(answer.Body, 0) {
		value["body"] = string(answer.Body)
		if decoded, ok := decodeJSON(answer); ok {
			value["json"] = decoded
		}
	}
	clean, _ := activity.Clean(ctx, value).(map[string]any)
	return clean
}

// decodeJSON is the value of an answer that says that it is JSON, if programs can read it.
func decodeJSON(answer activity.WebAnswer) (any, bool) {
	kind, _, err := mime.ParseMediaType(answer.Header["content-type"])
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") || history.AnswerDoor.Check(answer.Body) != "" {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(answer.Body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil || !errors.Is(decoder.Decode(new(any)), io.EOF) {
		return nil, false
	}
	return value, true
}
