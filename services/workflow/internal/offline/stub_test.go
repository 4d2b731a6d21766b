package offline_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/web"
)

// R3-29 to R3-46: the same cases against a server: http.request is the real one, and each call is sent twice, as after a kill of the engine
// behind the first time. What changes something has the same Idempotency-Key both times.
func TestWebRequestsAgainstAServer(t *testing.T) {
	t.Parallel()
	cases := casesOf(t, filepath.Join(kinds, "web-request", "check.test.yaml"))
	played := 0
	for _, c := range cases {
		answers := c.Functions["http.request"]
		if slices.ContainsFunc(answers, func(a offline.Answer) bool { return a.Error != nil && a.Error.Code != "unreachable" }) {
			continue // refused before anything is sent
		}
		played++
		delete(c.Functions, "http.request")
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Compute = computing(t)
			c.World = func() map[string]offline.Carrier {
				return map[string]offline.Carrier{"http.request": newStub(t, answers).carry}
			}
			if o := offline.Test(c, seeds(3), anything); !o.Passed {
				t.Errorf("%v\n%s", o.Failures, o.History)
			}
		})
	}
	if least := 60; played < least {
		t.Errorf("played %d cases, expected at least %d", played, least)
	}
}

// served is what http.request answers in a case.
type served struct {
	Status  int
	Headers map[string]string
	Size    int
	JSON    json.RawMessage
	Body    *string
}

// stub is a server that gives the answers of a case, one for each call; the last one repeats.
type stub struct {
	t       *testing.T
	request activity.Function
	address *url.URL

	mu      sync.Mutex
	answers []offline.Answer
	keys    []string // of the requests of the present call
}

func newStub(t *testing.T, answers []offline.Answer) *stub {
	t.Helper()
	s := &stub{t: t, answers: slices.Clone(answers)}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	var err error
	if s.address, err = url.Parse(server.URL); err != nil {
		t.Fatal(err)
	}
	client, err := web.New(web.Deps{HTTP: s})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range function.All(nil, client, nil) {
		if f.Name() == "http.request" {
			s.request = f
		}
	}
	return s
}

// RoundTrip sends every request to the server, whatever its address; it fails where the case has no answer.
func (s *stub) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(s.answers) == 0 || s.answers[0].Error != nil {
		return nil, errors.New("connection refused")
	}
	sent := r.Clone(r.Context())
	sent.URL.Scheme, sent.URL.Host = s.address.Scheme, s.address.Host
	return http.DefaultTransport.RoundTrip(sent)
}

// ServeHTTP implements http.Handler.
func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := ""
	if r.Method != http.MethodGet {
		key = cmp.Or(r.Header.Get(function.IdempotencyHeader), "none")
	}
	s.keys = append(s.keys, key)
	var answer served
	if err := json.Unmarshal(s.answers[0].Result, &answer); err != nil {
		s.t.Error(err)
	}
	body := strings.Repeat("x", answer.Size)
	if answer.Body != nil {
		body = *answer.Body
	}
	for name, value := range answer.Headers {
		w.Header().Set(name, value)
	}
	w.WriteHeader(answer.Status)
	_, _ = w.Write([]byte(body))
}

// carry carries a call out, twice.
func (s *stub) carry(key string, encoded json.RawMessage) (json.RawMessage, *history.FunctionError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = nil
	args, err := history.Arguments(encoded)
	if checker, ok := s.request.(activity.Checker); ok && err == nil {
		err = checker.Check(args)
	}
	var value any
	for range 2 {
		if err == nil {
			value, err = s.request.Call(s.t.Context(), activity.Call{ID: key, Function: "http.request", Organization: 1, Args: args})
		}
	}
	if len(slices.Compact(slices.Clone(s.keys))) > 1 || slices.Contains(s.keys, "none") {
		s.t.Errorf("found the keys %q for one call, expected one", s.keys)
	}
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	if err != nil {
		return nil, history.AsFunctionError(err)
	}
	answer, err := json.Marshal(value)
	if err != nil {
		return nil, history.AsFunctionError(err)
	}
	return answer, nil
}
