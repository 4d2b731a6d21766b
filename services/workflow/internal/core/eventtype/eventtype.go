// Package eventtype holds the types of events that organizations declare for their programs, beside the catalogue. A program may emit
// events of a declared type; they reach the waits and the flows of the organization, and never leave this service. No type can be one of
// the catalogue, whose prefix is reserved.
package eventtype

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Type is a type that an organization has declared.
type Type struct {
	Organization      int64
	Name, Description string
	// Schema is a JSON schema of the data, which is an object.
	Schema json.RawMessage
	// Version counts the declarations with other content, from 1.
	Version int
	// By is the name of the caller's token.
	By string
	At time.Time
}

// Store keeps types. Each method is one transaction.
type Store interface {
	// SaveEventType stores a type, or replaces it; changed is false for the same content. fault.Refused where the organization has most
	// others.
	SaveEventType(ctx context.Context, t Type, most int) (changed bool, err error)
	// EventTypes reads the types of an organization, by name.
	EventTypes(ctx context.Context, organization int64) ([]Type, error)
	// DeleteEventType deletes a type; false if there is none.
	DeleteEventType(ctx context.Context, organization int64, name string) (bool, error)
}

// Validate compares data with a schema; the error is fault.Invalid and names the fields.
type Validate func(data []byte) error

// Deps are what Types work with.
type Deps struct {
	Store Store
	// Compile makes a Validate of a JSON schema; the error is fault.Invalid.
	Compile func(schema []byte) (Validate, error)
	// Reserved is what the catalogue's types begin with.
	Reserved string
	Clock    clock.Clock
	Log      *slog.Logger
}

// Types are the declared types of all organizations. They are safe for concurrent use.
type Types struct {
	Deps

	mu    sync.Mutex
	known map[int64]declared
}

type declared struct {
	at     time.Time
	byName map[string]Validate
}

// New makes Types.
func New(d Deps) *Types { return &Types{Deps: d, known: map[int64]declared{}} }

// The bounds of types.
const (
	maxTypes, maxName, maxSchema, maxDescription = 500, 200, 64 << 10, 4 << 10
	// maxData bounds the data of an event that a program emits.
	maxData = 256 << 10
	// refresh is how late a replica learns of a type that was declared or deleted at another one.
	refresh = 5 * time.Second
	// organizations bounds what is remembered.
	organizations = 10_000
)

// form is that of a reversed domain name with further parts.
var form = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?){2,}$`)

// check refuses what cannot be a type.
func (t *Types) check(declared Type) error {
	if err := execution.CheckOrganization(declared.Organization); err != nil {
		return err
	}
	var fields []fault.Field
	report := func(name, format string, args ...any) {
		fields = append(fields, fault.Field{Name: name, Problem: fmt.Sprintf(format, args...)})
	}
	switch {
	case strings.HasPrefix(declared.Name+".", t.Reserved):
		report("type", "found %.80q, expected one that does not begin with %s, which is the catalogue's", declared.Name, t.Reserved)
	case len(declared.Name) > maxName || !form.MatchString(declared.Name):
		report("type",
			"found %.80q, expected at most %d lower-case letters, digits, dots, dashes and underscores, such as com.example.order.shipped",
			declared.Name, maxName)
	}
	if len(declared.Description) > maxDescription || history.Storable(declared.Description) != declared.Description {
		report("description", "expected at most %d bytes of text, without NUL", maxDescription)
	}
	if len(declared.Schema) == 0 || len(declared.Schema) > maxSchema {
		report("schema", "found %d bytes, expected 1 to %d of a JSON schema", len(declared.Schema), maxSchema)
	} else if _, err := t.Compile(declared.Schema); err != nil {
		report("schema", "%s", fault.Public(err))
	}
	if len(fields) > 0 {
		return fault.InvalidFields(fields...)
	}
	return nil
}

// Declare stores a type, or replaces it; changed is false for the same content.
func (t *Types) Declare(ctx context.Context, declared Type) (changed bool, err error) {
	if err := t.check(declared); err != nil {
		return false, err
	}
	declared.At = t.Clock.Now()
	changed, err = t.Store.SaveEventType(ctx, declared, maxTypes)
	t.forget(declared.Organization)
	return changed, err
}

// List answers the types of an organization, by name.
func (t *Types) List(ctx context.Context, organization int64) ([]Type, error) {
	if err := execution.CheckOrganization(organization); err != nil {
		return nil, err
	}
	return t.Store.EventTypes(ctx, organization)
}

// Delete deletes a type. Programs that emit events of it are refused from then on; events that were emitted stay.
func (t *Types) Delete(ctx context.Context, organization int64, name string) error {
	if err := execution.CheckOrganization(organization); err != nil {
		return err
	}
	deleted, err := t.Store.DeleteEventType(ctx, organization, name)
	t.forget(organization)
	if err == nil && !deleted {
		return fault.New(fault.NotFound, "organization %d has declared no event type %.80q", organization, name)
	}
	return err
}

func (t *Types) forget(organization int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, organization)
}

// Of finds a declared type of an organization.
func (t *Types) Of(ctx context.Context, organization int64, name string) (Validate, bool, error) {
	if strings.HasPrefix(name, t.Reserved) {
		return nil, false, nil
	}
	now := t.Clock.Now()
	t.mu.Lock()
	known, read := t.known[organization]
	t.mu.Unlock()
	if age := now.Sub(known.at); !read || age < 0 || age >= refresh {
		all, err := t.Store.EventTypes(ctx, organization)
		if validate, found := known.byName[name]; err != nil && found { // what is known will do until the database answers again
			return validate, true, nil
		}
		if err != nil {
			return nil, false, err
		}
		known = declared{at: now, byName: make(map[string]Validate, len(all))}
		for _, each := range all {
			validate, err := t.Compile(each.Schema)
			if err != nil { // it was checked when it was declared, perhaps by another release
				t.Log.WarnContext(ctx, "schema of a declared event type is invalid", "type", each.Name, "organization", organization, "error", err)
				continue
			}
			known.byName[each.Name] = validate
		}
		t.mu.Lock()
		if len(t.known) >= organizations {
			clear(t.known)
		}
		t.known[organization] = known
		t.mu.Unlock()
	}
	validate, found := known.byName[name]
	return validate, found, nil
}

// Emit says what is wrong with an event of a declared type that a program emits. declared is false for any other type.
func (t *Types) Emit(ctx context.Context, e history.Emit) (refusal *history.FunctionError, declared bool) {
	validate, declared, err := t.Of(ctx, e.Organization, e.Type)
	if err != nil {
		t.Log.WarnContext(ctx, "reading declared event types failed", "organization", e.Organization, "error", err)
		return &history.FunctionError{
			Code: history.CodeUnreachable, Message: "emit " + e.Type + ": the event types of the organization could not be read", Retryable: true,
		}, true
	}
	if !declared {
		return nil, false
	}
	if len(e.Data) > maxData {
		return invalid(e.Type, fmt.Sprintf("the data has %d bytes, expected at most %d", len(e.Data), maxData)), true
	}
	if err := checkData(validate, e.Data); err != nil {
		return invalid(e.Type, fault.Public(err)), true
	}
	return nil, true
}

// Receive says what is wrong with an event that a caller sends, if its type is a declared one.
func (t *Types) Receive(ctx context.Context, e history.Event) error {
	validate, declared, err := t.Of(ctx, e.Organization, e.Type)
	if err != nil || !declared {
		return err
	}
	return checkData(validate, e.Data)
}

func checkData(validate Validate, data json.RawMessage) error {
	if len(data) == 0 {
		data = json.RawMessage("{}")
	}
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
		return fault.InvalidFields(fault.Field{Name: "data", Problem: "expected an object"})
	}
	return validate(data)
}

func invalid(eventType, problem string) *history.FunctionError {
	return &history.FunctionError{Code: history.CodeInvalid, Message: "emit " + eventType + ": " + problem}
}
