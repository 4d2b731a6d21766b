package gitfetch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// Transport bounds every answer by the share of the fetch that asked, which Do has put into the request's context. Without one nothing is asked.
type Transport struct {
	// Next sends the requests.
	Next http.RoundTripper
}

// decodedFactor is how much memory a byte takes that is decoded as it comes: a name of a ref in a map, or a file in JSON, read, decoded and copied.
const decodedFactor = 4

// errWithoutShare is a mistake of ours.
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
		return nil, err // a transport passes errors on as they are
	}
	stream, _ := r.Context().Value(streamKey{}).(*stream)
	answer.Body = &body{ReadCloser: answer.Body, share: share, stream: stream}
	return answer, nil
}

// streamKey is where a context has the stream that its answer is.
type streamKey struct{}

// stream says whether the answer is read as a pack by now, which is kept elsewhere than in memory and accounted for there.
type stream struct{ pack atomic.Bool }

func withStream(ctx context.Context) (context.Context, *stream) {
	s := &stream{}
	return context.WithValue(ctx, streamKey{}, s), s
}

// body counts what is read.
type body struct {
	io.ReadCloser
	share  *Share
	stream *stream
}

// Read fails once a limit is met.
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
	return n, err // io.EOF has to stay itself
}
