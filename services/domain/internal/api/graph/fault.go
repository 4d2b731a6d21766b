package graph

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/errcode"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
)

// userErrors is what a caller can mend, for a payload. What nobody can mend by sending something else comes back as the
// error that it is.
func userErrors(err error) ([]model.UserError, error) {
	class := fault.ClassOf(err)
	switch class {
	case fault.Invalid, fault.NotFound, fault.Conflict, fault.Refused, fault.Denied:
	default:
		return nil, err
	}
	code := fault.Describe(class).GraphQL
	fields := fault.FieldsOf(err)
	if l, ok := errors.AsType[located](err); ok {
		fields = []fault.Field{l.field}
	}
	if len(fields) == 0 {
		return []model.UserError{{Field: []string{}, Message: fault.Public(err), Code: code}}, nil
	}
	all := make([]model.UserError, len(fields))
	for i, f := range fields {
		all[i] = model.UserError{Field: fieldPath(f.Name), Message: f.Problem, Code: code}
	}
	return all, nil
}

// inField says which input field an error without fields is about: the only one that could have led to it.
func inField(err error, name string) error {
	class := fault.ClassOf(err)
	if class != fault.NotFound || len(fault.FieldsOf(err)) > 0 {
		return err
	}
	return located{fault.Field{Name: name, Problem: fault.Public(err)}, err}
}

// located is an error at a field that it did not know of.
type located struct {
	field fault.Field
	cause error
}

// Error is the cause's: the field is for userErrors, which shows it.
func (l located) Error() string { return l.cause.Error() }

// Unwrap keeps the class: fault.ClassOf finds it behind the location.
func (l located) Unwrap() error { return l.cause }

// fieldPath takes a field's name apart: a JSON pointer, or names joined by dots with indices in brackets.
func fieldPath(name string) []string {
	if pointer, ok := strings.CutPrefix(name, "/"); ok {
		parts := strings.Split(pointer, "/")
		for i, part := range parts {
			parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		}
		return parts
	}
	return strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// presenter turns errors of resolvers into errors of the answer: a public message, the code of the class, the fields. An
// internal one is logged here, once, and shows nothing of itself.
func presenter(log *slog.Logger, schema *ast.Schema) graphql.ErrorPresenterFunc {
	return func(ctx context.Context, err error) *gqlerror.Error {
		shown, ok := errors.AsType[*gqlerror.Error](err)
		if !ok {
			shown = &gqlerror.Error{Err: err, Path: graphql.GetPath(ctx)}
		}
		cause := errors.Unwrap(shown)
		if cause == nil { // said by the GraphQL library itself, about the request
			if _, ok := shown.Extensions["code"]; !ok {
				errcode.Set(shown, errcode.ValidationFailed)
			}
			shown.Message += expectedOf(schema, shown.Message)
			return shown
		}
		class := classOf(cause)
		if class == fault.Internal {
			log.ErrorContext(ctx, "resolving graphql field failed", slog.String(telemetry.KeyPath, shown.Path.String()),
				slog.String(telemetry.KeyError, cause.Error()))
		}
		extensions := map[string]any{"code": fault.Describe(class).GraphQL}
		if fields := fault.FieldsOf(cause); len(fields) > 0 {
			extensions["fields"] = publicFields(fields)
		}
		return &gqlerror.Error{Message: message(cause, class), Path: shown.Path, Locations: shown.Locations, Extensions: extensions}
	}
}

// notOfEnum is what the GraphQL library says of a variable's value that its enum does not have.
var notOfEnum = regexp.MustCompile(`^.* is not a valid (\w+)$`)

// expectedOf is what such a message leaves out: the values that there are. Of any other message it is "".
func expectedOf(schema *ast.Schema, message string) string {
	found := notOfEnum.FindStringSubmatch(message)
	if found == nil || schema.Types[found[1]] == nil {
		return ""
	}
	values := schema.Types[found[1]].EnumValues
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.Name
	}
	return "; expected one of " + strings.Join(names, ", ")
}

// classOf is the class of an error of a resolver. Numbers that do not fit come from gqlgen's own scalars without one,
// and the end of a request is nobody's defect.
func classOf(err error) fault.Class {
	class := fault.ClassOf(err)
	if class != fault.Internal {
		return class
	}
	if _, ok := errors.AsType[*strconv.NumError](err); ok {
		return fault.Invalid
	}
	if _, ok := errors.AsType[*graphql.NumberOverflowError](err); ok {
		return fault.Invalid
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.Unavailable
	}
	return class
}

func message(err error, class fault.Class) string {
	switch {
	case class == fault.ClassOf(err):
		return fault.Public(err)
	case class == fault.Unavailable:
		return "the request ended before its answer was ready"
	default:
		return err.Error() // about the caller's own number
	}
}

func publicFields(fields []fault.Field) []map[string]any {
	all := make([]map[string]any, len(fields))
	for i, f := range fields {
		all[i] = map[string]any{"field": fieldPath(f.Name), "message": f.Problem}
	}
	return all
}

// recovered makes an error of a panic, with where it came from for the log.
func recovered(_ context.Context, p any) error {
	return fmt.Errorf("panic: %v\n%s", p, debug.Stack())
}
