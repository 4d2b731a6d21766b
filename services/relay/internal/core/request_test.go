package core

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// servers answer requests, one after the other.
type servers struct {
	answers []WebAnswer
	err     error
	asked   []WebRequest
}

func (s *servers) Send(_ context.Context, r WebRequest) (WebAnswer, error) {
	s.asked = append(s.asked, r)
	if s.err != nil {
		return WebAnswer{}, s.err
	}
	return s.answers[min(len(s.asked), len(s.answers))-1], nil
}

func (s *servers) runner(allow ...string) *Runner {
	return NewRunner(RunnerDeps{
		Cluster: &shelf{}, Web: s, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Poll: time.Second, Limits: Limits{Requests: allow},
	})
}

func send(t *testing.T, r *Runner, id, args string) Answer {
	t.Helper()
	return r.Run(t.Context(), Call{
		ID: id, Function: FunctionRequest, Args: json.RawMessage(args), Deadline: clock.System().Now().Add(time.Minute), Organization: "7",
	})
}

// D53: a request from inside the cluster goes only where the relay's own configuration lets it, by method, host, port and path.
func TestRequestsGoWhereTheRelayAllows(t *testing.T) {
	t.Parallel()
	allow := []string{"http://flags.shop.svc:8080/api", "GET,HEAD http://prometheus.monitoring.svc:9090/"}
	for args, permitted := range map[string]bool{
		`{"url":"http://flags.shop.svc:8080/api/on","method":"POST","json":{"a":1}}`:    true,
		`{"url":"http://flags.shop.svc:8080/api"}`:                                      true,
		`{"url":"http://prometheus.monitoring.svc:9090/api/v1/query?query=up"}`:         true,
		`{"url":"http://prometheus.monitoring.svc:9090/-/quit","method":"POST"}`:        false,
		`{"url":"http://flags.shop.svc:8080/apis"}`:                                     false,
		`{"url":"http://flags.shop.svc:8080/api/..%2fadmin"}`:                           false,
		`{"url":"http://flags.shop.svc/api"}`:                                           false,
		`{"url":"https://flags.shop.svc:8080/api"}`:                                     false,
		`{"url":"http://169.254.169.254/latest/meta-data"}`:                             false,
		`{"url":"https://kubernetes.default.svc/api/v1/namespaces/shop/secrets"}`:       false,
		`{"url":"http://flags.shop.svc:8080@evil.example.com/api"}`:                     false,
		`{"url":"http://flags.shop.svc:8080/api","method":"CONNECT"}`:                   false,
		`{"url":"http://flags.shop.svc:8080/api","credentials":"misspelt"}`:             false,
		`{"url":"http://flags.shop.svc:8080/api","max_body":1000000}`:                   false,
		`{"url":"http://flags.shop.svc:8080/api","method":"PUT","body":"a","json":"b"}`: false,
	} {
		s := &servers{answers: []WebAnswer{{Status: 200}}}
		answer := send(t, s.runner(allow...), "a/1", args)
		if (answer.Err == nil) != permitted || (len(s.asked) == 1) != permitted {
			t.Errorf("%s: answer %+v after %d requests, expected permitted: %t", args, answer.Err, len(s.asked), permitted)
		}
	}
	s := &servers{answers: []WebAnswer{{Status: 200}}}
	if answer := send(t, s.runner(), "a/1", `{"url":"http://flags.shop.svc/"}`); answer.Err == nil || answer.Err.Code != CodeForbidden {
		t.Errorf("without an allowance: %+v, expected forbidden", answer)
	}
}

func TestWhatARequestAnswers(t *testing.T) {
	t.Parallel()
	s := &servers{answers: []WebAnswer{{
		Status: 201, Header: map[string]string{"content-type": "application/json", "x-flag": "on", "set-cookie": "x", "other": "y"},
		Body: []byte(`{"n": 12345678901234567}`), Size: 24, Digest: "d",
	}}}
	answer := send(t, s.runner("http://flags.shop.svc/"), "a/1",
		`{"agent_id":4,"url":"http://flags.shop.svc/x","method":"POST","json":{"a":"<b>"},"headers":{"X-Team":"shop"},"credential":"flags","response_headers":["X-Flag","set-cookie"],"timeout":7}`)
	text, _ := json.Marshal(answer.Value)
	if want := `{"body":"{\"n\": 12345678901234567}","headers":{"content-type":"application/json","x-flag":"on"},"json":{"n":12345678901234567},"ok":true,"sha256":"d","size":24,"status":201}`; string(text) != want {
		t.Errorf("found %s (%+v), expected %s", text, answer.Err, want)
	}
	r := s.asked[0]
	if got := fmt.Sprint(r.Method, string(r.Body), r.Header["X-Team"], r.Header["Idempotency-Key"], r.Header["Content-Type"], r.Credential, r.Timeout); got !=
		`POST{"a":"<b>"}shopa/1application/jsonflags7s` {
		t.Errorf("sent %s", got)
	}
}

// A request is repeated where that does no harm, and one whose answer got lost on the way is not sent again.
func TestWhichRequestsAreRepeated(t *testing.T) {
	t.Parallel()
	lost := fault.New(fault.Conflict, "no answer was received")
	for _, c := range []struct {
		args   string
		status int
		err    error
		code   string
		again  bool
	}{
		{`{"url":"http://a.b.svc/"}`, 503, nil, CodeStatus, true},
		{`{"url":"http://a.b.svc/"}`, 404, nil, "", false},
		{`{"url":"http://a.b.svc/","retry_status":[404]}`, 404, nil, CodeStatus, true},
		{`{"url":"http://a.b.svc/","method":"POST"}`, 500, nil, "", false},
		{`{"url":"http://a.b.svc/","method":"POST","repeatable":true}`, 500, nil, CodeStatus, true},
		{`{"url":"http://a.b.svc/"}`, 0, lost, CodeUnreachable, true},
		{`{"url":"http://a.b.svc/","method":"PATCH"}`, 0, lost, CodeUnreachable, false},
		{`{"url":"http://a.b.svc/","method":"PATCH"}`, 0, fault.New(fault.Unavailable, "x"), CodeUnreachable, true},
		{`{"url":"http://a.b.svc/"}`, 0, fault.New(fault.Denied, "x"), CodeForbidden, false},
	} {
		s := &servers{answers: []WebAnswer{{Status: c.status}}, err: c.err}
		answer := send(t, s.runner("http://a.b.svc/"), "a/1", c.args)
		code, again := "", false
		if answer.Err != nil {
			code, again = answer.Err.Code, answer.Err.Retryable
		}
		if code != c.code || again != c.again {
			t.Errorf("%s answered with %d, %v: found %q, repeated %t; expected %q, %t", c.args, c.status, c.err, code, again, c.code, c.again)
		}
	}
	s := &servers{answers: []WebAnswer{{Status: 200, Digest: "1"}, {Status: 200, Digest: "2"}}}
	r := s.runner("http://a.b.svc/")
	var got []string
	for _, id := range []string{"a/1", "a/1", "a/2", "a/1"} {
		got = append(got, fmt.Sprint(send(t, r, id, `{"url":"http://a.b.svc/","method":"POST"}`).Value["sha256"]))
	}
	if !slices.Equal(got, []string{"1", "1", "2", "1"}) || len(s.asked) != 2 {
		t.Errorf("found %s after %d requests, expected 1 1 2 1 after 2", strings.Join(got, " "), len(s.asked))
	}
}

func TestAnswersAreForgotten(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	a := &answers{now: func() time.Time { return now }}
	for i := range mostKnown + 1 {
		a.keep(fmt.Sprint(i), nil)
	}
	if _, known := a.of("0"); known || len(a.calls) != mostKnown {
		t.Errorf("found %d answers, the first of them: %t", len(a.calls), known)
	}
	now = now.Add(knownFor + 1)
	if _, known := a.of("5"); known || len(a.calls) > 0 {
		t.Errorf("found %d answers that are too old", len(a.calls))
	}
}
