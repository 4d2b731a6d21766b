package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// selection says which objects of a collection a request is about.
type selection struct {
	target
	labels labels.Selector
	fields fields.Selector
}

func newSelection(r *http.Request, t target) (selection, error) {
	query := r.URL.Query()
	l, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return selection{}, general(http.StatusBadRequest, metav1.StatusReasonBadRequest, "labelSelector: %v", err)
	}
	f, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return selection{}, general(http.StatusBadRequest, metav1.StatusReasonBadRequest, "fieldSelector: %v", err)
	}
	for _, requirement := range f.Requirements() {
		if requirement.Field != "metadata.name" && requirement.Field != "metadata.namespace" {
			return selection{}, general(http.StatusBadRequest, metav1.StatusReasonBadRequest, "field label not supported: %s", requirement.Field)
		}
	}
	return selection{target: t, labels: l, fields: f}, nil
}

func (s selection) matches(o Object) bool {
	set := labels.Set{}
	for name, value := range o.Map("metadata", "labels") {
		set[name] = fmt.Sprint(value)
	}
	return (s.Namespace == "" || s.Namespace == o.Namespace()) && s.labels.Matches(set) &&
		s.fields.Matches(fields.Set{"metadata.name": o.Name(), "metadata.namespace": o.Namespace()})
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, t target) error {
	wanted, err := newSelection(r, t)
	if err != nil {
		return err
	}
	all, version := s.store.List(t.Resource, t.Namespace)
	items := []any{}
	for _, o := range all {
		if wanted.matches(o) {
			items = append(items, map[string]any(o))
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"kind": t.Resource.Kind + "List", "apiVersion": t.Resource.APIVersion(),
		"metadata": map[string]any{"resourceVersion": version}, "items": items,
	})
	return nil
}

// watch streams changes until the client goes away, its timeout passes, or the server stops.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target) error {
	wanted, err := newSelection(r, t)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	stream := &stream{encoder: json.NewEncoder(w), control: http.NewResponseController(w), wanted: wanted}
	version, err := s.begin(stream, query.Get("resourceVersion"), query.Get("sendInitialEvents") == "true")
	if err != nil {
		return err
	}
	timeout := defaultWatch
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		timeout = time.Duration(seconds) * time.Second
	}
	end := s.store.clock.NewTimer(timeout)
	defer end.Stop()
	s.follow(r, stream, version, end)
	return nil
}

const defaultWatch = 30 * time.Minute

// begin sends what the client has not seen yet, and answers the version to follow from.
func (s *Server) begin(out *stream, from string, initial bool) (int64, error) {
	if from != "" && from != "0" && !initial {
		version, err := strconv.ParseInt(from, 10, 64)
		if err != nil {
			return 0, general(http.StatusBadRequest, metav1.StatusReasonBadRequest, "resourceVersion: found %q, expected a number", from)
		}
		if _, _, known := s.store.since(version); !known {
			return 0, general(http.StatusGone, metav1.StatusReasonExpired, "too old resource version: %d", version)
		}
		return version, out.flush()
	}
	all, version := s.store.List(out.wanted.Resource, out.wanted.Namespace)
	for _, o := range all {
		out.send("ADDED", o)
	}
	if initial {
		out.bookmark(version)
	}
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("version of the store: %w", err)
	}
	return n, out.flush()
}

func (s *Server) follow(r *http.Request, out *stream, version int64, end clock.Timer) {
	for {
		events, changed, known := s.store.since(version)
		if !known {
			out.expired(version)
			return
		}
		for _, e := range events {
			version = e.version
			if e.key.Resource == out.wanted.Resource {
				out.send(e.verb, e.object)
			}
		}
		if out.flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-s.stop.Done():
			return
		case <-end.C():
			return
		}
	}
}

// stream writes watch events. Its first error ends it.
type stream struct {
	encoder *json.Encoder
	control *http.ResponseController
	wanted  selection
	err     error
}

func (s *stream) send(verb string, o Object) {
	if s.wanted.matches(o) {
		s.write(verb, o)
	}
}

func (s *stream) write(verb string, object any) {
	if s.err == nil {
		s.err = s.encoder.Encode(map[string]any{"type": verb, "object": object})
	}
}

func (s *stream) bookmark(version string) {
	s.write("BOOKMARK", Object{
		"kind": s.wanted.Resource.Kind, "apiVersion": s.wanted.Resource.APIVersion(),
		"metadata": map[string]any{"resourceVersion": version, "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}},
	})
}

func (s *stream) expired(version int64) {
	s.write("ERROR", general(http.StatusGone, metav1.StatusReasonExpired, "too old resource version: %d", version).Status)
	_ = s.flush()
}

func (s *stream) flush() error {
	if s.err == nil {
		s.err = s.control.Flush()
	}
	return s.err
}

func jsonOf(o Object) ([]byte, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode object: %w", err)
	}
	return text, nil
}

func decodeJSON(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return general(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the body is not what was expected: %v", err)
	}
	return nil
}
