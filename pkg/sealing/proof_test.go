package sealing_test

import (
	"encoding/json"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
)

// D56: a proof that a later version has made is not taken for none, and is passed on as it came; those that are known are what values were
// sealed with.
func TestAProofOfALaterVersion(t *testing.T) {
	t.Parallel()
	for text, known := range map[string]bool{
		`{}`: true,
		`{"github_app":{"app_id":"1","installation_id":"42"}}`:           true,
		`{"oauth2":{"token_url":"https://id.example.com","scopes":[]}}`:  true,
		`{"certificate":{"client":true,"ca":"a\u003cb"}}`:                true,
		`{"later":{"key":"a\u003cb"}}`:                                   false,
		`{"github_app":{"app_id":"1","installation_id":"42","later":1}}`: false,
		`{"github_app":42}`: false,
	} {
		var p sealing.Proof
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		if p.Known() != known || p.IsZero() != (text == "{}") {
			t.Errorf("%s: found known %t, none %t", text, p.Known(), p.IsZero())
		}
		want := text
		if p.OAuth2.TokenURL != "" {
			want = `{"oauth2":{"token_url":"https://id.example.com"}}`
		}
		if again, err := json.Marshal(p); err != nil || string(again) != want {
			t.Errorf("found %s, %v; want %s", again, err, want)
		}
	}
	terms := sealing.Terms{Organization: 1, Name: "app", Version: 1, Kind: sealing.Git, URLPrefixes: []string{"https://github.com/team"}}
	bound := `{"use":"lockstep/credential/1","terms":{"Organization":1,"Name":"app","Version":1,"Kind":"git",` +
		`"URLPrefixes":["https://github.com/team"],"Username":"","Header":"","Forge":""`
	if got := string(terms.Bytes()); got != bound+"}}" {
		t.Errorf("found %s", got)
	}
	terms.Proof.GitHubApp = sealing.GitHubApp{ID: "1", Installation: "42"}
	if got := string(terms.Bytes()); got != bound+`,"Proof":{"github_app":{"app_id":"1","installation_id":"42"}}}}` {
		t.Errorf("found %s", got)
	}
}
