// Package apiserver is the Kubernetes API of the simulated cluster: enough of it over HTTP for client-go's dynamic client
// and for kubectl get, and a small store that survives kill -9.
//
// It is a simulation for `lockstep dev`, the demo and tests, not a Kubernetes: no admission, no RBAC, no finalizers, no
// garbage collection, no schemas, no defaulting.
package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/id"
)

// Key names one object.
type Key struct {
	Resource        Resource
	Namespace, Name string
}

func (k Key) path() string {
	return strings.Join([]string{k.Resource.Group, k.Resource.Version, k.Resource.Plural, k.Namespace, k.Name}, "/")
}

// Store keeps the objects. It is safe for concurrent use; objects go in and out as copies.
type Store struct {
	clock clock.Clock
	file  string

	mu      sync.Mutex
	objects map[string]Object
	version int64
	// log is what happened since the process started, for watches; first is the version before its first entry.
	log     []event
	first   int64
	changed chan struct{}
}

// event is one change, as watches report it.
type event struct {
	version int64
	key     Key
	verb    string // ADDED, MODIFIED, DELETED
	object  Object
}

const maxLog = 4096

// saved is the store's file.
type saved struct {
	Version int64             `json:"version"`
	Objects map[string]Object `json:"objects"`
}

// OpenStore reads the store of a folder, or makes an empty one. Without a folder nothing is kept.
func OpenStore(dir string, clk clock.Clock) (*Store, error) {
	s := &Store{clock: clk, objects: map[string]Object{}, changed: make(chan struct{})}
	if dir == "" {
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("folder of the simulated cluster: %w", err)
	}
	s.file = filepath.Join(dir, "objects.json")
	text, err := os.ReadFile(s.file)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("objects of the simulated cluster: %w", err)
	}
	root, err := ParseObject(text)
	if err != nil {
		return nil, fmt.Errorf("objects of the simulated cluster, %s: %w", s.file, err)
	}
	s.version, _ = root.Number("version")
	s.first = s.version
	for path, o := range root.Map("objects") {
		object, ok := o.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("objects of the simulated cluster, %s: %q is no object", s.file, path)
		}
		s.objects[path] = object
	}
	return s, nil
}

// Get finds an object; nil where there is none.
func (s *Store) Get(k Key) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[k.path()]; ok {
		return o.Copy()
	}
	return nil
}

// List are the objects of a resource by namespace and name, and the version of the store they were read at. An empty
// namespace is all of them.
func (s *Store) List(r Resource, namespace string) ([]Object, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list(r, namespace), strconv.FormatInt(s.version, 10)
}

func (s *Store) list(r Resource, namespace string) []Object {
	prefix := strings.TrimSuffix(Key{Resource: r}.path(), "/")
	if namespace != "" {
		prefix += namespace + "/"
	}
	var found []Object
	for path, o := range s.objects {
		if strings.HasPrefix(path, prefix) {
			found = append(found, o.Copy())
		}
	}
	slices.SortFunc(found, func(a, b Object) int {
		return strings.Compare(a.Namespace()+"/"+a.Name(), b.Namespace()+"/"+b.Name())
	})
	return found
}

// Changed is closed at the next change.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Create adds an object.
func (s *Store) Create(r Resource, o Object) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, o, err := s.fresh(r, o)
	if err != nil {
		return nil, err
	}
	return s.put(k, "ADDED", o)
}

// TryCreate returns the object as Create would store it, and stores nothing.
func (s *Store) TryCreate(r Resource, o Object) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, o, err := s.fresh(r, o)
	return o, err
}

// fresh returns a new object as it is stored.
func (s *Store) fresh(r Resource, o Object) (Key, Object, error) {
	o = o.Copy()
	k := Key{Resource: r, Namespace: o.Namespace(), Name: o.Name()}
	if err := s.admit(k, o); err != nil {
		return k, nil, err
	}
	if _, exists := s.objects[k.path()]; exists {
		return k, nil, failure(http.StatusConflict, "AlreadyExists", k, "already exists")
	}
	if r.Status {
		o.Unset("status")
	}
	o.Set(id.New(s.clock.Now()), "metadata", "uid")
	o.Set(s.clock.Now().UTC().Format(time.RFC3339), "metadata", "creationTimestamp")
	o.Set(int64(1), "metadata", "generation")
	if r == Namespaces {
		o.Set(map[string]any{"phase": "Active"}, "status")
	}
	return k, o, nil
}

// admit checks what can be checked of an object before it is stored.
func (s *Store) admit(k Key, o Object) error {
	if k.Name == "" {
		return failure(http.StatusUnprocessableEntity, "Invalid", k, "metadata.name: Required value: name or generateName is required")
	}
	if kind, version := o.Text("kind"), o.Text("apiVersion"); kind != k.Resource.Kind || version != k.Resource.APIVersion() {
		return failure(http.StatusBadRequest, "BadRequest",
			k, fmt.Sprintf("found %s %s, expected %s %s", version, kind, k.Resource.APIVersion(), k.Resource.Kind))
	}
	if k.Resource.Namespaced {
		if _, exists := s.objects[Key{Resource: Namespaces, Name: k.Namespace}.path()]; !exists {
			return failure(http.StatusNotFound, "NotFound", Key{Resource: Namespaces, Name: k.Namespace}, "not found")
		}
	}
	return nil
}

// Part says which part of an object an update is about.
type Part int

// The parts.
const (
	// Whole is everything but the status, where that is a subresource.
	Whole Part = iota
	// Status is the status alone.
	Status
)

// Update replaces an object, or its status. A resourceVersion or uid in o must be the present one.
func (s *Store) Update(r Resource, o Object, part Part) (Object, error) {
	return s.Modify(Key{Resource: r, Namespace: o.Namespace(), Name: o.Name()}, part, func(Object) (Object, error) { return o.Copy(), nil })
}

// Modify replaces an object, or its status, with what change makes of it. change may alter and return its argument.
func (s *Store) Modify(k Key, part Part, change func(Object) (Object, error)) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, changed, err := s.modified(k, part, change)
	if err != nil || !changed {
		return o, err
	}
	return s.put(k, "MODIFIED", o)
}

// TryModify returns the object as Modify would store it, and stores nothing.
func (s *Store) TryModify(k Key, part Part, change func(Object) (Object, error)) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, _, err := s.modified(k, part, change)
	return o, err
}

// modified is an object as a change leaves it, and whether that is another one than before.
func (s *Store) modified(k Key, part Part, change func(Object) (Object, error)) (o Object, changed bool, err error) {
	old, ok := s.objects[k.path()]
	if !ok {
		return nil, false, failure(http.StatusNotFound, "NotFound", k, "not found")
	}
	if o, err = change(old.Copy()); err != nil {
		return nil, false, err
	}
	if o.Name() != k.Name || o.Namespace() != k.Namespace {
		return nil, false, failure(http.StatusBadRequest, "BadRequest", k, "the name and namespace of an object cannot change")
	}
	if err := s.admit(k, o); err != nil {
		return nil, false, err
	}
	for _, field := range []string{"resourceVersion", "uid"} {
		if got := o.Text("metadata", field); got != "" && got != old.Text("metadata", field) {
			return nil, false, failure(http.StatusConflict, "Conflict",
				k, "the object has been modified; please apply your changes to the latest version and try again")
		}
	}
	o = merged(k.Resource, old, o, part)
	return o.Copy(), !reflect.DeepEqual(old, o), nil
}

// merged is the object to store: what an update may not touch comes from the old one.
func merged(r Resource, old, o Object, part Part) Object {
	if part == Status {
		updated := old.Copy()
		updated["status"] = o["status"]
		return updated
	}
	for _, field := range []string{"uid", "creationTimestamp", "generation", "resourceVersion"} {
		o.Set(old.At("metadata", field), "metadata", field)
	}
	if r.Status {
		o["status"] = old["status"]
	}
	if o["status"] == nil {
		delete(o, "status")
	}
	before, after := old.Copy(), o.Copy()
	for _, each := range []Object{before, after} {
		delete(each, "metadata")
		if r.Status {
			delete(each, "status")
		}
	}
	if !reflect.DeepEqual(before, after) {
		generation, _ := old.Number("metadata", "generation")
		o.Set(generation+1, "metadata", "generation")
	}
	return o
}

// Delete removes an object. A resourceVersion, unless "", must be the present one.
func (s *Store) Delete(k Key, resourceVersion string) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[k.path()]
	if !ok {
		return nil, failure(http.StatusNotFound, "NotFound", k, "not found")
	}
	if resourceVersion != "" && resourceVersion != o.ResourceVersion() {
		return nil, failure(http.StatusConflict, "Conflict", k, "the object has been modified")
	}
	return s.put(k, "DELETED", o.Copy())
}

// put stores a change, on disk first: what a client has seen survives the process.
func (s *Store) put(k Key, verb string, o Object) (Object, error) {
	old, existed := s.objects[k.path()]
	s.version++
	o.Set(strconv.FormatInt(s.version, 10), "metadata", "resourceVersion")
	if verb == "DELETED" {
		delete(s.objects, k.path())
	} else {
		s.objects[k.path()] = o
	}
	if err := s.save(); err != nil {
		s.version--
		delete(s.objects, k.path())
		if existed {
			s.objects[k.path()] = old
		}
		return nil, err
	}
	s.log = append(s.log, event{version: s.version, key: k, verb: verb, object: o})
	if len(s.log) > maxLog {
		s.first = s.log[0].version
		s.log = s.log[1:]
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return o.Copy(), nil
}

// save replaces the file at once, so that a process that dies in between leaves the old or the new one.
func (s *Store) save() error {
	if s.file == "" {
		return nil
	}
	text, err := json.Marshal(saved{Version: s.version, Objects: s.objects})
	if err != nil {
		return fmt.Errorf("encode the simulated cluster: %w", err)
	}
	writing := s.file + ".writing"
	if err := os.WriteFile(writing, text, 0o600); err != nil {
		return fmt.Errorf("keep the simulated cluster: %w", err)
	}
	if err := os.Rename(writing, s.file); err != nil {
		return fmt.Errorf("keep the simulated cluster: %w", err)
	}
	return nil
}

// since are the changes after a version, and the channel of the next one; false when they are no longer known.
func (s *Store) since(version int64) ([]event, <-chan struct{}, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.first || version > s.version {
		return nil, nil, false
	}
	i, _ := slices.BinarySearchFunc(s.log, version+1, func(e event, v int64) int { return int(e.version - v) })
	return slices.Clone(s.log[i:]), s.changed, true
}

// ScaledToZero reports whether a workload was scaled to no pods. A simulated controller then does nothing, so that a test can
// stop one.
func (s *Store) ScaledToZero(k Key) bool {
	o := s.Get(k)
	replicas, set := o.Number("spec", "replicas")
	return o != nil && set && replicas == 0
}
