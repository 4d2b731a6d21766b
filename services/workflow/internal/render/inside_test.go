package render

import (
	"net/http"
	"testing"
)

func TestNoRequestLeaves(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/base.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := (nowhere{}).RoundTrip(r); err == nil {
		_ = response.Body.Close()
		t.Error("a request was sent")
	}
}
