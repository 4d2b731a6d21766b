package web

import (
	"io"
	"net/http"
	"sync/atomic"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// bounded is a way to a server whose answers are read up to a bound, as they come: what is small when packed may be large.
type bounded struct {
	next http.RoundTripper
	// most is how many bytes an answer may have.
	most atomic.Int64
	// secure refuses what is not sent over TLS.
	secure bool
}

// RoundTrip sends a request.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.secure && r.URL.Scheme != "https" {
		return nil, fault.New(fault.Refused, "%s does not speak HTTPS, and the credential is for HTTPS only", r.URL.Host)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Accept-Encoding", "identity") // otherwise the transport asks for packed answers, and unpacks them
	response, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = &boundedBody{response.Body, r.URL.Host, b.most.Load()}
	return response, nil
}

type boundedBody struct {
	io.ReadCloser

	host string
	left int64
}

// Read fails after the bound.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.exceeded()
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, b.exceeded()
	}
	return n, err
}

func (b *boundedBody) exceeded() error {
	return fault.New(fault.Refused, "the answer of %s is larger than expected of a chart", b.host)
}
