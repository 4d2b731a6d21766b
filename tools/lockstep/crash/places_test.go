package crash

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// forms are how a secret may stand somewhere: as it is, in JSON, in a URL, in the header of a basic authentication, or as bytes. Canaries
// are of letters and digits, so that the first three are one.
func forms(value string) []string {
	return []string{
		value, base64.StdEncoding.EncodeToString([]byte(value)), base64.StdEncoding.EncodeToString([]byte("lockstep:" + value)),
		hex.EncodeToString([]byte(value)),
	}
}

// places are all places where a stack stores or prints something, with their content.
func (w *world) places(ctx context.Context, t *testing.T, spans *collector, canaries secrets) map[string]string {
	t.Helper()
	places := map[string]string{}
	w.tables(ctx, t, places)
	w.files(t, places)
	w.commits(t, places)
	for _, part := range stack.Parts() {
		pid, err := w.stack.Process(part)
		if err != nil {
			t.Fatal(err)
		}
		arguments, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil {
			t.Fatal(err)
		}
		places["arguments of "+part] = string(arguments)
	}
	for _, service := range []string{"registry", "domain", "workflow", "relay"} {
		for _, path := range []string{"/metrics", "/readyz", "/version"} {
			places[service+path] = exchange(ctx, t, w.stack.Health(service)+path, "", "")
		}
	}
	spans.mu.Lock()
	for i, s := range spans.spans {
		places[fmt.Sprintf("span %d of %s", i, s.service)] = s.String()
	}
	n := len(spans.spans)
	spans.mu.Unlock()
	if n == 0 {
		t.Error("no spans were exported")
	}
	w.commands(ctx, t, canaries, places)
	return places
}

// tables adds every row of every table of the services, of all organizations, and what PostgreSQL shows of their sessions.
func (w *world) tables(ctx context.Context, t *testing.T, places map[string]string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, w.stack.Endpoints().Database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	read := func(place, query string, args ...any) {
		t.Helper()
		rows, err := conn.Query(ctx, query, args...)
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", place, err)
		}
		places[place] = strings.Join(texts, "\n")
	}
	for _, service := range []string{"registry", "domain", "workflow"} {
		schema := w.stack.Schema(service)
		rows, err := conn.Query(ctx, `SELECT tablename FROM pg_tables WHERE schemaname = $1`, schema)
		if err != nil {
			t.Fatal(err)
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(names) == 0 {
			t.Fatalf("tables of %s: %v, %v", schema, names, err)
		}
		for _, name := range names {
			read("table "+service+"."+name, `SELECT t::text FROM `+pgx.Identifier{schema, name}.Sanitize()+` t`)
		}
		read("sessions of "+service, `SELECT a::text FROM pg_stat_activity a WHERE application_name = 'lockstep/' || $1`, schema)
	}
	if !strings.Contains(places["table domain.cd_rollouts"], "1") || !strings.Contains(places["table workflow.entry"], "git.commit") {
		t.Errorf("the tables do not show the rollouts: %q", places["table domain.cd_rollouts"])
	}
}

// files adds the logs, what JetStream has stored, what the simulated cluster has, and the image registry: all that stands in the stack's
// folder but the configuration, where the secrets are put, and Git's, which is packed.
func (w *world) files(t *testing.T, places map[string]string) {
	t.Helper()
	root := w.dir()
	except := []string{"config", "git", "settings.json", "endpoints.json", "lock", "run"}
	found := map[string]int{}
	folder := os.DirFS(root)
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) { // gone while it was looked at
			return nil
		}
		if err != nil {
			return err
		}
		top, _, _ := strings.Cut(name, "/")
		if slices.Contains(except, top) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		text, err := fs.ReadFile(folder, name)
		if os.IsNotExist(err) { // written beside, and renamed
			return nil
		}
		places["file "+name] = string(text)
		found[top]++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, top := range []string{"log", "nats", "cluster"} {
		if found[top] == 0 {
			t.Errorf("found no files in %s, want some", top)
		}
	}
}

// commits adds every object of every repository.
func (w *world) commits(t *testing.T, places map[string]string) {
	t.Helper()
	repositories, err := filepath.Glob(filepath.Join(w.stack.GitDir(), "*.git"))
	if err != nil || len(repositories) == 0 {
		t.Fatalf("repositories: %v, %v", repositories, err)
	}
	for _, repository := range repositories {
		out, err := exec.CommandContext(t.Context(), "git", "-C", repository, "log", "--all", "--patch", "--format=fuller").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "staging") {
			t.Fatalf("log of %s: %v: %s", repository, err, out)
		}
		places["commits of "+filepath.Base(repository)] = string(out)
	}
}

// commands adds what the command line prints of everything, from the APIs and from the examination of the installation.
func (w *world) commands(ctx context.Context, t *testing.T, canaries secrets, places map[string]string) {
	t.Helper()
	e := w.stack.Endpoints()
	environment := append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LOCKSTEP_") }),
		"LOCKSTEP_ENDPOINT="+e.GraphQL, "LOCKSTEP_TOKEN="+e.Token, "LOCKSTEP_DATABASE_URL="+w.stack.Endpoints().Database,
		"LOCKSTEP_NATS_URL="+e.NATS,
		"LOCKSTEP_NATS_PASSWORD="+canaries["NATS password of workflow"], "LOCKSTEP_GRPC="+e.GRPC)
	for _, line := range []string{
		"rollout list", "rollout get rollout_1", "application list", "environment list", "version-set list shop",
		"source list --application shop",
		"member list", "token list", "agent list", "access list", "source kinds", "flow get shop",
		"doctor --nats-user workflow --agent 42 --listen 6s --schema " + w.stack.Schema("domain") + " --health domain=" +
			w.stack.Health("domain"),
	} {
		command := exec.CommandContext(ctx, os.Args[0], append(strings.Fields(line), "-o", "json")...)
		command.Env = append(environment, "LOCKSTEP_TEST_AS_COMMAND=1")
		out, err := command.CombinedOutput()
		if err != nil && !strings.HasPrefix(line, "doctor") || len(out) == 0 {
			t.Errorf("lockstep %s: %v: %s", line, err, out)
		}
		places["lockstep "+line] = string(out)
	}
}

// exchange sends a request, a GET where there is no body, and answers the whole answer.
func exchange(ctx context.Context, t *testing.T, address, token, body string) string {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal((&url.Error{Op: method, URL: address, Err: err}).Error())
	}
	return dump(t, response)
}

// dump is a whole answer, headers included.
func dump(t *testing.T, response *http.Response) string {
	t.Helper()
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintln(response.Status, response.Header, string(text))
}
