// Package ociregistry is the OCI registry of `lockstep dev`, the demo and the tests: go-containerregistry's, made to keep
// its content on disk and to send Docker Distribution notifications, as real registries do.
//
// It is not for production: it asks nobody who they are.
package ociregistry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log" //nolint:depguard // the type that go-containerregistry takes
	"log/slog"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
)

// maxManifest is the largest manifest accepted, in bytes; the OCI distribution specification asks for 4 MiB at least.
const maxManifest = 4 << 20

// Config says where the registry listens and stores, and whom it notifies.
type Config struct {
	// Address to listen on, host:port. Images are named by it.
	Address string
	// Dir keeps blobs, manifests and notifications that have not been accepted yet.
	Dir string
	// NotifyURL takes the notifications; empty for none. NotifyToken is sent as a bearer token.
	NotifyURL, NotifyToken string
	// Clock paces the retries; nil is the system's.
	Clock clock.Clock
}

// Run serves, and notifies, until ctx ends. ready is called once connections are accepted.
func Run(ctx context.Context, c Config, logger *slog.Logger, ready func()) error {
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	queue, err := openQueue(c, logger)
	if err != nil {
		return err
	}
	handler, err := newHandler(c.Dir, queue)
	if err != nil {
		return err
	}
	listener, err := rpc.Listen(ctx, clock.System(), c.Address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		queue.run(ctx)
	}()
	defer func() { cancel(); <-done }()
	ready()
	return rpc.ServeHTTP(ctx, logger, listener, handler)
}

// handler keeps what go-containerregistry's registry would hold in memory: the manifests.
type handler struct {
	registry  http.Handler
	manifests manifests
	queue     *queue
}

func newHandler(dir string, q *queue) (*handler, error) {
	store, err := openManifests(dir)
	if err != nil {
		return nil, err
	}
	h := &handler{
		registry: registry.New(
			registry.WithBlobHandler(registry.NewDiskBlobHandler(store.blobs())),
			registry.WithReferrersSupport(true),
			registry.Logger(log.New(io.Discard, "", 0)),
		),
		manifests: store,
		queue:     q,
	}
	return h, store.each(h.restore)
}

// restore puts a manifest of an earlier run back.
func (h *handler) restore(m manifest) error {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPut, "/v2/"+m.Repository+"/manifests/"+m.Reference,
		bytes.NewReader(m.Body))
	if err != nil {
		return fmt.Errorf("restore %s:%s: %w", m.Repository, m.Reference, err)
	}
	r.Header.Set("Content-Type", m.MediaType)
	w := &recorder{header: http.Header{}}
	h.registry.ServeHTTP(w, r)
	if w.status != http.StatusCreated {
		return fmt.Errorf("restore %s:%s: the registry answered %d: %s", m.Repository, m.Reference, w.status, w.body.String())
	}
	return nil
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	repository, reference, ok := manifestOf(r)
	if !ok {
		h.registry.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxManifest))
	if err != nil {
		http.Error(w, "manifest: "+err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := &recorder{header: w.Header()}
	h.registry.ServeHTTP(answer, r)
	if answer.status == http.StatusCreated {
		m := manifest{Repository: repository, Reference: reference, MediaType: r.Header.Get("Content-Type"), Body: body}
		if err := h.keep(m, answer.header.Get("Docker-Content-Digest"), r.Host); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	answer.copyTo(w)
}

// keep stores the manifest, then queues the notification: a crash in between loses a notification that the client,
// which has no answer yet, causes again by pushing again.
func (h *handler) keep(m manifest, digest, host string) error {
	if err := h.manifests.put(m); err != nil {
		return err
	}
	return h.queue.add(m, digest, host)
}

// manifestOf reports whether r pushes a manifest, and which.
func manifestOf(r *http.Request) (repository, reference string, ok bool) {
	path, isV2 := strings.CutPrefix(r.URL.Path, "/v2/")
	i := strings.LastIndex(path, "/manifests/")
	if r.Method != http.MethodPut || !isV2 || i <= 0 {
		return "", "", false
	}
	return path[:i], path[i+len("/manifests/"):], true
}

// recorder holds an answer back until the manifest is safe.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(b)
}

func (r *recorder) copyTo(w http.ResponseWriter) {
	w.WriteHeader(max(r.status, http.StatusOK))
	_, _ = w.Write(r.body.Bytes())
}
