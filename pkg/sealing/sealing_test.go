package sealing_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
)

func TestTermsAreChecked(t *testing.T) {
	t.Parallel()
	good := sealing.Terms{Organization: 1, Name: "api", Version: 1, Kind: sealing.HTTP, URLPrefixes: []string{"https://api.example.com/v1"}}
	if found := good.Check(); len(found) != 0 {
		t.Errorf("good terms: %v", found)
	}
	oauth2 := sealing.OAuth2{TokenURL: "https://id.example/token", ClientID: "shop"}
	app := sealing.GitHubApp{ID: "Iv23canary", Installation: "42"}
	for _, tt := range []struct {
		name, field string
		change      func(*sealing.Terms)
	}{
		{"a name with spaces", "/name", func(s *sealing.Terms) { s.Name = "a b" }},
		{"no kind", "/kind", func(s *sealing.Terms) { s.Kind = "ssh" }},
		{"no place", "/urlPrefixes", func(s *sealing.Terms) { s.URLPrefixes = nil }},
		{"every host", "/urlPrefixes/0", func(s *sealing.Terms) { s.URLPrefixes = []string{"https://"} }},
		{"a query", "/urlPrefixes/0", func(s *sealing.Terms) { s.URLPrefixes = []string{"https://a.example/?x=1"} }},
		{"a user in the URL", "/urlPrefixes/0", func(s *sealing.Terms) { s.URLPrefixes = []string{"https://u:p@a.example/"} }},
		{"a way out of the path", "/urlPrefixes/0", func(s *sealing.Terms) { s.URLPrefixes = []string{"https://a.example/x/../y"} }},
		{"mail with git", "/urlPrefixes/0", func(s *sealing.Terms) { s.Kind, s.URLPrefixes = sealing.Git, []string{"smtp://a.example"} }},
		{"a header that carries the request", "/header", func(s *sealing.Terms) { s.Header = "Host" }},
		{"a header that is too long", "/header", func(s *sealing.Terms) { s.Header = strings.Repeat("x", 256) }},
		{"a header and a user", "/header", func(s *sealing.Terms) { s.Header, s.Username = "X-Api-Key", "u" }},
		{"a header with git", "/header", func(s *sealing.Terms) { s.Kind, s.Header = sealing.Git, "X-Api-Key" }},
		{"a forge with http", "/forge", func(s *sealing.Terms) { s.Forge = "gitlab" }},
		{"an unknown forge", "/forge", func(s *sealing.Terms) { s.Kind, s.Forge = sealing.Git, "cvs" }},
		{"OAuth 2.0 with git", "/kind", func(s *sealing.Terms) { s.Kind, s.Proof.OAuth2 = sealing.Git, oauth2 }},
		{"OAuth 2.0 with a header", "/oauth2", func(s *sealing.Terms) { s.Header, s.Proof.OAuth2 = "X-Api-Key", oauth2 }},
		{"OAuth 2.0 and a certificate", "/oauth2", func(s *sealing.Terms) {
			s.Proof = sealing.Proof{OAuth2: oauth2, Certificate: sealing.Certificate{Client: true}}
		}},
		{"a token URL with a user", "/oauth2/tokenUrl", func(s *sealing.Terms) { s.Proof.OAuth2 = oauth2; s.Proof.OAuth2.TokenURL = "https://u:p@id.example/" }},
		{"a token URL with a fragment", "/oauth2/tokenUrl", func(s *sealing.Terms) { s.Proof.OAuth2 = oauth2; s.Proof.OAuth2.TokenURL += "#x" }},
		{"no client", "/oauth2/clientId", func(s *sealing.Terms) { s.Proof.OAuth2 = oauth2; s.Proof.OAuth2.ClientID = "" }},
		{"a scope with a space", "/oauth2/scopes/0", func(s *sealing.Terms) { s.Proof.OAuth2 = oauth2; s.Proof.OAuth2.Scopes = []string{"a b"} }},
		{"another proof of the client", "/oauth2/send", func(s *sealing.Terms) { s.Proof.OAuth2 = oauth2; s.Proof.OAuth2.Send = "cookie" }},
		{"OAuth 2.0 for mail", "/urlPrefixes/0", func(s *sealing.Terms) { s.Proof.OAuth2, s.URLPrefixes = oauth2, []string{"smtp://a.example"} }},
		{"a certificate in clear", "/urlPrefixes/0", func(s *sealing.Terms) {
			s.Proof.Certificate.Client, s.URLPrefixes = true, []string{"http://a.example/"}
		}},
		{"authorities that cannot be read", "/certificate/ca", func(s *sealing.Terms) { s.Proof.Certificate = sealing.Certificate{Client: true, CA: "x"} }},
		{"a key beside the authorities", "/certificate/ca", func(s *sealing.Terms) {
			s.Proof.Certificate = sealing.Certificate{Client: true, CA: authority(t) + key}
		}},
		{"a key in front of the authorities", "/certificate/ca", func(s *sealing.Terms) {
			s.Proof.Certificate = sealing.Certificate{Client: true, CA: key + authority(t)}
		}},
		{"a key that was cut off", "/certificate/ca", func(s *sealing.Terms) {
			s.Proof.Certificate = sealing.Certificate{Client: true, CA: authority(t) + key[:40]}
		}},
		{"a GitHub App with http", "/kind", func(s *sealing.Terms) { s.Proof.GitHubApp = app }},
		{"a GitHub App with a user", "/githubApp", func(s *sealing.Terms) { s.Kind, s.Username, s.Proof.GitHubApp = sealing.Git, "u", app }},
		{"a GitHub App and OAuth 2.0", "/githubApp", func(s *sealing.Terms) {
			s.Kind, s.Proof = sealing.Git, sealing.Proof{OAuth2: oauth2, GitHubApp: app}
		}},
		{"a GitHub App of another forge", "/forge", func(s *sealing.Terms) { s.Kind, s.Forge, s.Proof.GitHubApp = sealing.Git, "gitlab", app }},
		{"a GitHub App without a number", "/githubApp/appId", func(s *sealing.Terms) {
			s.Kind, s.Proof.GitHubApp = sealing.Git, sealing.GitHubApp{Installation: "42"}
		}},
		{"a GitHub App whose number leads elsewhere", "/githubApp/installationId", func(s *sealing.Terms) {
			s.Kind, s.Proof.GitHubApp = sealing.Git, sealing.GitHubApp{ID: "7", Installation: "42/../7"}
		}},
		{"a GitHub App at an address with a user", "/githubApp/apiUrl", func(s *sealing.Terms) {
			s.Kind, s.Proof.GitHubApp = sealing.Git, sealing.GitHubApp{ID: "7", Installation: "42", API: "https://u:canary@a.example/"}
		}},
		{"a GitHub App at an address with a query", "/githubApp/apiUrl", func(s *sealing.Terms) {
			s.Kind, s.Proof.GitHubApp = sealing.Git, sealing.GitHubApp{ID: "7", Installation: "42", API: "https://a.example/?x=canary"}
		}},
		{"a GitHub App at two hosts", "/urlPrefixes/1", func(s *sealing.Terms) {
			s.Kind, s.URLPrefixes, s.Proof.GitHubApp = sealing.Git, []string{"https://a.example/x", "https://b.example/x"}, app
		}},
		{"a user with a colon", "/username", func(s *sealing.Terms) { s.Username = "a:b" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			changed := good
			tt.change(&changed)
			found := changed.Check()
			if len(found) != 1 || found[0].Name != tt.field || strings.Contains(found[0].Problem, "canary") {
				t.Errorf("found %v, expected a problem of %s", found, tt.field)
			}
		})
	}
	for _, value := range []string{"", "a\nb", strings.Repeat("x", sealing.MaxValue+1)} {
		found := good.CheckValue(value)
		if len(found) != 1 || value != "" && strings.Contains(found[0].Problem, value) {
			t.Errorf("a value of %d bytes: %v", len(value), found)
		}
	}
}

// key is no certificate, and is not to be shown.
const key = "-----BEGIN PRIVATE KEY-----\ncanary00canary00\n-----END PRIVATE KEY-----\n"

// authority is the certificate of one, in PEM.
func authority(t *testing.T) string {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// R3-41: authorities are one certificate or more.
func TestAuthoritiesAreCertificates(t *testing.T) {
	t.Parallel()
	terms := sealing.Terms{
		Organization: 1, Name: "api", Version: 1, Kind: sealing.HTTP, URLPrefixes: []string{"https://api.example.com/"},
		Proof: sealing.Proof{Certificate: sealing.Certificate{Client: true, CA: authority(t) + "\r\n" + authority(t) + "\n"}},
	}
	if found := terms.Check(); len(found) != 0 {
		t.Errorf("found %v; want no problem", found)
	}
}

// R3-41: what values were sealed for by a release before proofs stays what they open for.
func TestTermsWithoutAProofAreAsBefore(t *testing.T) {
	t.Parallel()
	terms := sealing.Terms{Organization: 1, Name: "api", Version: 1, Kind: sealing.HTTP, URLPrefixes: []string{"https://api.example.com/v1"}}
	const before = `{"use":"lockstep/credential/1","terms":{"Organization":1,"Name":"api","Version":1,"Kind":"http","URLPrefixes":["https://api.example.com/v1"],"Username":"","Header":"","Forge":""}}`
	if got := string(terms.Bytes()); got != before {
		t.Errorf("found %s; want %s", got, before)
	}
	terms.Proof.Certificate.Client = true
	if got := string(terms.Bytes()); got == before {
		t.Error("a certificate opens as a value that is sent itself")
	}
}

func TestPlacesAreCompared(t *testing.T) {
	t.Parallel()
	prefixes := []string{"https://api.example.com/team", "smtps://mail.example.com"}
	for text, want := range map[string]bool{
		"https://api.example.com/team": true, "https://api.example.com/team/x?q=1": true, "https://API.example.com:443/team/": true,
		"https://api.example.com/teammate": false, "https://api.example.com/": false, "http://api.example.com/team": false,
		"https://api.example.com.evil.test/team": false, "https://api.example.com:8443/team": false, "smtps://mail.example.com:465/": true,
		"smtp://mail.example.com/": false,
		// What a server may take for a slash, a dot or a percent sign, once or twice.
		"https://api.example.com/team%2Fother": false, "https://api.example.com/team/a%2Fb": true, "https://api.example.com/te%61m/x": true,
		"https://api.example.com/team/%252e%252e/other": false, "https://api.example.com/team/%252E%252E%252Fother": false,
		"https://api.example.com/team/..%2f..%2fother": false, "https://api.example.com/team/%2e%2e/other": false,
		"https://api.example.com/team/%5cother": false, "https://api.example.com/team/%255cother": false, "https://api.example.com/team/%2525": false,
		"https://api.example.com/team/a;b/..;x/c": false, "https://api.example.com//team": false, "https://api.example.com/team/100%25": true,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := sealing.Covers(prefixes, u); got != want {
			t.Errorf("%s: %t, expected %t", text, got, want)
		}
	}
}

func TestReferencesAreOfTheirOrganization(t *testing.T) {
	t.Parallel()
	s := sealing.Settings{References: []sealing.Allowance{
		{Prefix: "vault:secret/data/shop/", Organizations: []int64{1, 2}},
		{Prefix: "env:SHOP_", Organizations: []int64{1}},
		{Prefix: "k8s:shop/", Organizations: []int64{1}},
		{Prefix: "file:/run/secrets/shop", Organizations: []int64{1}},
	}}
	if problems := s.Check("credentials"); len(problems) != 0 {
		t.Fatal(problems)
	}
	for _, tt := range []struct {
		organization int64
		ref          string
		want         bool
	}{
		{1, "vault:secret/data/shop/git#token", true},
		{2, "vault:secret/data/shop/git#token", true},
		{3, "vault:secret/data/shop/git#token", false},
		{1, "vault:secret/data/shopping/git#token", false},
		{1, "env:SHOP_TOKEN", true},
		{1, "env:DATABASE_URL", false},
		{2, "env:SHOP_TOKEN", false},
		{1, "k8s:shop/git#token", true},
		{1, "k8s:shop-2/git#token", false},
		{1, "file:/run/secrets/shop", true},
		{1, "file:/run/secrets/shop/../other", false},
		{1, "file:/run/secrets/shop/token", false},
		{1, "hunter2", false},
	} {
		if got := s.Allows(tt.organization, tt.ref); got != tt.want {
			t.Errorf("organization %d, %s: %t, expected %t", tt.organization, tt.ref, got, tt.want)
		}
	}
	for _, prefix := range []string{"", "env:", "vault:", "file:/", "file:/a/../b/", "vault:secret/data/shop", "hunter2", "http://x/"} {
		bad := sealing.Settings{References: []sealing.Allowance{{Prefix: prefix, Organizations: []int64{1}}}}
		if problems := bad.Check("credentials"); len(problems) != 1 || problems[0].Name != "credentials.references[0].prefix" {
			t.Errorf("%q: %v, expected it to be refused", prefix, problems)
		}
		if bad.Allows(1, "env:DATABASE_URL") || bad.Allows(1, "file:/etc/shadow") {
			t.Errorf("%q allows everything", prefix)
		}
	}
	secretive := sealing.Settings{KeysetRef: `{"primaryKeyId":1}`, References: []sealing.Allowance{{Prefix: "env:A_"}}}
	problems := secretive.Check("credentials")
	if len(problems) != 2 || strings.Contains(fault.InvalidFields(problems...).Error(), "primaryKeyId") {
		t.Errorf("found %v, expected two problems without the keyset", problems)
	}
}
