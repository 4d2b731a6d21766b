// Package console serves the web console and the documentation, whose builds are embedded so that building the product needs Go alone.
// The console is a single-page application: `make console` builds dist from ui, and a test compares the two. The documentation is a
// static site: `make docs` builds docs from the pages in the repository's docs folder, and `make docs-drift` compares the two.
//
// It knows nothing of the domain. The console's pages use the public API, as all other clients do.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed all:dist
var dist embed.FS

//go:embed all:docs
var docs embed.FS

const (
	index = "index.html"
	// missing is the documentation's page for an address that it does not have.
	missing = "404.html"
	// link is where the console's page has the address of the documentation.
	link = `data-docs="/docs/"`
	// policy lets the page load from its own origin only: no inline script or style, no eval, no frames around it.
	policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
	// hashed files have their content's hash in their name, so that they never change.
	hashed = "assets/"
	// worthCompressing is the size from which gzip is smaller by more than it costs.
	worthCompressing = 1 << 10
)

// file is one file of the build, ready to be sent.
type file struct {
	content []byte
	// compressed is the content as gzip has it, made when it is asked for first: most starts send few pages. It is nil for what is not text.
	compressed func() []byte
	media, tag string
}

// Handler serves the console: its files under their names, and its page for every other path, because the page has its own
// router. It is for GET and HEAD. The console links to the documentation if withDocs is true.
func Handler(withDocs bool) (http.Handler, error) {
	root, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, fmt.Errorf("open the console's build: %w", err)
	}
	return newHandler(root, withDocs)
}

// Docs serves the documentation below a path, which begins and ends with a slash. It is for GET and HEAD.
func Docs(below string) (http.Handler, error) {
	root, err := fs.Sub(docs, "docs")
	if err != nil {
		return nil, fmt.Errorf("open the documentation's build: %w", err)
	}
	return newDocs(root, below)
}

func newDocs(root fs.FS, below string) (http.Handler, error) {
	files, err := load(root)
	if err != nil {
		return nil, fmt.Errorf("load the documentation's build: %w", err)
	}
	for _, name := range []string{index, missing} {
		if _, ok := files[name]; !ok {
			return nil, fmt.Errorf("load the documentation's build: found no %s; expected one: run `make docs`", name)
		}
	}
	return onlyReads(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, below)
		if name == "" || strings.HasSuffix(name, "/") {
			name += index
		}
		if f, found := files[name]; found {
			send(w, r, name, f, http.StatusOK)
			return
		}
		send(w, r, missing, files[missing], http.StatusNotFound)
	}), nil
}

// onlyReads refuses methods other than GET and HEAD.
func onlyReads(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "expected GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		next(w, r)
	})
}

func newHandler(root fs.FS, withDocs bool) (http.Handler, error) {
	files, err := load(root)
	if err != nil {
		return nil, fmt.Errorf("load the console's build: %w", err)
	}
	page, ok := files[index]
	if !ok {
		return nil, errors.New("load the console's build: found no index.html; expected one: run `make console`")
	}
	if !withDocs {
		page = newFile(index, bytes.Replace(page.content, []byte(link), nil, 1))
		files[index] = page
	}
	return onlyReads(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		f, found := files[name]
		switch {
		case found:
		case strings.HasPrefix(name, hashed):
			// A page that is older than this build asks for what is gone. Another page would be no script.
			http.NotFound(w, r)
			return
		default:
			f, name = page, index
		}
		send(w, r, name, f, http.StatusOK)
	}), nil
}

func send(w http.ResponseWriter, r *http.Request, name string, f file, status int) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Content-Type", f.media)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.tag)
	if strings.HasPrefix(name, hashed) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	body := f.content
	if f.compressed != nil {
		h.Set("Vary", "Accept-Encoding")
	}
	if status == http.StatusOK && r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if f.compressed != nil && acceptsGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		body = f.compressed()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // a client that is gone needs no answer
	}
}

// acceptsGzip reads an Accept-Encoding header; `gzip;q=0` refuses it.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, quality, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(quality), "q="), 64)
			return err != nil || q > 0
		}
	}
	return false
}

// load reads the whole build.
func load(root fs.FS) (map[string]file, error) {
	files := map[string]file{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		files[name] = newFile(name, content)
		return nil
	})
	return files, err
}

func newFile(name string, content []byte) file {
	// The entity tag is weak, because it is the same for the compressed form.
	f := file{content: content, media: mediaType(name), tag: fmt.Sprintf(`W/"%x"`, sha256.Sum256(content))}
	if len(content) >= worthCompressing && strings.Contains(f.media, "charset") {
		f.compressed = sync.OnceValue(func() []byte { return compress(content) })
	}
	return f
}

// mediaType does not ask the machine's own tables for what a build has, so that it is the same everywhere.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml; charset=utf-8"
	case ".txt":
		return "text/plain; charset=utf-8"
	}
	if media := mime.TypeByExtension(path.Ext(name)); media != "" {
		return media
	}
	return "application/octet-stream"
}

func compress(content []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // fails for unknown levels only
	_, _ = w.Write(content)                                 // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}
