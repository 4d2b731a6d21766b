package cli_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lockstep": func() { os.Exit(cli.Main("v1.2.3", os.Args[1:])) }})
}

// TestScripts runs testdata/script/*.txtar: each is a session at a terminal, against an API whose answers are files beside it.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			server := httptest.NewServer(&api{dir: env.WorkDir, asked: map[string]int{}})
			env.Defer(server.Close)
			env.Setenv("LOCKSTEP_ENDPOINT", server.URL)
			env.Setenv("LOCKSTEP_REGISTRY", server.URL)
			oci := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
			env.Defer(oci.Close)
			env.Setenv("OCI", strings.TrimPrefix(oci.URL, "http://"))
			if err := push(oci.URL); err != nil {
				return err
			}
			address, stop, err := serveAutoflow(env.WorkDir)
			if err != nil {
				return err
			}
			env.Defer(stop)
			env.Setenv("LOCKSTEP_GRPC", "grpc://"+address)
			env.Setenv("LOCKSTEP_TOKEN", "secret")
			env.Setenv("TZ", "UTC")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": func(ts *testscript.TestScript, _ bool, args []string) {
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				err = ts.Exec(args[1], args[2:]...)
				got := 0
				if exit, ok := err.(interface{ ExitCode() int }); ok {
					got = exit.ExitCode()
				} else {
					ts.Check(err)
				}
				if got != want {
					ts.Fatalf("exit code %d, expected %d", got, want)
				}
			},
		},
	})
}

// api answers a question about <field> with the file <field>.<n>.json for the nth, or <field>.json for all. What was sent
// is in <field>.sent.
type api struct {
	dir   string
	mu    sync.Mutex
	asked map[string]int
}

var firstField = regexp.MustCompile(`^(?:(?:query|mutation|subscription)[^{]*)?\{\s+(\w+)`)

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer secret" {
		http.Error(w, "token: found another, expected ours", http.StatusUnauthorized)
		return
	}
	switch r.URL.Path {
	case "/v1/events":
		a.take(w, r)
		return
	case "/elsewhere/v1/events":
		http.NotFound(w, r)
		return
	case "/elsewhere": // as the registry service answers
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"title":"Not Found","errors":[{"field":"path","problem":"found /elsewhere; expected /v1/events"}]}`)
		return
	}
	var request struct {
		Query     string
		Variables json.RawMessage
	}
	body, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(body, &request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	field := firstField.FindStringSubmatch(request.Query)[1]
	a.asked[field]++
	_ = os.WriteFile(filepath.Join(a.dir, field+".sent"), append(request.Variables, '\n'), 0o600)
	answer, err := os.ReadFile(filepath.Join(a.dir, field+"."+strconv.Itoa(a.asked[field])+".json"))
	if err != nil {
		answer, err = os.ReadFile(filepath.Join(a.dir, field+".json"))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if r.Header.Get("Accept") == "text/event-stream" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	_, _ = w.Write(answer)
}

// take is the registry service: it keeps the event in event.sent, and refuses the tag refused.
func (a *api) take(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_ = os.WriteFile(filepath.Join(a.dir, "event.sent"), append(body, '\n'), 0o600)
	if strings.Contains(string(body), `"refused"`) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"detail":"data.tag: not this one"}`)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"events":["0190-1"]}`)
}

// push puts the empty image into a registry, as shop/api:1.
func push(url string) error {
	tag, err := name.NewTag(strings.TrimPrefix(url, "http://") + "/shop/api:1")
	if err != nil {
		return err
	}
	return remote.Write(tag, empty.Image)
}
