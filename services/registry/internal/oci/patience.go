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

// patience remembers until when hosts have asked to be left alone (RFC 9110, Retry-After), which the client of registries
// does not tell.
type patience struct {
	next  http.RoundTripper
	clock clock.Clock

	mu    sync.Mutex
	until map[string]time.Time
}

// mostPatience bounds what a host may ask for; it is somebody else's header.
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
		for host, until := range p.until { // hosts come out of payloads: those that are over go
			if until.Before(now) {
				delete(p.until, host)
			}
		}
		p.until[strings.ToLower(r.URL.Host)] = now.Add(min(wait, mostPatience))
	}
	return answer, nil
}

// retryAfter reads a number of seconds or an instant.
func retryAfter(header string, now time.Time) (time.Duration, bool) {
	if n, err := strconv.Atoi(header); err == nil && n >= 0 && n < 1<<30 {
		return time.Duration(n) * time.Second, true
	}
	at, err := http.ParseTime(header)
	return at.Sub(now), err == nil
}

// of is until when a host wants to be left alone; zero for a host that does not.
func (p *patience) of(host string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until[strings.ToLower(host)]
}

// patient is an error of a registry that may have asked for time. Docker Hub is asked under another name than it has.
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
