package apiserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
)

// maxBody bounds what a request may carry.
const maxBody = 3 << 20

// Server is the API over HTTP. It is an http.Handler.
type Server struct {
	store *Store
	token string
	// stop ends the watches.
	stop context.Context //nolint:containedctx // the life of the server, not of a request
	// served counts requests for objects.
	served requests
}

// NewServer serves a store until ctx ends. With a token, every request has to carry it.
func NewServer(ctx context.Context, store *Store, token string) *Server {
	return &Server{store: store, token: token, stop: ctx}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.authenticate(r); err != nil {
		writeError(w, err)
		return
	}
	switch path := strings.TrimSuffix(r.URL.Path, "/"); path {
	case "/healthz", "/readyz", "/livez":
		_, _ = io.WriteString(w, "ok")
		return
	case "/version":
		writeJSON(w, http.StatusOK, version.Info{Major: "1", Minor: "34", GitVersion: "v1.34.2+simulated", Platform: "simulated"})
		return
	case "/metrics":
		_, _ = io.WriteString(w, s.served.text())
		return
	case "/api":
		writeJSON(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return
	case "/apis":
		writeJSON(w, http.StatusOK, groupList())
		return
	}
	if err := s.resource(w, r); err != nil {
		writeError(w, err)
	}
}

// authenticate answers as an API server with anonymous access does: 401 to a wrong token, 403 to none.
func (s *Server) authenticate(r *http.Request) error {
	if s.token == "" {
		return nil
	}
	given, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !isBearer {
		return general(http.StatusForbidden, metav1.StatusReasonForbidden, "forbidden: User %q cannot %s path %q", "system:anonymous",
			strings.ToLower(r.Method), r.URL.Path)
	}
	want, got := sha256.Sum256([]byte(s.token)), sha256.Sum256([]byte(given))
	if subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		return general(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	}
	return nil
}

// target is what a path addresses.
type target struct {
	Key
	part Part
}

var errNoResource = general(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")

// resource answers a request below /api/v1 and /apis/<group>/<version>.
func (s *Server) resource(w http.ResponseWriter, r *http.Request) error {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var group, version string
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		version, parts = parts[1], parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		group, version, parts = parts[1], parts[2], parts[3:]
	default:
		return errNoResource
	}
	if len(parts) == 0 {
		list, ok := resourceList(group, version)
		if !ok {
			return errNoResource
		}
		writeJSON(w, http.StatusOK, list)
		return nil
	}
	t, err := parseTarget(group, version, parts)
	if err != nil {
		return err
	}
	s.served.count(r, t.Name != "")
	if t.Name == "" {
		return s.collection(w, r, t)
	}
	return s.single(w, r, t)
}

// parseTarget reads [namespaces/<ns>/]<plural>[/<name>[/status]].
func parseTarget(group, version string, parts []string) (target, error) {
	var t target
	if parts[0] == "namespaces" && len(parts) >= 3 {
		t.Namespace, parts = parts[1], parts[2:]
		if parts[0] == "status" && group == "" {
			t.Namespace, parts = "", append([]string{"namespaces", t.Namespace}, parts...)
		}
	}
	var ok bool
	if t.Resource, ok = byPlural(group, version, parts[0]); !ok || t.Resource.Namespaced != (t.Namespace != "") && len(parts) > 1 {
		return t, errNoResource
	}
	if len(parts) > 1 {
		t.Name = parts[1]
	}
	switch {
	case len(parts) <= 2:
	case len(parts) == 3 && parts[2] == "status" && t.Resource.Status:
		t.part = Status
	default:
		return t, errNoResource
	}
	return t, nil
}

func (s *Server) collection(w http.ResponseWriter, r *http.Request, t target) error {
	switch r.Method {
	case http.MethodGet:
		if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
			return s.watch(w, r, t)
		}
		return s.list(w, r, t)
	case http.MethodPost:
		o, err := readObject(r)
		if err != nil {
			return err
		}
		if t.Resource.Namespaced {
			if ns := o.Namespace(); ns != "" && ns != t.Namespace {
				return general(http.StatusBadRequest, metav1.StatusReasonBadRequest,
					"the namespace of the provided object does not match the namespace sent on the request")
			}
			o.Set(t.Namespace, "metadata", "namespace")
		}
		create := s.store.Create
		if r.URL.Query().Get("dryRun") == metav1.DryRunAll {
			create = s.store.TryCreate
		}
		created, err := create(t.Resource, o)
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusCreated, created)
		return nil
	default:
		return errMethod(r)
	}
}

func (s *Server) single(w http.ResponseWriter, r *http.Request, t target) error {
	var o Object
	var err error
	switch r.Method {
	case http.MethodGet:
		if o = s.store.Get(t.Key); o == nil {
			return failure(http.StatusNotFound, metav1.StatusReasonNotFound, t.Key, "not found")
		}
	case http.MethodPut:
		if o, err = readObject(r); err != nil {
			return err
		}
		o, err = s.store.Modify(t.Key, t.part, func(Object) (Object, error) { return o, nil })
	case http.MethodPatch:
		o, err = s.patch(r, t)
	case http.MethodDelete:
		o, err = s.remove(r, t)
	default:
		return errMethod(r)
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, o)
	return nil
}

func errMethod(r *http.Request) error {
	return general(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the simulated cluster does not know %s here", r.Method)
}

// patch applies a merge patch or a JSON patch to the object as it stands, or an apply. A resourceVersion in the patch is a condition.
func (s *Server) patch(r *http.Request, t target) (Object, error) {
	text, err := readBody(r)
	if err != nil {
		return nil, err
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if kind == string(types.ApplyYAMLPatchType) {
		return s.apply(r, t, text)
	}
	apply, err := patcher(kind, text)
	if err != nil {
		return nil, err
	}
	return s.store.Modify(t.Key, t.part, func(old Object) (Object, error) {
		before, err := jsonOf(old)
		if err != nil {
			return nil, err
		}
		after, err := apply(before)
		if err != nil {
			return nil, general(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "the patch does not apply: %v", err)
		}
		return ParseObject(after)
	})
}

func patcher(kind string, text []byte) (func([]byte) ([]byte, error), error) {
	switch kind {
	case "application/merge-patch+json":
		return func(doc []byte) ([]byte, error) { return jsonpatch.MergePatch(doc, text) }, nil
	case "application/json-patch+json":
		patch, err := jsonpatch.DecodePatch(text)
		if err != nil {
			return nil, general(http.StatusBadRequest, metav1.StatusReasonBadRequest, "not a JSON patch: %v", err)
		}
		return patch.Apply, nil
	default:
		return nil, general(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"the simulated cluster does not know patches of type %q; expected those of a merge, application/json-patch+json or "+
				"application/apply-patch+yaml", kind)
	}
}

func (s *Server) remove(r *http.Request, t target) (Object, error) {
	var options metav1.DeleteOptions
	if text, err := readBody(r); err != nil {
		return nil, err
	} else if len(text) > 0 {
		if err := decodeJSON(text, &options); err != nil {
			return nil, err
		}
	}
	condition := ""
	if p := options.Preconditions; p != nil && p.ResourceVersion != nil {
		condition = *p.ResourceVersion
	}
	if _, err := s.store.Delete(t.Key, condition); err != nil {
		return nil, err
	}
	return Object{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Success",
		"details": map[string]any{"name": t.Name, "group": t.Resource.Group, "kind": t.Resource.Plural},
	}, nil
}

func readBody(r *http.Request) ([]byte, error) {
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, general(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			"the body is larger than %d bytes", maxBody)
	}
	if err != nil {
		return nil, general(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the body cannot be read: %v", err)
	}
	return text, nil
}

func readObject(r *http.Request) (Object, error) {
	text, err := readBody(r)
	if err != nil {
		return nil, err
	}
	o, err := ParseObject(text)
	if err != nil || o == nil {
		return nil, general(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the body is not a JSON object")
	}
	return o, nil
}
