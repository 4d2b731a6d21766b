package web

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// certified is a server that answers whose certificate it has seen, and a client that has one.
type certified struct {
	*Client

	t         *testing.T
	authority *certstest.Authority
	client    certs.Files
	url       string
}

func certifying(t *testing.T, change ...func(*Credential)) certified {
	t.Helper()
	c := certified{t: t, authority: certstest.New(t)}
	own := c.authority.Files(t, t.TempDir(), "server")
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	authorities, err := os.ReadFile(own.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authorities)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/away" {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		name := "none"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].DNSNames[0]
		}
		_, _ = fmt.Fprintf(w, "%s %s", name, r.Header.Get("Authorization"))
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // some handshakes fail on purpose
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c.url = server.URL
	c.client = c.authority.Files(t, t.TempDir(), "client")
	c.authority.WriteNamed(t, c.client, "lockstep")
	credential := Credential{
		Name: "inner", URLPrefixes: []string{server.URL + "/api"}, Organizations: []int64{1},
		TLS: TLS{Certificate: "file:" + c.client.Cert, Key: "file:" + c.client.Key, CA: "file:" + c.client.CA},
	}
	for _, one := range change {
		one(&credential)
	}
	trust, err := certs.Beside(own.CA, nil)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := httpx.New(httpx.Config{Allow: []string{"127.0.0.1"}, MaxBody: 1 << 40, TLS: trust})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.Close)
	c.Client, err = New(Deps{
		HTTP: transport, Credentials: []Credential{credential}, TLS: trust.Config,
		Secured: func(settings func(string) *tls.Config) Secured {
			one := transport.Secured(settings)
			t.Cleanup(one.Close)
			return one
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c certified) call(path, credential string) (string, error) {
	c.t.Helper()
	answer, err := c.Send(c.t.Context(), activity.WebRequest{
		Organization: 1, Method: http.MethodGet, URL: c.url + path, Timeout: 10 * time.Second, Keep: 1000, Repeatable: true,
		Credential: credential,
	})
	return strings.TrimSpace(string(answer.Body)), err
}

func (c certified) wants(want, path, credential string) {
	c.t.Helper()
	if got, err := c.call(path, credential); err != nil || got != want {
		c.t.Errorf("%s with %q: found %q, %v; want %q", path, credential, got, err, want)
	}
}

// R3-41: a client proves itself by a certificate to the URLs of its credential alone: neither after a redirect elsewhere, nor for a request
// that names no credential, which shares no connection with those that do. A certificate that is replaced is sent with the next request.
func TestAClientProvesItselfByACertificate(t *testing.T) {
	t.Parallel()
	c := certifying(t)
	c.wants("lockstep", "/api", "inner")
	c.wants("none", "/api", "")
	c.wants("none", "/api/away", "inner")
	c.wants("lockstep", "/api/x", "inner")
	c.authority.WriteNamed(t, c.client, "renewed")
	c.wants("renewed", "/api", "inner")
	if _, err := c.call("/elsewhere", "inner"); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "is not for this URL") {
		t.Errorf("found %v; want that it is not for this URL", err)
	}
}

// R3-41: a certificate may be sent beside a token, and without authorities of its own those of the service vouch for the server.
func TestACertificateBesideAToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("of-the-test"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := certifying(t, func(c *Credential) { c.Ref, c.TLS.CA = "file:"+file, "" })
	c.wants("lockstep Bearer of-the-test", "/api", "inner")
	c.wants("none", "/api/away", "inner")
}

// R3-41: what cannot be used as a certificate is an error without what was read, and nothing is sent.
func TestACertificateThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	// Each spoils what was written for the client, with an authority that nobody knows.
	for name, c := range map[string]struct {
		canary, foreign certs.Files
		class           fault.Class
		want            string
	}{
		"no certificate": {certs.Files{Cert: "x"}, certs.Files{}, fault.Unauthenticated, "no certificate and key, in PEM, that belong together"},
		"another key":    {certs.Files{}, certs.Files{Key: "x"}, fault.Unauthenticated, "that belong together"},
		"no authorities": {certs.Files{CA: "x"}, certs.Files{}, fault.Unauthenticated, "no authorities, in PEM, at the reference ca"},
		"authorities that do not vouch for the server": {certs.Files{}, certs.Files{CA: "x"}, fault.Unavailable, "127.0.0.1"},
		"a certificate of others":                      {certs.Files{}, certs.Files{Cert: "x", Key: "x"}, fault.Unavailable, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := certifying(t)
			for _, f := range [][2]string{{c.canary.Cert, k.client.Cert}, {c.canary.CA, k.client.CA}} {
				if f[0] != "" {
					write(t, f[1], "canary")
				}
			}
			files := map[bool]certs.Files{true: k.client}
			certstest.New(t).Write(t, certs.Files{
				Cert: files[c.foreign.Cert != ""].Cert, Key: files[c.foreign.Key != ""].Key, CA: files[c.foreign.CA != ""].CA,
			})
			got, err := k.call("/api", "inner")
			if fault.ClassOf(err) != c.class || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") || got != "" {
				t.Errorf("found %q, %v; want %s: %s", got, err, c.class, c.want)
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// R3-41: what is wrong with a certificate's references is reported when the service starts; it signs nothing.
func TestCertificatesAreChecked(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Credential){
		"http_credentials[0].tls.certificate: expected a": func(c *Credential) { c.TLS.Certificate = "canary" },
		"tls.key: expected a reference":                   func(c *Credential) { c.TLS.Key = "" },
		"tls.ca: expected a reference":                    func(c *Credential) { c.TLS.CA = "canary" },
		"tls: found with url_prefixes that are not https": func(c *Credential) { c.URLPrefixes = []string{"http://a.test"} },
		"ref: expected a reference":                       func(c *Credential) { c.Username = "u" },
	} {
		c := Credential{Name: "a", URLPrefixes: []string{"https://a.test"}, TLS: TLS{Certificate: "env:A", Key: "env:B", CA: "env:C"}}
		change(&c)
		_, err := New(Deps{Credentials: []Credential{c}})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("found %v; want %q", err, want)
		}
	}
	k := certifying(t)
	_, err := k.Send(t.Context(), activity.WebRequest{
		Organization: 1, Method: http.MethodPost, URL: k.url + "/api", Timeout: time.Second, Sign: []string{"inner"}, SignID: "x",
	})
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "is a certificate only") {
		t.Errorf("found %v; want it refused", err)
	}
}
