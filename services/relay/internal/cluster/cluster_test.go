package cluster

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// open returns a Cluster whose API server is the handler.
func open(t *testing.T, h http.HandlerFunc) *Cluster {
	t.Helper()
	return openFor(t, h, time.Minute) // a busy machine answers sooner
}

// openFor is open with another timeout for requests.
func openFor(t *testing.T, h http.HandlerFunc, timeout time.Duration) *Cluster {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := forConfig(&rest.Config{Host: s.URL}, timeout, clock.System())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func respond(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body)
}

func status(code int, reason string) string {
	b, _ := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "as the API server says",
	})
	return string(b)
}

func rollout(name string) core.Ref {
	return core.Ref{Kind: core.Kind{Kind: "Rollout"}, Namespace: "shop", Name: name}
}

func TestErrorsOfTheClusterAreClassified(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		handler http.HandlerFunc
		class   fault.Class
		code    string
	}{
		{"absent", func(w http.ResponseWriter, _ *http.Request) { respond(w, 404, status(404, "NotFound")) }, fault.NotFound, ""},
		{
			"kind that is not installed", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", 404) }, 0,
			core.CodeUnknownKind,
		},
		{"forbidden", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				return
			}
			respond(w, 403, status(403, "Forbidden"))
		}, fault.Denied, ""},
		{"not logged in", func(w http.ResponseWriter, _ *http.Request) { respond(w, 401, status(401, "Unauthorized")) }, fault.Denied, ""},
		{"too busy", func(w http.ResponseWriter, _ *http.Request) { respond(w, 429, status(429, "TooManyRequests")) }, fault.Unavailable, ""},
		{"starting", func(w http.ResponseWriter, _ *http.Request) { respond(w, 503, status(503, "ServiceUnavailable")) }, fault.Unavailable, ""},
		{
			"a proxy in between", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad gateway", http.StatusBadGateway) },
			fault.Unavailable, "",
		},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, fault.Unavailable, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			timeout := time.Minute
			if tc.class == fault.Unavailable {
				timeout = time.Second // the client retries as long as it may, and a late answer is none
			}
			_, err := openFor(t, tc.handler, timeout).Get(t.Context(), rollout("api"))
			var e *core.Error
			if tc.code != "" && (!errors.As(err, &e) || e.Code != tc.code) {
				t.Fatalf("error %v, want code %s", err, tc.code)
			}
			if tc.code == "" && !fault.Is(err, tc.class) {
				t.Fatalf("error %v of class %v, want %v", err, fault.ClassOf(err), tc.class)
			}
		})
	}
}

// kubernetes@1 goes by these words (compare.star, UNLISTED): a kind that may not be listed is left out of what would be pruned, and
// nothing is left out because the credentials have lapsed.
func TestALackOfRightsIsNoLackOfCredentials(t *testing.T) {
	t.Parallel()
	for want, failed := range map[string]error{
		"the cluster does not let the relay list ":                 apierrors.NewForbidden(schema.GroupResource{}, "", nil),
		"the cluster does not accept the credentials of the relay": apierrors.NewUnauthorized("expired"),
	} {
		err := classify(failed, "list", rollout("api"))
		if !fault.Is(err, fault.Denied) || !strings.HasPrefix(fault.Public(err), want) {
			t.Errorf("found %v; want it to begin with %q", err, want)
		}
	}
}

func TestAnUnreachableClusterIsUnavailable(t *testing.T) {
	t.Parallel()
	c, err := forConfig(&rest.Config{Host: "http://" + porttest.FreeAddress(t)}, time.Second, clock.System())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), rollout("api")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("get: %v", err)
	}
	if err := c.Reachable(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("reachable: %v", err)
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]bool{200: true, 403: true, 401: false, 503: false} {
		c := open(t, func(w http.ResponseWriter, _ *http.Request) {
			reason := map[int]string{403: "Forbidden", 401: "Unauthorized", 503: "ServiceUnavailable"}[code]
			respond(w, code, status(code, reason))
		})
		if err := c.Reachable(t.Context()); (err == nil) != want {
			t.Errorf("an answer of %d: %v", code, err)
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis/example.com/v2":
			asked.Add(1)
			respond(w, 200, `{"resources":[{"name":"widgets/status","kind":"Widget","namespaced":true},{"name":"widgets","kind":"Widget","namespaced":true}]}`)
		case "/apis/example.com/v2/namespaces/shop/widgets/x", "/api/v1/namespaces/shop", "/apis/apps/v1/namespaces/shop/deployments/x",
			"/apis/argoproj.io/v1beta1/namespaces/shop/rollouts/x":
			respond(w, 200, `{"kind":"K","apiVersion":"v1","metadata":{"name":"x"}}`)
		default:
			http.Error(w, "404 page not found", 404)
		}
	})
	for _, tc := range []struct {
		apiVersion, kind, namespace string
		code                        string
	}{
		{kind: "Deployment", namespace: "shop"},
		{kind: "Rollout", apiVersion: "argoproj.io/v1beta1", namespace: "shop"},
		{kind: "Widget", apiVersion: "example.com/v2", namespace: "shop"},
		{kind: "Widget", apiVersion: "example.com/v2", namespace: "shop"},
		{kind: "Widget", namespace: "shop", code: core.CodeUnknownKind},
		{kind: "Gadget", apiVersion: "example.com/v2", namespace: "shop", code: core.CodeUnknownKind},
		{kind: "Widget", apiVersion: "example.org/v1", namespace: "shop", code: core.CodeUnknownKind},
		{kind: "Widget", apiVersion: "a/b/c", namespace: "shop", code: "fault"},
		{kind: "Deployment", code: "fault"},
	} {
		ref := core.Ref{Kind: core.Kind{APIVersion: tc.apiVersion, Kind: tc.kind}, Namespace: tc.namespace, Name: "x"}
		_, err := c.Get(t.Context(), ref)
		var e *core.Error
		switch {
		case tc.code == "" && err != nil:
			t.Errorf("%v: %v", ref, err)
		case tc.code == core.CodeUnknownKind && (!errors.As(err, &e) || e.Code != tc.code):
			t.Errorf("%v: %v, want unknown kind", ref, err)
		case tc.code == "fault" && !fault.Is(err, fault.Invalid):
			t.Errorf("%v: %v, want invalid", ref, err)
		}
	}
	if _, err := c.Get(t.Context(), core.Ref{Kind: core.Kind{Kind: "Namespace"}, Name: "shop"}); err != nil {
		t.Errorf("a kind without a namespace: %v", err)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times where example.com/v2 keeps its kinds, want once for Widget and once for Gadget", n)
	}
}

func TestPatchOfTheStatusFallsBackToTheObject(t *testing.T) {
	t.Parallel()
	var paths []string
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
		if r.URL.Path == "/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/api/status" {
			respond(w, 404, status(404, "NotFound"))
			return
		}
		respond(w, 200, `{"kind":"Rollout","apiVersion":"argoproj.io/v1alpha1","metadata":{"name":"api"}}`)
	})
	if err := c.Patch(t.Context(), rollout("api"), core.Object{"status": map[string]any{"abort": true}}, true); err != nil {
		t.Fatal(err)
	}
	if len(paths) != 2 || paths[1] != "PATCH /apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/api application/merge-patch+json" {
		t.Errorf("requests %q", paths)
	}
}

func TestConflictsAndRefusals(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		code int
		want fault.Class
	}{
		"Conflict": {409, fault.Conflict}, "AlreadyExists": {409, fault.Conflict}, "Invalid": {422, fault.Invalid},
		"BadRequest": {400, fault.Invalid},
	} {
		c := open(t, func(w http.ResponseWriter, _ *http.Request) { respond(w, tc.code, status(tc.code, reason)) })
		if err := c.Patch(t.Context(), rollout("api"), core.Object{}, false); !fault.Is(err, tc.want) {
			t.Errorf("patch refused as %s: %v of class %v", reason, err, fault.ClassOf(err))
		}
		if err := c.Create(t.Context(), rollout("api"), core.Object{"kind": "Rollout", "apiVersion": "argoproj.io/v1alpha1"}); !fault.Is(err,
			tc.want) {
			t.Errorf("create refused as %s: %v of class %v", reason, err, fault.ClassOf(err))
		}
	}
}

func TestAwaitChange(t *testing.T) {
	t.Parallel()
	const event = `{"type":"MODIFIED","object":{"kind":"Rollout","apiVersion":"argoproj.io/v1alpha1","metadata":{"name":"%","resourceVersion":"!"}}}`
	object := func(name, version string) string {
		return event[:len(event)-len(`%","resourceVersion":"!"}}}`)] + name + `","resourceVersion":"` + version + `"}}}` + "\n"
	}
	release := make(chan struct{})
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, object("other", "8")+object("api", "7"))
		http.NewResponseController(w).Flush() //nolint:errcheck // a test server that cannot flush fails the test by a timeout
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
		_, _ = io.WriteString(w, object("api", "9"))
	})
	returned := make(chan struct{})
	go func() {
		c.AwaitChange(t.Context(), rollout("api"), "7", time.Minute)
		close(returned)
	}()
	select {
	case <-returned:
		t.Fatal("returned for another object, or for the state it knew")
	default:
	}
	close(release)
	select {
	case <-returned:
	case <-t.Context().Done():
	}
}

func TestAwaitChangeWithoutAWatchDoesNotSpin(t *testing.T) {
	t.Parallel()
	c := open(t, func(w http.ResponseWriter, _ *http.Request) { respond(w, 403, status(403, "Forbidden")) })
	start := c.clock.Now()
	c.AwaitChange(t.Context(), rollout("api"), "7", 30*time.Millisecond)
	if c.clock.Now().Sub(start) < 30*time.Millisecond {
		t.Error("returned at once")
	}
}

// A field of another manager is an error that names both, unlike a conflict that is worth another attempt.
func TestAConflictNamesFieldAndManager(t *testing.T) {
	t.Parallel()
	ref := core.Ref{Kind: core.Kind{APIVersion: "apps/v1", Kind: "Deployment"}, Namespace: "shop", Name: "api"}
	causes := `,"details":{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"kubectl\" using apps/v1","field":".spec.replicas"}]}`
	for details, want := range map[string]string{
		causes: `.spec.replicas (conflict with "kubectl" using apps/v1)`,
		"":     "has changed meanwhile",
	} {
		var seen *http.Request
		c := open(t, func(w http.ResponseWriter, r *http.Request) {
			seen = r
			respond(w, 409, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":409,"reason":"Conflict","message":"x"`+details+`}`)
		})
		_, err := c.Apply(t.Context(), ref, core.Object{"kind": "Deployment"}, "lockstep-o1.e3.a5", true)
		if err == nil || !strings.Contains(err.Error(), want) || fault.Is(err, fault.Conflict) != (details == "") {
			t.Errorf("found %v, want %s", err, want)
		}
		if q := seen.URL.Query(); q.Get("fieldManager") != "lockstep-o1.e3.a5" || q.Get("dryRun") != "All" || q.Has("force") ||
			seen.Header.Get("Content-Type") != "application/apply-patch+yaml" {
			t.Errorf("sent %s %s", seen.URL, seen.Header.Get("Content-Type"))
		}
	}
}

// kstatus looks at what the controller has seen.
func TestHealthIsThatOfKstatus(t *testing.T) {
	t.Parallel()
	deployment := func(generation, seen, available int64) core.Object {
		return core.Object{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "api", "generation": generation},
			"spec": map[string]any{"replicas": int64(1)},
			"status": map[string]any{
				"observedGeneration": seen, "replicas": int64(1), "updatedReplicas": int64(1), "readyReplicas": available,
				"availableReplicas": available,
				"conditions":        []any{map[string]any{"type": "Available", "status": "True"}},
			},
		}
	}
	for want, o := range map[string]core.Object{"Current": deployment(2, 2, 1), "InProgress": deployment(2, 1, 1)} {
		if state, reason := (&Cluster{}).Health(o); state != want {
			t.Errorf("%v: %s (%s), want %s", o, state, reason, want)
		}
	}
}

// The end of a log is read, one byte more than is wanted.
func TestTheEndOfALog(t *testing.T) {
	t.Parallel()
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/shop/pods/api/log" || r.URL.Query().Get("tailLines") != "5" ||
			r.URL.Query().Get("container") != "main" {
			http.Error(w, r.URL.String(), http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 100_000)+"the end")
	})
	text, err := c.Logs(t.Context(), core.LogRequest{Namespace: "shop", Pod: "api", Container: "main", Lines: 5, Bytes: 7})
	if err != nil || text != "xthe end" {
		t.Errorf("found %q, %v", text, err)
	}
}

// A selection of any size is read page by page, and from the first again when the API server has forgotten where a page ended.
func TestPages(t *testing.T) {
	t.Parallel()
	page := func(name, next string) string {
		return `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"continue":"` + next + `"},"items":[` +
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"` + name + `"}}]}`
	}
	pages := map[string]string{"": page("first", "b"), "b": page("second", "c"), "c": page("third", "")}
	forgotten := ""
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/shop/configmaps") {
			respond(w, 200, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["list"]}]}`)
			return
		}
		from, limit, labels := r.URL.Query().Get("continue"), r.URL.Query().Get("limit"), r.URL.Query().Get("labelSelector")
		body, known := pages[from]
		if !known || limit != strconv.Itoa(pageSize) || labels != "a=b" {
			t.Errorf("found the request %s", r.URL)
		}
		if from != "" && from == forgotten {
			respond(w, 410, status(410, "Expired"))
			return
		}
		respond(w, 200, body)
	})
	read := func() (names []string, err error) {
		of := core.Selection{Kind: core.Kind{APIVersion: "v1", Kind: "ConfigMap"}, Namespace: "shop", Labels: "a=b"}
		err = c.Pages(t.Context(), of, func(page []core.Object) {
			for _, o := range page {
				name, _, _ := unstructured.NestedString(o, "metadata", "name")
				names = append(names, name)
			}
		})
		return names, err
	}
	if names, err := read(); err != nil || !slices.Equal(names, []string{"first", "second", "third"}) {
		t.Errorf("found %q, %v", names, err)
	}
	forgotten = "c"
	if names, err := read(); !fault.Is(err, fault.Conflict) || len(names) != 2 {
		t.Errorf("forgotten: found %q, %v, expected the conflict that is tried again", names, err)
	}
}

// D53: a server whose list has no end, because it answers the same page for ever or always another one, is no reason to read for ever.
func TestPagesWithoutAnEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, next, code string
		most             int64
	}{{"the same page", "b", core.CodeInternal, 2}, {"always another page", "", core.CodeTooLarge, mostPages}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			c := open(t, func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/shop/configmaps") {
					respond(w, 200, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["list"]}]}`)
					return
				}
				n, next := asked.Add(1), tt.next
				if n > tt.most {
					t.Errorf("asked %d times, expected %d", n, tt.most)
					respond(w, 403, status(403, "Forbidden"))
					return
				}
				if next == "" {
					next = strconv.FormatInt(n, 10)
				}
				respond(w, 200, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"continue":"`+next+`"},"items":[]}`)
			})
			of := core.Selection{Kind: core.Kind{APIVersion: "v1", Kind: "ConfigMap"}, Namespace: "shop", Labels: "a=b"}
			err := c.Pages(t.Context(), of, func([]core.Object) {})
			if e, is := errors.AsType[*core.Error](err); !is || e.Code != tt.code || asked.Load() != tt.most {
				t.Errorf("found %v after %d requests, expected %s after %d", err, asked.Load(), tt.code, tt.most)
			}
		})
	}
}

// D53: a deletion has the uid and, where it was decided on a version, that version as preconditions; another state is a conflict.
func TestADeletionIsOfWhatWasSeen(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{"7": `{"uid":"u1","resourceVersion":"7"}`, "": `{"uid":"u1"}`} {
		c := open(t, func(w http.ResponseWriter, r *http.Request) {
			var options struct {
				Preconditions json.RawMessage `json:"preconditions"`
			}
			err := json.NewDecoder(r.Body).Decode(&options)
			if err != nil || r.Method != http.MethodDelete || string(options.Preconditions) != want {
				t.Errorf("found %s with %s, %v, expected %s", r.Method, options.Preconditions, err, want)
			}
			respond(w, 409, status(409, "Conflict"))
		})
		if err := c.Delete(t.Context(), rollout("api"), core.Seen{UID: "u1", Version: version}, "background"); !fault.Is(err, fault.Conflict) {
			t.Errorf("found %v, expected a conflict", err)
		}
	}
}
