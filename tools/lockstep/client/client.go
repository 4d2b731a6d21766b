package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// maxAnswer bounds the size of a response.
const maxAnswer = 32 << 20

// Config is the configuration of a client.
type Config struct {
	// Endpoint is the address of the GraphQL API: http://127.0.0.1:8080/graphql.
	Endpoint string
	// Token is sent as a bearer token.
	Token string
	// HTTP sends the requests; nil means http.DefaultClient.
	HTTP *http.Client
	// Clock measures how long a stream is silent; nil means the system's.
	Clock clock.Clock
}

// Client calls one API. It is safe for concurrent use.
type Client struct {
	endpoint, token string
	http            *http.Client
	clock           clock.Clock
}

// New returns a client. It sends nothing before the first call.
func New(c Config) *Client {
	if c.HTTP == nil {
		c.HTTP = http.DefaultClient
	}
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	return &Client{endpoint: c.Endpoint, token: c.Token, http: c.HTTP, clock: c.Clock}
}

type request struct {
	Query     string         `json:"query"`
	Variables map[string]any `json:"variables,omitempty"`
}

type answer struct {
	Data   json.RawMessage `json:"data"`
	Errors []graphError    `json:"errors"`
}

type graphError struct {
	Message    string `json:"message"`
	Path       []any  `json:"path"`
	Extensions struct {
		Code string `json:"code"`
	} `json:"extensions"`
}

// UserError is one problem with the input of a mutation.
type UserError struct {
	Field   []string `json:"field"`
	Message string   `json:"message"`
	Code    string   `json:"code"`
}

// do sends one document and decodes its data. Errors have the class that the API gave them.
func (c *Client) do(ctx context.Context, query string, variables map[string]any, data any) error {
	err := c.ask(ctx, query, variables, data)
	if err == nil || !strings.Contains(err.Error(), unknownField) {
		return err
	}
	// A document that does not fit the schema is refused before any of it is executed, so it is safe to send others.
	for _, older := range []string{forBefore(query), forOlder(query)} {
		if older == query {
			continue
		}
		if err = c.ask(ctx, older, variables, data); err == nil || !strings.Contains(err.Error(), unknownField) {
			return err
		}
	}
	return err
}

// forBefore rewrites a query for a domain service that lacks only the latest fields.
func forBefore(query string) string {
	return strings.NewReplacer(
		lastQueuedNewer, "", queuedNewer, "", displayNewer, "", plannedNewer, "", attemptsNewer, "", workNewer+" ", " ",
	).Replace(query)
}

// IsUnknownField reports whether an error means that the server's schema lacks a field: the server is of an older release.
func IsUnknownField(err error) bool { return err != nil && strings.Contains(err.Error(), unknownField) }

// unknownField is how a server reports a field that its schema lacks.
const unknownField = "Cannot query field"

// forOlder rewrites a query for the previous release of the domain service: during an upgrade the command line may be newer than the
// server. A rollout's status was its state then.
func forOlder(query string) string {
	return strings.NewReplacer(
		" state status ", " state status: state ", rolloutNewer, "", lastQueuedNewer, "", queuedNewer, "", detailsNewer, "", namesNewer, "",
		causesNewer, "", gateNewer, "", linkNewer, "", attemptsNewer, "", waitNewer, "", journalNewer, "", driftNewer, "", editNewer, "",
		displayNewer, "", senderNewer, "", githubAppNewer, "", registryNewer, "", plannedNewer, "", " digestSeen ", " ", " deletedAt ", " ",
		" applicationLabels ", " ", " warnings", "", " triggers full ", " triggers ",
	).Replace(query)
}

// ask sends one request.
func (c *Client) ask(ctx context.Context, query string, variables map[string]any, data any) error {
	r, err := c.request(ctx, query, variables, "application/json")
	if err != nil {
		return err
	}
	r.Header.Set("Lockstep-Position", "now") // a standby of the database may answer, if it lacks nothing that exists now
	response, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fault.New(fault.Unavailable, "%s does not answer: %w", c.endpoint, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fault.New(fault.Unavailable, "read answer of %s: %w", c.endpoint, err)
	}
	return c.decode(response, text, data)
}

// request creates a request for a document, with the accepted media type.
func (c *Client) request(ctx context.Context, query string, variables map[string]any, accept string) (*http.Request, error) {
	body, err := json.Marshal(request{query, variables})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	if u, err := url.Parse(c.endpoint); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fault.New(fault.Invalid, "endpoint: found %q; expected a URL such as https://lockstep.example.com/graphql", c.endpoint)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, fault.New(fault.Invalid, "endpoint %q: %w", c.endpoint, err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", accept)
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	return r, nil
}

func (c *Client) decode(response *http.Response, text []byte, data any) error {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil || (a.Data == nil && !a.refuses()) {
		return fault.New(classOfOther(response.StatusCode), "%s answered %s, expected GraphQL%s: %s",
			c.endpoint, response.Status, c.elsewhere(), firstLine(text))
	}
	if len(a.Errors) > 0 {
		return graphErrors(a.Errors)
	}
	if err := json.Unmarshal(a.Data, data); err != nil {
		return fmt.Errorf("decode answer of %s: %w", c.endpoint, err)
	}
	return nil
}

// refuses reports whether a response has GraphQL errors. Errors of other APIs (RFC 9457) have the same key, but no message.
func (a answer) refuses() bool {
	return slices.ContainsFunc(a.Errors, func(e graphError) bool { return e.Message != "" })
}

// elsewhere hints at the API's path if another server has answered.
func (c *Client) elsewhere() string {
	const path = "/graphql"
	u, err := url.Parse(c.endpoint)
	if err != nil || u.Path == path {
		return ""
	}
	return ", which is at the path " + path
}

func graphErrors(errs []graphError) error {
	messages := make([]string, len(errs))
	for i, e := range errs {
		messages[i] = e.Message
		if len(e.Path) > 0 {
			messages[i] = fmt.Sprintf("%s: %s", strings.Trim(fmt.Sprint(e.Path), "[]"), e.Message)
		}
	}
	return fault.New(classOf(errs[0].Extensions.Code), "%s", strings.Join(messages, "; "))
}

// refusal converts the errors of a mutation's payload to one; nil if there are none.
func refusal(errs []UserError) error {
	if len(errs) == 0 {
		return nil
	}
	messages := make([]string, len(errs))
	for i, e := range errs {
		messages[i] = e.Message
		if field := strings.Join(e.Field, "."); field != "" && !strings.HasPrefix(e.Message, field) {
			messages[i] = field + ": " + e.Message
		}
	}
	return fault.New(classOf(errs[0].Code), "%s", strings.Join(messages, "; "))
}

// classOf converts the codes of the table in pkg/fault, and those of GraphQL servers.
func classOf(code string) fault.Class {
	for _, class := range fault.Classes() {
		if fault.Describe(class).GraphQL == code {
			return class
		}
	}
	if strings.HasPrefix(code, "GRAPHQL_") {
		return fault.Invalid
	}
	return fault.Internal
}

// classOfOther is the class of a response that is not GraphQL: another server or path answers, so the endpoint is wrong, whatever the
// response says.
func classOfOther(status int) fault.Class {
	switch class := classOfStatus(status); class {
	case fault.NotFound, fault.Internal, fault.Invalid, fault.Conflict, fault.Refused, fault.Terminal:
		if status < http.StatusInternalServerError {
			return fault.Invalid
		}
		return class
	default:
		return class
	}
}

func classOfStatus(status int) fault.Class {
	for _, class := range fault.Classes() {
		if fault.Describe(class).HTTP == status && class != fault.Internal {
			return class
		}
	}
	if status == http.StatusBadGateway || status == http.StatusGatewayTimeout {
		return fault.Unavailable
	}
	return fault.Internal
}

func firstLine(text []byte) string {
	const most = 200
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if len(line) > most {
		line = line[:most] + "…"
	}
	if line == "" {
		return "an empty body"
	}
	return line
}
