package sealing_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
)

const printed = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// D56: a key of SSH is for Git, for URLs of servers that are known, and without what only passwords and forges have.
func TestTheTermsOfAKeyOfSSH(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*sealing.Terms)
		field  string
	}{
		"as it should be":     {func(*sealing.Terms) {}, ""},
		"with a user":         {func(t *sealing.Terms) { t.Username = "APKAEXAMPLE" }, ""},
		"for HTTP":            {func(t *sealing.Terms) { t.Kind = sealing.HTTP }, "/kind"},
		"with a forge":        {func(t *sealing.Terms) { t.Forge = "github" }, "/forge"},
		"for https":           {func(t *sealing.Terms) { t.URLPrefixes = []string{"https://git.example.com/"} }, "/urlPrefixes/0"},
		"a user in the URL":   {func(t *sealing.Terms) { t.URLPrefixes = []string{"ssh://git@git.example.com/"} }, "/urlPrefixes/0"},
		"nothing is known":    {func(t *sealing.Terms) { t.Proof.SSHKey.KnownHosts = "\n" }, "/sshKey/knownHosts"},
		"another is known":    {func(t *sealing.Terms) { t.Proof.SSHKey.KnownHosts = "x.example.com " + printed }, "/sshKey/knownHosts"},
		"on another port":     {func(t *sealing.Terms) { t.URLPrefixes = []string{"ssh://git.example.com:2222/"} }, "/sshKey/knownHosts"},
		"what is no line":     {func(t *sealing.Terms) { t.Proof.SSHKey.KnownHosts = "canary" }, "/sshKey/knownHosts"},
		"of whom it is":       {func(t *sealing.Terms) { t.Proof.SSHKey.KnownHosts = printed }, ""},
		"a user with a space": {func(t *sealing.Terms) { t.Username = "a b" }, "/username"},
		"two servers, one fingerprint": {func(t *sealing.Terms) {
			t.Proof.SSHKey.KnownHosts, t.URLPrefixes = printed, []string{"ssh://git.example.com/", "ssh://x.example.com/"}
		}, "/urlPrefixes/1"},
		"an App as well":      {func(t *sealing.Terms) { t.Proof.GitHubApp.ID = "1" }, "/sshKey"},
		"a password over SSH": {func(t *sealing.Terms) { t.Proof = sealing.Proof{} }, "/urlPrefixes/0"},
		"a password for both": {func(t *sealing.Terms) { t.Proof, t.Kind = sealing.Proof{}, sealing.HTTP }, "/urlPrefixes/0"},
		"an App over SSH": {func(t *sealing.Terms) {
			t.Proof = sealing.Proof{GitHubApp: sealing.GitHubApp{ID: "1", Installation: "1"}}
		}, "/urlPrefixes/0"},
		"too much that is known": {func(t *sealing.Terms) { t.Proof.SSHKey.KnownHosts = strings.Repeat("#", 40<<10) }, "/sshKey/knownHosts"},
	} {
		terms := sealing.Terms{
			Organization: 1, Name: "deploy", Version: 1, Kind: sealing.Git, URLPrefixes: []string{"ssh://git.example.com/team"},
			Proof: sealing.Proof{SSHKey: sealing.SSHKey{KnownHosts: "git.example.com " + printed}},
		}
		tt.change(&terms)
		found := terms.Check()
		if tt.field == "" && len(found) > 0 || tt.field != "" && (len(found) != 1 || found[0].Name != tt.field || strings.Contains(found[0].Problem, "canary")) {
			t.Errorf("%s: found %v; want %q", name, found, tt.field)
		}
		if tt.field == "" {
			if wrong := terms.CheckValue("canary"); len(wrong) != 1 || strings.Contains(wrong[0].Problem, "canary") {
				t.Errorf("%s: found %v; want that a password is no key", name, wrong)
			}
		}
	}
}

// D56: a service of before the keys of SSH does not read the proof, and so takes the key for nothing.
func TestAKeyOfSSHIsAProof(t *testing.T) {
	t.Parallel()
	p := sealing.Proof{SSHKey: sealing.SSHKey{KnownHosts: printed}}
	raw, err := json.Marshal(p)
	if err != nil || string(raw) != `{"ssh_key":{"known_hosts":"`+printed+`"}}` {
		t.Fatalf("found %s, %v", raw, err)
	}
	var again sealing.Proof
	if err := json.Unmarshal(raw, &again); err != nil || !again.Known() || again.IsZero() || again.SSHKey != p.SSHKey {
		t.Errorf("found %+v, %v", again, err)
	}
}

// D56: the spellings of a repository over SSH, and what is refused: what could be an option or another repository at the server.
func TestRepositoriesOverSSH(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"ssh://git@git.example.com/team/shop.git":  "ssh://git.example.com/team/shop.git /team/shop.git",
		"SSH://Git.Example.com:22/team/shop":       "ssh://git.example.com/team/shop /team/shop",
		"ssh://git@git.example.com:2222/team/shop": "ssh://git.example.com:2222/team/shop /team/shop",
		"ssh://ann@git.example.com/~ann/shop":      "ssh://ann@git.example.com/~ann/shop ~ann/shop",
		"git@git.example.com:team/shop.git":        "ssh://git.example.com/team/shop.git team/shop.git",
		"git@git.example.com:/srv/shop.git":        "ssh://git.example.com/srv/shop.git /srv/shop.git",
		"APKA1@git-codecommit.example.com:v1/x":    "ssh://APKA1@git-codecommit.example.com/v1/x v1/x",
		"ssh://git@[2001:db8::1]:29/x":             "ssh://[2001:db8::1]:29/x /x",
		"https://git.example.com/team/shop":        "none",
		"git.example.com:team/shop":                "none",
		"vault:secret/data/x#y":                    "none",
		"ssh://git:hunter2@git.example.com/x":      "refused",
		"ssh://git@git.example.com/team/../other":  "refused",
		"git@git.example.com:../other":             "refused",
		"git@git.example.com:-upload":              "refused",
		"ssh://git@git.example.com/a%2fb":          "refused",
		"ssh://git@git.example.com/x?y":            "refused",
		"ssh://git@git.example.com/x#y":            "refused",
		"ssh://git@git.example.com:0/x":            "refused",
		"ssh://git@git.example.com:/x":             "refused",
		"ssh://-oProxyCommand@git.example.com/x":   "refused",
		"ssh:///x":                                 "refused",
		"ssh://git@git.example.com/a\\b":           "refused",
		"ssh://git@gıt.example.com/x":              "refused",
		"git@git.example.com:x\ny":                 "none",
	} {
		place, is, err := sealing.ParseSSH(raw)
		got := "none"
		switch {
		case err != nil:
			got = "refused"
		case is:
			got = place.URL.String() + " " + place.Path
		}
		if got != want {
			t.Errorf("%q: found %q, %v; want %q", raw, got, err, want)
		}
	}
}
