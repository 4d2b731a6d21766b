// Command publishable pushes the module of the protocol buffers with buf to a registry of its own, on this machine, and checks what was
// uploaded: the module's name, the token, and every file. It takes the program buf and the folder of the module.
//
// It is no registry: it knows the two calls that a push makes, and keeps nothing.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	token  = "token-of-a-test"
	commit = "0123456789abcdef0123456789abcdef"
	// within bounds the push.
	within = time.Minute
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: publishable BUF MODULE")
		os.Exit(2) //nolint:forbidigo // the end of the program
	}
	if err := push(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "publishable:", err)
		os.Exit(1) //nolint:forbidigo // the end of the program
	}
}

// registry takes what is pushed.
type registry struct {
	mu sync.Mutex
	// names are the modules that were asked for, and files the content of those that were uploaded, by path.
	names []string
	files map[string][]byte
	wrong error
}

// push copies a module with the name that it has in the registry here, and has buf push it.
func push(ctx context.Context, buf, module string) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r := &registry{files: map[string][]byte{}}
	server := httptest.NewServer(r)
	defer server.Close()
	folder, err := os.MkdirTemp("", "publishable")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	config := filepath.Join(folder, "config")
	if err := os.Mkdir(config, 0o700); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(config, "config.yaml"), []byte("version: v1\ntls:\n  use: \"false\"\n"), 0o600); err != nil {
		return fmt.Errorf("configure buf: %w", err)
	}
	copied := filepath.Join(folder, "module")
	if err := os.CopyFS(copied, os.DirFS(module)); err != nil {
		return fmt.Errorf("copy the module: %w", err)
	}
	owned, err := rename(filepath.Join(copied, "buf.yaml"), strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, buf, "push", "--label", "v0.0.0") //nolint:gosec // the program that the Makefile names
	cmd.Dir = copied
	cmd.Env = append(os.Environ(), "BUF_CONFIG_DIR="+config, "BUF_TOKEN="+token, "BUF_CACHE_DIR="+filepath.Join(folder, "cache"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("buf push: %w: %s", err, out)
	}
	return r.check(owned, copied)
}

// rename gives the module of a buf.yaml another registry, and returns its owner and name.
func rename(file, host string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the module's name: %w", err)
	}
	name := regexp.MustCompile(`(?m)^(\s*name:\s*)[a-z0-9.-]+/([a-z0-9-]+/[a-z0-9-]+)$`)
	found := name.FindSubmatch(text)
	if found == nil {
		return "", errors.New("found no name of the module in buf.yaml, expected REGISTRY/OWNER/NAME")
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		return "", fmt.Errorf("address of the registry: %w", err)
	}
	return string(found[2]), os.WriteFile(file, name.ReplaceAll(text, []byte("${1}"+host+"/${2}")), 0o600)
}

// check compares what was uploaded with the module.
func (r *registry) check(name, module string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong != nil {
		return r.wrong
	}
	if !slices.Equal(r.names, []string{name}) {
		return fmt.Errorf("the push named the modules %q, expected %s", r.names, name)
	}
	want := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(module), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".proto") && path != "README.md" && path != "LICENSE" {
			return err
		}
		want[path], err = os.ReadFile(filepath.Join(module, path))
		return err
	})
	if err != nil {
		return fmt.Errorf("read the module: %w", err)
	}
	if found, expected := slices.Sorted(maps.Keys(r.files)), slices.Sorted(maps.Keys(want)); !slices.Equal(found, expected) {
		return fmt.Errorf("the push uploaded the files %q, expected %q", found, expected)
	}
	for path, content := range want {
		if !bytes.Equal(r.files[path], content) {
			return fmt.Errorf("%s was uploaded with other content", path)
		}
	}
	return nil
}

// ServeHTTP answers as a registry does: Connect's unary calls, in protocol buffers.
func (r *registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, err := io.ReadAll(request.Body)
	if given := request.Header.Get("Authorization"); err == nil && given != "Bearer "+token {
		err = fmt.Errorf("%s: found other credentials than the token", request.URL.Path)
	}
	var answer []byte
	if err == nil {
		switch request.URL.Path {
		case "/buf.registry.module.v1.ModuleService/GetModules":
			err = r.named(body)
			answer = message(nil, 1, text(1, commit), text(4, "lockstep"), text(5, commit), text(10, "main"))
		case "/buf.registry.module.v1.UploadService/Upload":
			err = r.uploaded(body)
			digest := message([]byte{8, 1}, 2, bytes.Repeat([]byte{1}, 64)) // type B5
			answer = message(nil, 1, text(1, commit), text(3, commit), text(4, commit), message(nil, 5, digest))
		default:
			err = fmt.Errorf("%s was called, expected GetModules and Upload only", request.URL.Path)
		}
	}
	if err != nil {
		r.wrong = errors.Join(r.wrong, err)
		http.Error(w, `{"code":"unimplemented"}`, http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", "application/proto")
	_, _ = w.Write(answer) // buf says what it misses
}

// named notes the modules that a push is for.
func (r *registry) named(request []byte) error {
	return fields(request, func(_ protowire.Number, ref []byte) error { // module_refs
		return fields(ref, func(_ protowire.Number, name []byte) error { // by name
			owner := map[protowire.Number]string{}
			err := fields(name, func(n protowire.Number, part []byte) error { owner[n] = string(part); return nil })
			r.names = append(r.names, owner[1]+"/"+owner[2])
			return err
		})
	})
}

// uploaded notes the files of a push.
func (r *registry) uploaded(request []byte) error {
	const contents, files = 1, 2
	return fields(request, func(n protowire.Number, content []byte) error {
		if n != contents {
			return nil
		}
		return fields(content, func(n protowire.Number, file []byte) error {
			if n != files {
				return nil
			}
			parts := map[protowire.Number][]byte{}
			err := fields(file, func(n protowire.Number, part []byte) error { parts[n] = part; return nil })
			r.files[string(parts[1])] = parts[2]
			return err
		})
	})
}

// fields calls use for each field of a message that has bytes.
func fields(b []byte, use func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if kind == protowire.BytesType {
			value, size := protowire.ConsumeBytes(b)
			if size < 0 {
				return protowire.ParseError(size)
			}
			if err := use(n, value); err != nil {
				return err
			}
			b = b[size:]
			continue
		}
		if size = protowire.ConsumeFieldValue(n, kind, b); size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
	}
	return nil
}

// message appends a field of bytes, which are those of all parts.
func message(to []byte, n protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, n, protowire.BytesType), bytes.Join(parts, nil))
}

func text(n protowire.Number, value string) []byte { return message(nil, n, []byte(value)) }
