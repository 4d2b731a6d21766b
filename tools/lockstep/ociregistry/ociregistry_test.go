package ociregistry_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/ociregistry"
)

// start runs a registry until the test, or the function returned, ends it.
func start(t *testing.T, c ociregistry.Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- ociregistry.Run(ctx, c, slog.New(slog.DiscardHandler), func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatalf("registry: %v", err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("registry: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func push(t *testing.T, ref string) string {
	t.Helper()
	image, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func TestContentSurvivesARestart(t *testing.T) {
	t.Parallel()
	c := ociregistry.Config{Address: porttest.FreeAddress(t), Dir: t.TempDir()}
	stop := start(t, c)
	digest := push(t, c.Address+"/shop/api:1.0")
	stop()
	start(t, c)
	ref, err := name.ParseReference(c.Address+"/shop/api@"+digest, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(ref, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatalf("pull after the restart: %v", err)
	}
	if _, err := image.RawConfigFile(); err != nil {
		t.Errorf("the image's configuration is lost: %v", err)
	}
	tag, err := name.NewTag(c.Address+"/shop/api:1.0", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := remote.Head(tag, remote.WithContext(t.Context())); err != nil || d.Digest.String() != digest {
		t.Errorf("tag after the restart = %v, %v; want %s", d, err, digest)
	}
}

func TestEveryPushIsNotifiedUntilAccepted(t *testing.T) {
	t.Parallel()
	type received struct {
		token, repository, digest, tag, action string
	}
	attempts := make(chan received, 10)
	refusals := 1
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var e struct {
			Events []struct {
				Action string
				Target struct{ Repository, Digest, Tag string }
			}
		}
		if err := json.Unmarshal(body, &e); err != nil || len(e.Events) != 1 {
			t.Errorf("notification %s: %v", body, err)
			return
		}
		if refusals > 0 {
			refusals--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		n := e.Events[0]
		attempts <- received{r.Header.Get("Authorization"), n.Target.Repository, n.Target.Digest, n.Target.Tag, n.Action}
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(receiver.Close)
	c := ociregistry.Config{Address: porttest.FreeAddress(t), Dir: t.TempDir(), NotifyURL: receiver.URL, NotifyToken: "t0ken"}
	start(t, c)
	digest := push(t, c.Address+"/shop/web:2.0")
	want := received{"Bearer t0ken", "shop/web", digest, "2.0", "push"}
	if got := <-attempts; got != want {
		t.Errorf("notification = %+v, want %+v", got, want)
	}
}
