package relay

import (
	"strings"
	"testing"
)

// What could never be sent is found at the start, and a secret in place of a reference is not shown.
func TestTheConfigurationOfRequests(t *testing.T) {
	t.Parallel()
	good := Config{AgentID: 1, AllowRequests: []string{"GET,HEAD http://a.b.svc:80/x", "https://c.d.svc/"}, RequestCredentials: []RequestCredential{
		{Name: "a", URLPrefixes: []string{"http://a.b.svc/"}, Ref: "file:/x"},
	}}
	if err := good.Validate(); err != nil {
		t.Errorf("found %v, expected no problem", err)
	}
	bad := Config{AgentID: 1, AllowRequests: []string{"a.b.svc", "TRACE http://a.b.svc/", "http://a.b.svc/../x"}, RequestCredentials: []RequestCredential{
		{URLPrefixes: []string{"a.b.svc"}, Ref: "hunter2", Header: "a b"},
	}}
	err := bad.Validate()
	for _, want := range []string{
		"allow_requests[0]", "allow_requests[1]", "allow_requests[2]", "[0].name", "[0].url_prefixes", "[0].ref", "[0].header",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v, expected a problem of %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Error("found the secret in the error")
	}
}
