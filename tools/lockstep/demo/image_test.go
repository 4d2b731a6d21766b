package demo

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// A registry that is being started again is waited for; one that says no is not asked again.
func TestAPushThatCannotReachTheRegistryIsTriedAgain(t *testing.T) {
	t.Parallel()
	if _, err := PushImage(t.Context(), "127.0.0.1:1", "shop/api", "1.0.0", nil); !fault.Is(err, fault.Unavailable) {
		t.Errorf("nobody listens: got %v (%v), want Unavailable", err, fault.ClassOf(err))
	}
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(refusing.Close)
	if _, err := PushImage(t.Context(), strings.TrimPrefix(refusing.URL, "http://"), "shop/api", "1.0.0", nil); err == nil ||
		fault.Is(err, fault.Unavailable) {
		t.Errorf("refused: got %v (%v), want an error that is not Unavailable", err, fault.ClassOf(err))
	}
}
