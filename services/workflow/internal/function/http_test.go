package function

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// server answers as the test wants, and keeps the request.
type server struct {
	answer  activity.WebAnswer
	err     error
	request activity.WebRequest
	// secret is resolved for the request.
	secret string
}

func (s *server) Send(ctx context.Context, r activity.WebRequest) (activity.WebAnswer, error) {
	s.request = r
	activity.Conceal(ctx, s.secret)
	return s.answer, s.err
}

func request(t *testing.T, s *server, args m) (m, error) {
	t.Helper()
	ctx, _ := activity.WithConcealed(t.Context())
	value, err := httpRequest(s).Call(ctx, activity.Call{ID: "e/0.1", Organization: 7, Args: args, Secrets: map[string]string{"a": "env:A"}})
	answer, _ := value.(m)
	return answer, err
}

func TestArgumentsOfARequest(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args m
		want string // "" for none
	}{
		{m{}, ""},
		{m{"method": "TRACE"}, `method: found "TRACE", expected one of GET`},
		{m{"method": "POST", "body": "a", "json": m{}}, "json: found with body"},
		{m{"body": "a"}, "body: found with the method GET"},
		{m{"method": "PUT", "json": []any{int64(1)}}, ""},
		{m{"timeout": int64(301)}, "timeout: found 301, expected at most 300"},
		{m{"timeout": int64(0)}, "timeout: found 0"},
		{m{"max_body": int64(1<<20 + 1)}, "max_body: found"},
		{m{"headers": m{"authorization": "Bearer x"}}, "headers.authorization: its value would be recorded"},
		{m{"headers": m{"Cookie": "a"}}, "headers.Cookie: its value"},
		{m{"headers": m{"Host": "other"}}, "headers.Host: it is not"},
		{m{"headers": m{"x-http-Method-override": "DELETE"}}, "headers.x-http-Method-override: servers would take it for the method"},
		{m{"headers": m{"X A": "other"}}, "headers.X A: expected the name"},
		{m{"headers": m{"X-A": "a\r\nB: c"}}, "headers.X-A: found a control character"},
		{m{"headers": m{"X-A": "ü"}}, ""},
		{m{"response_headers": []any{"Set-Cookie"}}, "response_headers: found set-cookie"},
		{m{"retry_status": []any{"500"}}, `retry_status[0]: found "500"`},
		{m{"follow": true}, "follow: unknown"},
	} {
		tc.args["url"] = "https://example.com"
		err := httpRequest(nil).Check(tc.args)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%v: %v", tc.args, err)
		case tc.want != "" && (err == nil || history.AsFunctionError(err).Code != history.CodeInvalid || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%v: found %v, want %s", tc.args, err, tc.want)
		}
	}
}

func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	base := activity.WebRequest{
		Organization: 7, Method: "GET", URL: "https://example.com/a?b", Header: map[string]string{"User-Agent": "Lockstep"},
		Repeatable: true, Timeout: 30 * time.Second, Keep: 64 << 10, Secrets: map[string]string{"a": "env:A"},
	}
	for name, tt := range map[string]struct {
		args m
		want func(*activity.WebRequest)
	}{
		"a read": {m{}, func(*activity.WebRequest) {}},
		"a change carries the id of the call (E24)": {m{"method": "POST", "json": m{"b": "<&>", "a": int64(1)}}, func(r *activity.WebRequest) {
			r.Method, r.Repeatable, r.Body = "POST", false, []byte(`{"a":1,"b":"<&>"}`)
			r.Header = map[string]string{"User-Agent": "Lockstep", "Idempotency-Key": "e/0.1", "Content-Type": "application/json"}
		}},
		"headers, timeout, body, credential": {
			m{"method": "PUT", "headers": m{"user-agent": "me", "content-type": "text/plain"}, "body": "x", "timeout": int64(5), "max_body": int64(0), "credential": "a"},
			func(r *activity.WebRequest) {
				r.Method, r.Body, r.Timeout, r.Keep, r.Credential = "PUT", []byte("x"), 5*time.Second, 0, "a"
				r.Header = map[string]string{"User-Agent": "me", "Idempotency-Key": "e/0.1", "Content-Type": "text/plain"}
			},
		},
		"repeatable": {m{"method": "PATCH", "repeatable": true}, func(r *activity.WebRequest) {
			r.Method, r.Header = "PATCH", map[string]string{"User-Agent": "Lockstep", "Idempotency-Key": "e/0.1"}
		}},
	} {
		tt.args["url"] = base.URL
		s := &server{}
		if _, err := request(t, s, tt.args); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := base
		tt.want(&want)
		if diff := cmp.Diff(want, s.request); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Which statuses are repeated depends on the method: a server may have executed a POST that it has answered with 502.
func TestStatusesThatAreRepeated(t *testing.T) {
	t.Parallel()
	const date = "Mon, 23 Nov 2026 12:00:00 GMT"
	for _, tt := range []struct {
		status int
		args   m
		header map[string]string
		want   bool
		after  time.Duration
	}{
		{200, m{}, nil, false, 0},
		{404, m{}, nil, false, 0},
		{502, m{}, nil, true, 0},
		{503, m{}, map[string]string{"retry-after": "7"}, true, 7 * time.Second},
		{503, m{}, map[string]string{"retry-after": "-7"}, true, 0},
		{503, m{}, map[string]string{"retry-after": "99999999999"}, true, 10 * time.Minute},
		{503, m{}, map[string]string{"retry-after": "999999"}, true, 10 * time.Minute},
		{429, m{}, map[string]string{"retry-after": "Mon, 23 Nov 2026 12:01:00 GMT", "date": date}, true, time.Minute},
		{429, m{}, map[string]string{"retry-after": "Mon, 23 Nov 2026 11:01:00 GMT", "date": date}, true, 0},
		{502, m{"method": "DELETE"}, nil, true, 0},
		{502, m{"method": "POST"}, nil, false, 0},
		{500, m{"method": "PATCH"}, nil, false, 0},
		{503, m{"method": "POST"}, nil, true, 0},
		{502, m{"method": "POST", "repeatable": true}, nil, true, 0},
		{503, m{"retry_status": []any{}}, nil, false, 0},
		{404, m{"retry_status": []any{int64(404)}}, nil, true, 0},
	} {
		tt.args["url"] = "https://Example.com/a?key=hidden"
		answer, err := request(t, &server{answer: activity.WebAnswer{Status: tt.status, Header: tt.header}}, tt.args)
		if !tt.want {
			if err != nil || answer["status"] != tt.status || answer["ok"] != (tt.status == 200) {
				t.Errorf("%d %v: found %v, %v", tt.status, tt.args, answer, err)
			}
			continue
		}
		refusal := history.AsFunctionError(err)
		if err == nil || refusal.Code != CodeStatus || !refusal.Retryable || refusal.After != tt.after ||
			strings.Contains(refusal.Message, "hidden") {
			t.Errorf("%d %v: found %+v", tt.status, tt.args, refusal)
		}
	}
}

func TestErrorsOfARequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want history.FunctionError
	}{
		{fault.New(fault.Unavailable, "away"), history.FunctionError{Code: "unreachable", Message: "away", Retryable: true}},
		{fault.New(fault.Conflict, "perhaps"), history.FunctionError{Code: "unreachable", Message: "perhaps"}},
		{fault.New(fault.Denied, "whose"), history.FunctionError{Code: "unauthorized", Message: "whose"}},
		{fault.New(fault.Refused, "large"), history.FunctionError{Code: "refused", Message: "large"}},
		{errors.New("https://a?key=b"), history.FunctionError{
			Code: "internal", Message: "the function did not finish; the service's log says why",
		}},
	} {
		_, err := request(t, &server{err: tt.err}, m{"url": "https://example.com"})
		if diff := cmp.Diff(&tt.want, history.AsFunctionError(err)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.err, diff)
		}
	}
}

func TestWhatIsRecorded(t *testing.T) {
	t.Parallel()
	const secret = `s3"cret`
	kind := map[string]string{"content-type": "application/problem+json; charset=utf-8", "set-cookie": "a", "x-own": "b", "server": "c", "etag": secret}
	for name, tt := range map[string]struct {
		answer activity.WebAnswer
		want   m
	}{
		"JSON": {
			activity.WebAnswer{Header: kind, Body: []byte(`{"a": 12345678901234567890, "b": ["s3\"cret", "` + "s3%22cret" + `"]}`)},
			m{"json": `{"a":12345678901234567890,"b":["[redacted]","[redacted]"]}`, "etag": "[redacted]", "x-own": "b"},
		},
		"broken JSON":           {activity.WebAnswer{Header: kind, Body: []byte(`{"a": `)}, m{"body": `{"a": `}},
		"two values":            {activity.WebAnswer{Header: kind, Body: []byte(`1 2`)}, m{"body": `1 2`}},
		"a number beyond float": {activity.WebAnswer{Header: kind, Body: []byte(`1e999`)}, m{"body": `1e999`}},
		"text with the secret":  {activity.WebAnswer{Body: []byte(`you sent s3"cret`)}, m{"body": `you sent [redacted]`}},
		"binary":                {activity.WebAnswer{Body: []byte{0xff}}, m{"body": nil}},
		"too long":              {activity.WebAnswer{Body: nil, Size: 1 << 20, Digest: "ab"}, m{"body": nil, "size": int64(1 << 20), "sha256": "ab"}},
	} {
		tt.answer.Status = 200
		got, err := request(t, &server{answer: tt.answer, secret: secret}, m{"url": "https://example.com", "response_headers": []any{"X-Own"}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		headers, _ := got["headers"].(m)
		if headers["set-cookie"] != nil || headers["server"] != nil {
			t.Errorf("%s: headers %v", name, headers)
		}
		for member, want := range tt.want {
			found := got[member]
			switch member {
			case "json":
				encoded, _ := plainJSON(found)
				found = string(encoded)
			case "etag", "x-own":
				found = headers[member]
			}
			if diff := cmp.Diff(want, found); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, member, diff)
			}
		}
	}
}

// Only the methods that change something are changes (D46).
func TestTheEffectOfARequest(t *testing.T) {
	t.Parallel()
	f := httpRequest(nil)
	for method, want := range map[string]activity.Effect{
		"": activity.Reads, "GET": activity.Reads, "HEAD": activity.Reads, "OPTIONS": activity.Reads,
		"POST": activity.Changes, "PUT": activity.Changes, "PATCH": activity.Changes, "DELETE": activity.Changes, "get": activity.Changes,
	} {
		args := m{"url": "https://example.com"}
		if method != "" {
			args["method"] = method
		}
		if got := activity.EffectOf(f, args); got != want {
			t.Errorf("%q: found %v, want %v", method, got, want)
		}
	}
	// R2-34: what ends a Workflow at an Argo Server is executed after an abort; nothing else is that could be taken for it.
	const workflows = "https://argo.example.com/sub/api/v1/workflows/"
	for url, want := range map[string]activity.Effect{
		workflows + "work/deploy-d1/stop": activity.TakesBack, workflows + "work/deploy-d1/terminate": activity.TakesBack,
		"https://argo.example.com/api/v1/workflows/work/deploy-d1/stop": activity.TakesBack,
		workflows + "work/deploy-d1/resume":                             activity.Changes, workflows + "work/stop": activity.Changes,
		workflows + "work/deploy-d1/stop/more": activity.Changes, workflows + "work/deploy-d1/stop?x=y": activity.Changes,
		workflows + "work/../deploy-d1/stop": activity.Changes, workflows + "work/deploy%2Fd1/stop": activity.Changes,
		workflows + "work/./stop": activity.Changes, workflows + "work/deploy-d1//stop": activity.Changes,
		"https://example.com/stop": activity.Changes, ":": activity.Changes,
	} {
		if got := activity.EffectOf(f, m{"method": "PUT", "url": url}); got != want {
			t.Errorf("PUT %s: found %v, want %v", url, got, want)
		}
		if got := activity.EffectOf(f, m{"method": "POST", "url": url}); got != activity.Changes {
			t.Errorf("POST %s: found %v, want a change", url, got)
		}
		if got := activity.EffectOf(f, m{"method": "PUT", "url": url, "url_credential": "hook"}); got != activity.Changes {
			t.Errorf("PUT %s with a URL that is a credential: found %v, want a change", url, got)
		}
	}
	// Only a request that brings nothing else ends a Workflow.
	stop := workflows + "work/deploy-d1/stop"
	for _, tt := range []struct {
		args m
		want activity.Effect
	}{
		{m{"json": m{"name": "deploy-d1", "namespace": "work"}}, activity.TakesBack},
		{m{"json": m{}}, activity.TakesBack},
		{m{"json": nil, "body": nil, "credential": "argo"}, activity.TakesBack},
		{m{"json": m{"nodeFieldSelector": "displayName=approve"}}, activity.Changes},
		{m{"json": m{"name": "other", "namespace": "work"}}, activity.Changes},
		{m{"json": m{"name": "deploy-d1", "namespace": "other"}}, activity.Changes},
		{m{"json": m{"name": m{}}}, activity.Changes},
		{m{"json": []any{}}, activity.Changes},
		{m{"json": "deploy-d1"}, activity.Changes},
		{m{"body": `{"nodeFieldSelector":"displayName=approve"}`}, activity.Changes},
		{m{"body": ""}, activity.Changes},
		{m{"json": m{}, "json_credentials": m{"nodeFieldSelector": "secret"}}, activity.Changes},
	} {
		tt.args["method"], tt.args["url"] = "PUT", stop
		if got := activity.EffectOf(f, tt.args); got != tt.want {
			t.Errorf("%v: found %v, want %v", tt.args, got, tt.want)
		}
	}
	for opened, want := range map[string]bool{
		"https://argo.example.com/sub/api/v1/workflows/work": true, "https://argo.example.com/sub/api/v1/workflows/other": false,
		"https://argo.example.com/sub": false, "https://argo.example.com": false, activity.AnyURL: false,
	} {
		if got := f.TakesBackAt(activity.Place{URL: opened}, activity.Place{URL: stop}); got != want {
			t.Errorf("stop where a passage opens %s: found %t, want %t", opened, got, want)
		}
	}
	if touched := f.Touches(m{"url": "https://example.com/a"}); len(touched) != 1 || touched[0].URL != "https://example.com/a" {
		t.Errorf("touches %v", touched)
	}
}

// D53: with agent_id a request is a call of a relay, which changes the namespace of the service, and elsewhere whatever the cluster has.
func TestARequestFromInsideACluster(t *testing.T) {
	t.Parallel()
	f := named(t, &forge{}, "http.request")
	for raw, want := range map[string]activity.Place{
		"http://flags.shop.svc:8080/api":              {Agent: 4, Namespace: "shop"},
		"https://flags.shop.svc.cluster.local/":       {Agent: 4, Namespace: "shop"},
		"http://Flags.Shop.SVC./":                     {Agent: 4, Namespace: "shop"},
		"http://flags.shop.svc.example.com/":          {Agent: 4},
		"http://10.0.0.7/":                            {Agent: 4},
		"http://flags.shop.svc@kubernetes.default.x/": {Agent: 4},
	} {
		args := m{"agent_id": int64(4), "url": raw, "method": "POST"}
		if got := f.Touches(args); len(got) != 1 || got[0] != want {
			t.Errorf("%s changes %+v, expected %+v", raw, got, want)
		}
		data := fmt.Appendf(nil, `{"agent_id":4,"url":%q,"method":"POST"}`, raw)
		if f.LocationOf(data) != activity.Cluster || !f.EffectOf(args).Mutates() {
			t.Errorf("%s: found the location %v and the effect %v", raw, f.LocationOf(data), f.EffectOf(args))
		}
	}
	end := m{"agent_id": int64(4), "url": "http://argo.argo.svc/api/v1/workflows/shop/x/stop", "method": "PUT"}
	if f.EffectOf(end) != activity.Changes {
		t.Errorf("found the effect %v, expected that what ends a Workflow from inside changes something", f.EffectOf(end))
	}
	if f.LocationOf([]byte(`{"url": "http://flags.shop.svc/"}`)) != activity.InProcess {
		t.Error("a request without agent_id is not sent by this service")
	}
	if activity.LocationOf(f, []byte(`{"agent_id":4}`)) != activity.Cluster || activity.LocationOf(f, []byte(`[`)) != activity.InProcess {
		t.Error("the location of a call does not follow from its arguments")
	}
	for _, name := range []string{"url_credential", "json_credentials", "sign"} {
		args := m{"agent_id": int64(4), "url": "http://flags.shop.svc/", "method": "POST", "json": m{}}
		args[name] = map[string]any{"url_credential": "x", "json_credentials": m{"a": "b"}, "sign": []any{"x"}}[name]
		if err := f.Check(args); err == nil || !strings.Contains(err.Error(), "found with agent_id") {
			t.Errorf("%s: found %v, expected that it is refused", name, err)
		}
	}
}
