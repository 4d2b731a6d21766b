package oci

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// patience records until when hosts have asked not to be queried (RFC 9110, Retry-After), which the registry client does not expose.
type patience struct {
	next  http.RoundTripper
	clock clock.Clock

	mu    sync.Mutex
	until map[string]time.Time
}

// mostPatience bounds what a host may ask for: the header is untrusted.
const mostPatience = time.Hour

// RoundTrip implements http.RoundTripper.
func (p *patience) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := p.next.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode != http.StatusServiceUnavailable {
		return answer, err
	}
	now := p.clock.Now()
	wait, ok := retryAfter(answer.Header.Get("Retry-After"), now)
	if ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.until == nil {
			p.until = map[string]time.Time{}
		}
		for host, until := range p.until { // hosts come from payloads: expired ones are removed
			if until.Before(now) {
				delete(p.until, host)
			}
		}
		p.until[strings.ToLower(r.URL.Host)] = now.Add(min(wait, mostPatience))
	}
	return answer, nil
}

// retryAfter parses a number of seconds or a time.
func retryAfter(header string, now time.Time) (time.Duration, bool) {
	if n, err := strconv.Atoi(header); err == nil && n >= 0 && n < 1<<30 {
		return time.Duration(n) * time.Second, true
	}
	at, err := http.ParseTime(header)
	return at.Sub(now), err == nil
}

// of returns until when a host must not be queried; zero if it may be.
func (p *patience) of(host string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until[strings.ToLower(host)]
}

// patient adds the time to retry to an error of a registry. Docker Hub is queried under another name than its own.
func (r *Registries) patient(err error, host string) error {
	if !fault.Is(err, fault.Unavailable) {
		return err
	}
	if host == "docker.io" {
		host = "index.docker.io"
	}
	if until := r.patience.of(host); until.After(r.d.Clock.Now()) {
		return core.Later{At: until, Err: err}
	}
	return err
}
