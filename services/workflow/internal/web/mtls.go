package web

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"sync"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// TLS is a certificate that proves a client, by references to PEM: the certificate, its key, and the authorities that may vouch for servers
// in place of all others.
type TLS struct{ Certificate, Key, CA string }

// Secured is a transport with settings of TLS of its own.
type Secured interface {
	http.RoundTripper
	// Close closes its idle connections.
	Close()
}

// problems are what is wrong with its fields, by their names behind the field of the whole. References are not shown: one may be the key
// itself.
func (t TLS) problems(prefixes []string) map[string]string {
	wrong := map[string]string{}
	if t == (TLS{}) {
		return wrong
	}
	if !reference.Is(t.Certificate) {
		wrong[".certificate"] = reference.Expected
	}
	if !reference.Is(t.Key) {
		wrong[".key"] = reference.Expected
	}
	if t.CA != "" && !reference.Is(t.CA) {
		wrong[".ca"] = reference.Expected
	}
	for _, prefix := range prefixes {
		if !strings.HasPrefix(strings.ToLower(prefix), "https://") {
			wrong[""] = "found with url_prefixes that are not https, where no certificate is sent"
		}
	}
	return wrong
}

// certified reports whether a certificate proves the client.
func (c Credential) certified() bool {
	return c.TLS.Certificate != "" || c.own != nil && c.own.Proof.Certificate.Client
}

// onlyTLS reports whether a certificate is all that proves the client.
func (c Credential) onlyTLS() bool {
	if c.own != nil {
		return c.own.Proof.Certificate.Client
	}
	return c.TLS.Certificate != "" && c.Ref == "" && c.Username == "" && c.Header == "" && c.OAuth2.TokenURL == ""
}

// pem are a certificate, its key, and the authorities of servers; empty for those of the service.
type pem struct{ certificate, key, authorities string }

// certificate is that of a credential as it is now. value is the value of one of an organization.
func (c credentials) certificate(ctx context.Context, found *Credential, value string) (pem, error) {
	if found.own != nil {
		return pem{certificate: value, key: value, authorities: found.own.Proof.Certificate.CA}, nil
	}
	var texts [3]string
	for i, ref := range []string{found.TLS.Certificate, found.TLS.Key, found.TLS.CA} {
		if ref == "" {
			continue
		}
		text, err := c.secrets.Read(ctx, ref)
		if fault.Is(err, fault.Unavailable) { // which passes: the request is tried again
			return pem{}, fault.Because(err, fault.Unavailable, "the certificate of credential %q: %s", found.Name, fault.Public(err))
		}
		if err != nil {
			return pem{}, fault.Because(err, fault.Unauthenticated, "the certificate of credential %q cannot be read from its references", found.Name)
		}
		texts[i] = text
	}
	activity.Conceal(ctx, texts[1])
	return pem{texts[0], texts[1], texts[2]}, nil
}

// secured are the transports of credentials with certificates. What one certificate has opened, no other request uses.
type secured struct {
	settings func(host string) *tls.Config
	make     func(settings func(host string) *tls.Config) Secured

	mu    sync.Mutex
	known map[book.Holder]opened
	// uses is how often one was used.
	uses uint64
}

type opened struct {
	// of is the digest of the certificate, the key and the authorities: rotated ones take effect with the next request.
	of        [sha256.Size]byte
	transport Secured
	// used is which use was its last.
	used uint64
}

func newSecured(d Deps) *secured {
	settings := d.TLS
	if settings == nil {
		settings = func(host string) *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host} }
	}
	return &secured{settings: settings, make: d.Secured, known: map[book.Holder]opened{}}
}

// openAtMost is how many transports of certificates of organizations are kept, and openForOne of one organization. Beyond it the least
// recently used one is closed: its requests under way are finished.
const openAtMost, openForOne = 200, 20

// of is the transport of a credential.
func (s *secured) of(c *Credential, texts pem) (http.RoundTripper, error) {
	if s.make == nil {
		return nil, fault.New(fault.Unauthenticated, "the credential %q has a certificate, which cannot be sent here", c.Name)
	}
	digest := sha256.Sum256([]byte(strings.Join([]string{texts.certificate, texts.key, texts.authorities, string(c.terms())}, "\x00")))
	if known := s.use(c, digest); known != nil {
		return known, nil
	}
	settings, err := s.with(c, texts.certificate, texts.key, texts.authorities) // while others use theirs
	if err != nil {
		return nil, err
	}
	if known := s.use(c, digest); known != nil {
		return known, nil
	}
	return s.open(c, digest, s.make(settings)), nil
}

// use is the transport of a credential that there is for a digest; nil for none.
func (s *secured) use(c *Credential, digest [sha256.Size]byte) http.RoundTripper {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, made := s.known[c.identity()]
	if !made || known.of != digest {
		return nil
	}
	s.uses++
	known.used = s.uses
	s.known[c.identity()] = known
	return known.transport
}

// open keeps a transport of a credential, in place of the one before, and closes what is too much.
func (s *secured) open(c *Credential, digest [sha256.Size]byte, transport Secured) http.RoundTripper {
	s.mu.Lock()
	defer s.mu.Unlock()
	drop, found := book.Surplus(s.known, c.identity(), openForOne, openAtMost, func(one opened) uint64 { return one.used })
	if !found {
		drop = c.identity()
	}
	if before, made := s.known[drop]; made {
		before.transport.Close()
		delete(s.known, drop)
	}
	s.uses++
	s.known[c.identity()] = opened{of: digest, transport: transport, used: s.uses}
	return transport
}

// with are the settings with a certificate, and with authorities in place of all others if there are any.
func (s *secured) with(c *Credential, certificate, key, authorities string) (func(host string) *tls.Config, error) {
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil { // whose text may have a part of what was read
		return nil, fault.New(fault.Unauthenticated, "the credential %q has no certificate and key, in PEM, that belong together", c.Name)
	}
	var roots *x509.CertPool
	if authorities != "" {
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM([]byte(authorities)) {
			return nil, fault.New(fault.Unauthenticated, "the credential %q has no authorities, in PEM, at the reference ca", c.Name)
		}
	}
	return func(host string) *tls.Config {
		config := s.settings(host).Clone()
		config.Certificates = []tls.Certificate{pair}
		if roots != nil {
			config.RootCAs = roots
		}
		return config
	}, nil
}

// transport is what sends a request: with the certificate where the credential may be sent to, and without it after a redirect elsewhere.
func (l login) transport(plain http.RoundTripper) http.RoundTripper {
	if l.secured == nil {
		return plain
	}
	return choosing{l, plain}
}

type choosing struct {
	login login
	plain http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c choosing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "https" && c.login.credential.covers(r.URL) {
		return c.login.secured.RoundTrip(r)
	}
	return c.plain.RoundTrip(r)
}
