package sealing_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
)

func inPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// D56: the value of a GitHub App is its private key, as GitHub has it downloaded or in the general form; what else is entered is refused in
// words that have nothing of it.
func TestTheKeyOfAGitHubApp(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	general, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	short, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // one that is refused
	if err != nil {
		t.Fatal(err)
	}
	other, err := x509.MarshalPKCS8PrivateKey(curve)
	if err != nil {
		t.Fatal(err)
	}
	terms := sealing.Terms{
		Organization: 1, Name: "app", Version: 1, Kind: sealing.Git, URLPrefixes: []string{"https://github.com/team"}, Forge: "github",
		Proof: sealing.Proof{GitHubApp: sealing.GitHubApp{ID: "Iv23", Installation: "42"}},
	}
	if found := terms.Check(); len(found) > 0 {
		t.Errorf("found %v; want no problem", found)
	}
	own := inPEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
	for name, tt := range map[string]struct{ value, want string }{
		"as it is downloaded":    {own, ""},
		"without its last line":  {strings.TrimRight(own, "\n"), ""},
		"with other line breaks": {strings.ReplaceAll(own, "\n", "\r\n"), ""},
		"in the general form":    {inPEM("PRIVATE KEY", general), ""},
		"a token":                {"canary", "no text in PEM"},
		"two keys":               {own + own, "more than one block"},
		"a certificate":          {inPEM("CERTIFICATE", []byte("canary")), "no private key of RSA"},
		"a public key":           {inPEM("PUBLIC KEY", x509.MarshalPKCS1PublicKey(&key.PublicKey)), "no private key of RSA"},
		"of a curve":             {inPEM("PRIVATE KEY", other), "not of RSA"},
		"too short":              {inPEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(short)), "1024 bits"},
		"cut off":                {inPEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)[:100]), "cannot be read"},
		"encrypted":              {inPEM("ENCRYPTED PRIVATE KEY", []byte("canary")), "encrypted"},
		"encrypted as before": {
			string(pem.EncodeToMemory(&pem.Block{
				Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte("canary"),
			})), "encrypted",
		},
	} {
		found := terms.CheckValue(tt.value)
		switch {
		case tt.want == "" && len(found) > 0:
			t.Errorf("%s: found %v; want no problem", name, found)
		case tt.want != "" && (len(found) != 1 || found[0].Name != "/value" || !strings.Contains(found[0].Problem, tt.want) || strings.Contains(found[0].Problem, "canary")):
			t.Errorf("%s: found %v; want …%s…", name, found, tt.want)
		}
	}
}

// D56: where the API of a GitHub is.
func TestWhereTheAPIOfAGitHubIs(t *testing.T) {
	t.Parallel()
	for repository, want := range map[string]string{
		"https://github.com/team/shop": "https://api.github.com", "https://GitHub.com/team/shop.git": "https://api.github.com",
		"https://git.example.com:8443/team/shop": "https://git.example.com:8443/api/v3",
	} {
		u, err := url.Parse(repository)
		if err != nil {
			t.Fatal(err)
		}
		if got := (sealing.GitHubApp{}).APIFor(u); got != want {
			t.Errorf("%s: found %s; want %s", repository, got, want)
		}
		if got := (sealing.GitHubApp{API: "https://api.shop.ghe.com/"}).APIFor(u); got != "https://api.shop.ghe.com" {
			t.Errorf("%s: found %s; want the address that was given", repository, got)
		}
	}
}
