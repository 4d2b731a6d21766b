package gitfetch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// Transport bounds every answer by the share in the request's context, which Do has put there. A request without a share is refused.
type Transport struct {
	// Next sends the requests.
	Next http.RoundTripper
}

// decodedFactor is the memory per byte that is decoded as it arrives: a ref's name in a map, or a file in JSON, read, decoded and copied.
const decodedFactor = 4

// errWithoutShare indicates a programming error.
var errWithoutShare = errors.New("a request without a share of the budget for fetches")

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	share, ok := r.Context().Value(shareKey{}).(*Share)
	if !ok {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, errWithoutShare
	}
	answer, err := t.Next.RoundTrip(r)
	if err != nil {
		return nil, err // a transport returns errors unchanged
	}
	stream, _ := r.Context().Value(streamKey{}).(*stream)
	answer.Body = &body{ReadCloser: answer.Body, share: share, stream: stream}
	return answer, nil
}

// streamKey is the context key of the stream.
type streamKey struct{}

// stream records whether the answer is being read as a pack, which is stored and accounted for elsewhere.
type stream struct{ pack atomic.Bool }

func withStream(ctx context.Context) (context.Context, *stream) {
	s := &stream{}
	return context.WithValue(ctx, streamKey{}, s), s
}

// body counts the bytes that are read.
type body struct {
	io.ReadCloser
	share  *Share
	stream *stream
}

// Read fails once a limit is exceeded.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		if err := b.share.transfer(int64(n)); err != nil {
			return 0, err
		}
		if b.stream == nil || !b.stream.pack.Load() {
			if err := b.share.Use(decodedFactor * int64(n)); err != nil {
				return 0, err
			}
		}
	}
	return n, err // io.EOF must stay unwrapped
}
