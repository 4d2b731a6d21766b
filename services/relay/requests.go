package relay

import (
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
	"github.com/lockstep-cd/lockstep/services/relay/internal/web"
)

// requestTimeout bounds every exchange; calls have timeouts of their own, which are shorter.
const requestTimeout = 5*time.Minute + 5*time.Second

// RequestCredential is a secret that requests from inside the cluster may have.
type RequestCredential struct {
	// Name is what programs call it.
	Name string `koanf:"name"`
	// URLPrefixes are where it may be sent: scheme, host and the beginning of a path, which ends at a slash.
	URLPrefixes []string `koanf:"url_prefixes"`
	// Username makes it a user name and password, Header the value of that header. Without both it is a bearer token.
	Username string `koanf:"username"`
	Header   string `koanf:"header"`
	// Ref is a reference to the secret, env:NAME or file:/path, which is read for each request.
	Ref string `koanf:"ref"`
}

// requestProblems finds what could never work.
func (c Config) requestProblems() (wrong []fault.Field) {
	report := func(name, format string, values ...any) {
		wrong = append(wrong, fault.Field{Name: name, Problem: fmt.Sprintf(format, values...)})
	}
	for i, entry := range c.AllowRequests {
		if _, _, err := core.ParseAllowance(entry); err != nil {
			report(fmt.Sprintf("allow_requests[%d]", i),
				"found %q, expected the beginning of URLs, with methods in front of it or none: GET,HEAD http://api.shop.svc/", entry)
		}
	}
	for i, own := range c.RequestCredentials {
		at := fmt.Sprintf("request_credentials[%d].", i)
		if own.Name == "" {
			report(at+"name", "missing, expected what programs call it")
		}
		if len(own.URLPrefixes) == 0 {
			report(at+"url_prefixes", "missing, expected the URLs that it may be sent to")
		}
		for _, prefix := range own.URLPrefixes {
			if u, err := sealing.ParseURL(prefix, "https", "http"); err != nil || u.RawQuery != "" {
				report(at+"url_prefixes", "found %q, expected scheme, host and the beginning of a path", prefix)
			}
		}
		if !reference.Is(own.Ref) {
			report(at+"ref", "%s", reference.Expected) // the value is not shown: it may be a password put here by mistake
		}
		if own.Header != "" && (own.Username != "" || !sealing.ValidHeader(own.Header)) {
			report(at+"header", "found %q, expected the name of a header, such as X-Api-Key, without username", own.Header)
		}
	}
	return wrong
}

// requests are the client for what allow_requests has. Its transport reaches these hosts, whatever their addresses are.
func (c Config) requests(clk clock.Clock, log *slog.Logger) (*web.Client, error) {
	guard := httpx.Config{Log: log, Timeout: requestTimeout}
	for _, entry := range c.AllowRequests {
		_, prefix, err := core.ParseAllowance(entry)
		if err != nil {
			return nil, fmt.Errorf("allow_requests: %w", err)
		}
		u, err := url.Parse(prefix)
		if err != nil {
			return nil, fmt.Errorf("allow_requests: %w", err)
		}
		guard.Allow = append(guard.Allow, u.Hostname()+":"+sealing.Port(u))
	}
	var err error
	if guard.TLS, err = certs.Beside(c.RequestCAFile, log); err != nil {
		return nil, fmt.Errorf("request_ca_file: %w", err)
	}
	transport, err := httpx.New(guard)
	if err != nil {
		return nil, fmt.Errorf("allow_requests: %w", err)
	}
	secrets, err := secret.New(secret.VaultConfig{}, clk, log)
	if err != nil {
		return nil, fmt.Errorf("request_credentials: %w", err)
	}
	deps := web.Deps{HTTP: transport, Read: secrets.Read}
	for _, own := range c.RequestCredentials {
		deps.Credentials = append(deps.Credentials, web.Credential(own))
	}
	return web.New(deps), nil
}
