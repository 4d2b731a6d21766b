package function

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/expression"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rendering"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// The codes of expression.evaluate, beside invalid and those of template.render.
const (
	CodeExpressionCompile  = "expression_compile"
	CodeExpressionEvaluate = "expression_evaluate"
)

const mostStages = 32

// identifier is what the names of values must be.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// evaluate is expression.evaluate.
func evaluate() *Function {
	text := func(name, doc string) Field { return Field{Name: name, Doc: doc, Type: Text} }
	return &Function{
		spec: Spec{
			Name: "expression.evaluate", Location: activity.InProcess, Computes: true, Retry: RetryNever, Idempotent: true, Effect: activity.Reads,
			Check: checkStages,
			Doc: "Evaluates expressions and fills in templates, one after the other, and answers `{values}`, the value of each by its name. The\n" +
				"language is [CEL](https://cel.dev), with its macros, optional values (`data.?x.orValue(0)`), `cel.bind`, functions on texts\n" +
				"(`lowerAscii`, `upperAscii`, `trim`, `indexOf`, `substring`, `replace`, `split`, `join`), `math` and `base64`. There is no\n" +
				"clock. Each may cost 100,000 units and make a value of 256 KiB. A template is as of `template.render`.\n\n" +
				"Expressions refer to the members of `data`, and to the values of those before them. One that is not well-formed, or refers to\n" +
				"what there is not, is the error `expression_compile`, and one that cannot be evaluated `expression_evaluate`; both name the\n" +
				"expression, the line and the column. For templates these are `template_parse` and `template_execute`.",
			Arguments: []Field{
				{
					Name: "expressions", Doc: "At most 32, in their order.", Type: List, Required: true, Element: &Field{Type: Object, Fields: []Field{
						{Name: "name", Doc: "The name of its value.", Type: Text, Required: true},
						text("expression", "The expression; either this or `template`."),
						text("template", "A template, whose value is a text."),
						{
							Name: "type", Doc: "What its value must be: `bool`, `map`, or `any` by default.", Type: Text,
							OneOf: []string{string(expression.Any), string(expression.Bool), string(expression.Map)},
						},
						{Name: "sees", Doc: "The names that it may refer to; all by default.", Type: List, Element: &Field{Type: Text, Required: true}},
						text("label", "What an error calls it; its name by default."),
					}},
				},
				{Name: "data", Doc: "What the expressions refer to. The names are letters, digits and `_`.", Type: Free, Required: true},
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			known := maps.Clone(object(call.Args, "data"))
			if known == nil {
				known = map[string]any{}
			}
			given, _ := call.Args["expressions"].([]any)
			made := map[string]any{}
			for _, each := range given {
				one, _ := each.(map[string]any)
				v, err := stage(ctx, one, known)
				if err != nil {
					return nil, labelled(one, err)
				}
				name, _ := one["name"].(string)
				known[name], made[name] = v, v
			}
			return map[string]any{"values": made}, nil
		},
	}
}

// checkStages finds what is wrong with expressions that are of the right types.
func checkStages(args map[string]any) (wrong []fault.Field) {
	given, _ := args["expressions"].([]any)
	if len(given) > mostStages {
		wrong = append(wrong, fault.Field{Name: "expressions", Problem: fmt.Sprintf("found %d, expected at most %d", len(given), mostStages)})
	}
	for i, each := range given {
		one, _ := each.(map[string]any)
		_, isExpression := one["expression"].(string)
		_, isTemplate := one["template"].(string)
		if isExpression == isTemplate {
			wrong = append(wrong, fault.Field{Name: fmt.Sprintf("expressions[%d]", i), Problem: "expected either expression or template"})
		}
		if name := text(one, "name"); !identifier.MatchString(name) {
			wrong = append(wrong, fault.Field{
				Name: fmt.Sprintf("expressions[%d].name", i), Problem: fmt.Sprintf("found %q, expected letters, digits and _", name),
			})
		}
	}
	for name := range object(args, "data") {
		if !identifier.MatchString(name) {
			wrong = append(wrong, fault.Field{Name: "data", Problem: fmt.Sprintf("found the member %q, expected letters, digits and _", name)})
		}
	}
	return wrong
}

// stage is the value of one expression or template.
func stage(ctx context.Context, one, known map[string]any) (any, error) {
	seen := known
	if names, limited := one["sees"].([]any); limited {
		seen = map[string]any{}
		for _, n := range names {
			if name, _ := n.(string); name != "" {
				seen[name] = known[name]
			}
		}
	}
	if source, is := one["template"].(string); is {
		return rendering.Render(rendering.Request{Template: source, Data: seen, Delimiters: rendering.Square})
	}
	p, err := expression.Compile(text(one, "expression"), slices.Sorted(maps.Keys(seen))...)
	if err != nil {
		return nil, err
	}
	v, err := p.Evaluate(ctx, seen)
	if err != nil {
		return nil, err
	}
	if want := expression.Kind(text(one, "type")); !want.Fits(v) {
		return nil, &expression.Error{Problem: fmt.Sprintf("found %s, expected a %s", kindOf(v), want), Evaluated: true}
	}
	return v, nil
}

// kindOf says of what type a value is.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case string:
		return "a text"
	case map[string]any:
		return "a map"
	case []any:
		return "a list"
	default:
		return "a number"
	}
}

// labelled is an error that says which expression it is about.
func labelled(one map[string]any, err error) error {
	label := text(one, "label")
	if label == "" {
		label = text(one, "name")
	}
	if failed, is := errors.AsType[*expression.Error](err); is {
		code := CodeExpressionCompile
		if failed.Evaluated {
			code = CodeExpressionEvaluate
		}
		return &history.FunctionError{Code: code, Message: label + ": " + failed.Error()}
	}
	if failed, is := errors.AsType[*rendering.Error](err); is {
		return &history.FunctionError{Code: string(failed.Stage), Message: label + ": " + failed.Message}
	}
	return err
}
