package gitserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// maxPush bounds one push, in bytes.
const maxPush = 1 << 30

// createForPush makes the repository that a first push is about to go to, as some forges do: there is no other way to ask for one.
func createForPush(ctx context.Context, dir string, r *http.Request) error {
	path, isRefs := strings.CutSuffix(r.URL.Path, ".git/info/refs")
	name := strings.TrimPrefix(path, "/")
	if !isRefs || r.URL.Query().Get("service") != "git-receive-pack" || !repositoryName.MatchString(name) {
		return nil
	}
	return create(ctx, dir, name, nil)
}

// spool gives a body of unknown length a length: Git sends large pushes in chunks, which CGI cannot take. The function returned
// tidies up.
func spool(w http.ResponseWriter, r *http.Request) (func(), error) {
	if r.ContentLength >= 0 {
		return func() {}, nil
	}
	f, err := os.CreateTemp("", "lockstep-push-*")
	if err != nil {
		return nil, fmt.Errorf("spool push: %w", err)
	}
	done := func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	size, err := io.Copy(f, http.MaxBytesReader(w, r.Body, maxPush))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, fmt.Errorf("spool push: %w", err)
	}
	r.Body, r.ContentLength, r.TransferEncoding = f, size, nil
	return done, nil
}
