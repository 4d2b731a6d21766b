package argocd

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/go-git/go-git/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
)

// A Git server that is being started again is waited for, as Argo CD's repository server does.
func TestAGitServerThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := gitserver.Create(t.Context(), dir, "shop", map[string]string{"README.md": "shop\n"}); err != nil {
		t.Fatal(err)
	}
	h, err := gitserver.Handler(t.Context(), gitserver.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) < 3 {
			panic(http.ErrAbortHandler) // the connection is closed without an answer
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	r := repositories{clock: clock.System(), known: map[string]*git.Repository{}}
	if _, err := r.resolve(t.Context(), server.URL+"/shop.git", "main"); err != nil {
		t.Errorf("after %d requests: %v", asked.Load(), err)
	}
}
