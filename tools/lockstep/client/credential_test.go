package client_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// The API takes the interface of repositories in the words of configurations, and the other words in capitals.
func TestTheForgeOfACredentialIsSentAsConfigurationsHaveIt(t *testing.T) {
	t.Parallel()
	sent := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = string(body)
		_, _ = io.WriteString(w, `{"data":{"createCredential":{"credential":{"name":"forge","kind":"GIT"},"errors":[]}}}`)
	}))
	t.Cleanup(server.Close)
	c := client.New(client.Config{Endpoint: server.URL + "/graphql", Token: "secret"})
	_, err := c.CreateCredential(t.Context(), client.Credential{Name: "forge", Kind: "GIT", Forge: "GITHUB"}, client.CredentialValue{}, "")
	if err != nil || !strings.Contains(sent, `"forge":"github"`) || !strings.Contains(sent, `"kind":"GIT"`) {
		t.Errorf("sent %s (%v)", sent, err)
	}
}
