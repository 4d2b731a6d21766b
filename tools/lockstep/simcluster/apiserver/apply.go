package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"go.yaml.in/yaml/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// apply is a server-side apply, by Kubernetes' own field manager. No schema is known: a list belongs to its manager as a whole, and only
// applies are recorded as managers.
func (s *Server) apply(r *http.Request, t target, text []byte) (Object, error) {
	query := r.URL.Query()
	manager, force, dry := query.Get("fieldManager"), query.Get("force") == "true", query.Get("dryRun") == metav1.DryRunAll
	if manager == "" {
		return nil, general(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			"fieldManager: Required value: is required for apply patch")
	}
	applied, err := readApplied(t, text)
	if err != nil {
		return nil, err
	}
	if s.store.Get(t.Key) == nil {
		o, err := s.applyNew(t, applied, manager, dry)
		if !Is(err, metav1.StatusReasonAlreadyExists) {
			return o, err
		}
	}
	modify := s.store.Modify
	if dry {
		modify = s.store.TryModify
	}
	return modify(t.Key, t.part, func(old Object) (Object, error) { return merge(t.Resource, old, applied, manager, force) })
}

// applyNew is the apply of an object that does not exist.
func (s *Server) applyNew(t target, applied Object, manager string, dry bool) (Object, error) {
	if uid := applied.Text("metadata", "uid"); uid != "" {
		return nil, failure(http.StatusConflict, metav1.StatusReasonConflict, t.Key, "uid mismatch: the provided object specified uid "+uid+
			", and no existing object was found")
	}
	none := Object{"apiVersion": t.Resource.APIVersion(), "kind": t.Resource.Kind, "metadata": map[string]any{"name": t.Name}}
	if t.Namespace != "" {
		none.Set(t.Namespace, "metadata", "namespace")
	}
	o, err := merge(t.Resource, none, applied, manager, false)
	if err != nil {
		return nil, err
	}
	if dry {
		return s.store.TryCreate(t.Resource, o)
	}
	return s.store.Create(t.Resource, o)
}

// readApplied reads the body of an apply: YAML, or JSON.
func readApplied(t target, text []byte) (Object, error) {
	var given map[string]any
	err := yaml.Unmarshal(text, &given)
	if err == nil {
		text, err = json.Marshal(given)
	}
	var o Object
	if err == nil {
		o, err = ParseObject(text)
	}
	if err != nil || o == nil {
		return nil, general(http.StatusBadRequest, metav1.StatusReasonBadRequest, "error decoding YAML: found no object")
	}
	if name := o.Name(); name != "" && name != t.Name {
		return nil, general(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the name of the object (%s) does not match the name on the URL (%s)",
			name, t.Name)
	}
	if ns := o.Namespace(); ns != "" && ns != t.Namespace {
		return nil, general(http.StatusBadRequest, metav1.StatusReasonBadRequest,
			"the namespace of the provided object does not match the namespace sent on the request")
	}
	o.Unset("metadata", "managedFields")
	return o, nil
}

// merge is what an apply makes of an object.
func merge(r Resource, live, applied Object, manager string, force bool) (Object, error) {
	kind := schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	m, err := managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), plain{}, plain{}, plain{}, kind,
		kind.GroupVersion(), "", nil)
	if err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	merged, err := m.Apply(&unstructured.Unstructured{Object: live}, &unstructured.Unstructured{Object: applied.Copy()}, manager, force)
	if refused, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status := refused.ErrStatus
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		return nil, &Error{Status: status}
	}
	if err != nil {
		return nil, general(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "the object does not apply: %v", err)
	}
	text, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	return ParseObject(text)
}

// plain has Kubernetes' machinery take objects as they are: each kind has one version, and nothing is defaulted.
type plain struct{}

// Convert is never called: there is one version.
func (plain) Convert(_, _, _ any) error {
	return errors.New("the simulated cluster does not convert objects")
}

// ConvertToVersion returns the object.
func (plain) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// ConvertFieldLabel returns the label.
func (plain) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// Default changes nothing.
func (plain) Default(runtime.Object) {}

// New is an object with nothing but its kind.
func (plain) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	return o, nil
}
