package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

const secret = "canary-of-the-test"

func echo(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/away":
		http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusFound)
	case "/torn":
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("x"))
	default:
		w.Header().Set("X-Echo", r.Header.Get("X-Api-Key"))
		_, _ = w.Write([]byte(r.Method + " " + r.Header.Get("Authorization") + " " + r.Header.Get("X-Api-Key")))
	}
}

// D56: a credential of the relay goes to the URLs that it is bound to, and its value does not come back.
func TestACredentialStaysInTheCluster(t *testing.T) {
	t.Parallel()
	sent := []string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
		echo(w, r)
	}))
	t.Cleanup(s.Close)
	c := New(Deps{HTTP: http.DefaultTransport, Read: func(_ context.Context, ref string) (string, error) {
		if ref == "file:gone" {
			return "", fault.New(fault.NotFound, "gone")
		}
		return secret, nil
	}, Credentials: []Credential{
		{Name: "token", URLPrefixes: []string{s.URL + "/api"}, Ref: "file:x"},
		{Name: "basic", URLPrefixes: []string{s.URL + "/api"}, Username: "bot", Ref: "file:x"},
		{Name: "key", URLPrefixes: []string{s.URL + "/api"}, Header: "X-Api-Key", Ref: "file:x"},
		{Name: "gone", URLPrefixes: []string{s.URL + "/api"}, Ref: "file:gone"},
	}})
	for name, want := range map[string]string{
		"token": "Bearer " + secret, "basic": "Basic Ym90OmNhbmFyeS1vZi10aGUtdGVzdA==", "key": secret, "": "", "gone": "!", "none": "!",
	} {
		sent = nil
		answer, err := c.Send(t.Context(), request(t, s.URL+"/api/x", name))
		if want == "!" {
			if !fault.Is(err, fault.Denied) || len(sent) > 0 {
				t.Errorf("%s: found %v after %d requests, expected Denied", name, err, len(sent))
			}
			continue
		}
		if err != nil || len(sent) != 1 || sent[0] != want {
			t.Errorf("%s: sent %q, %v; expected %q", name, sent, err, want)
		}
		if back := string(answer.Body) + answer.Header["x-echo"]; strings.Contains(back, secret) || strings.Contains(back, "Ym90OmN") {
			t.Errorf("%s: found the secret in %q", name, back)
		}
	}
	sent = nil
	if _, err := c.Send(t.Context(), request(t, s.URL+"/admin", "token")); !fault.Is(err, fault.Denied) || len(sent) > 0 {
		t.Errorf("another URL: found %v after %d requests, expected Denied", err, len(sent))
	}
}

func request(t *testing.T, raw, credential string) core.WebRequest {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return core.WebRequest{Method: http.MethodGet, URL: u, Credential: credential, Timeout: 10 * time.Second, Keep: 1000}
}

func TestRequestsThatLeadNowhere(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(echo))
	c := New(Deps{HTTP: http.DefaultTransport})
	answer, err := c.Send(t.Context(), request(t, s.URL+"/away", ""))
	if err != nil || answer.Status != http.StatusFound || answer.Header["location"] == "" {
		t.Errorf("a redirect: found %+v, %v; expected it as the answer", answer, err)
	}
	if _, err := c.Send(t.Context(), request(t, s.URL+"/torn", "")); !fault.Is(err, fault.Conflict) {
		t.Errorf("an answer that breaks off: %v, expected Conflict", err)
	}
	long := request(t, s.URL+"/", "")
	long.Keep = 2
	if answer, err = c.Send(t.Context(), long); err != nil || answer.Body != nil || answer.Size == 0 || answer.Digest == "" {
		t.Errorf("a long answer: found %+v, %v; expected its size and digest", answer, err)
	}
	s.Close()
	if _, err := c.Send(t.Context(), request(t, s.URL+"/", "")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a server that is gone: %v, expected Unavailable", err)
	}
}
