package function

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/rendering"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// The codes of template.render, beside invalid (R2-17).
const (
	CodeTemplateParse   = string(rendering.Parsing)
	CodeTemplateExecute = string(rendering.Executing)
)

// renderTemplate is template.render.
func renderTemplate() *Function {
	return &Function{
		spec: Spec{
			Name: "template.render", Location: activity.InProcess, Computes: true, Retry: RetryNever, Idempotent: true, Effect: activity.Reads,
			Doc: "Fills in a template and answers `{text, digest}`, where `digest` is the SHA-256 of the text. Expressions are between `{[` and `]}`, so that a text may have the `{{ }}` of Helm and of Argo\n" +
				"Workflows as they are: `{[ .version.name ]}`. A text without `{[` is read with `{{ }}`, unless `delimiters` says otherwise.\n\n" +
				"The language is that of [Go's templates](https://pkg.go.dev/text/template) with the functions of\n" +
				"[Sprig](https://masterminds.github.io/sprig/) except for those that depend on more than their arguments (the environment, the time,\n" +
				"random values), make certificates and keys, or change a value in place (`set`, `merge`). Values are not escaped: write\n" +
				"`{[ .x | toJson ]}` where a YAML text needs a value of any characters.\n\n" +
				"A key that does not exist is an empty text, or an error with `strict`. The template has at most 256 KiB, the answer 1 MiB, and loops end\n" +
				"with an error if they take too long. A text that is not a template is the error `template_parse`, one that cannot be filled in with\n" +
				"the data is `template_execute`.",
			Arguments: []Field{
				{Name: "template", Doc: "The template.", Type: Text, Required: true},
				{Name: "data", Doc: "What its expressions refer to.", Type: Free, Required: true},
				{
					Name: "delimiters", Doc: "What is around expressions: `square` for `{[ ]}`, `curly` for `{{ }}`, `auto` (the default) as described.",
					Type: Text, OneOf: []string{string(rendering.Auto), string(rendering.Square), string(rendering.Curly)},
				},
				{Name: "strict", Doc: "A key that does not exist is an error.", Type: Flag},
			},
		},
		do: func(_ context.Context, call activity.Call) (any, error) {
			strict, _ := call.Args["strict"].(bool)
			out, err := rendering.Render(rendering.Request{
				Template: text(call.Args, "template"), Data: object(call.Args, "data"), Strict: strict,
				Delimiters: rendering.Delimiters(text(call.Args, "delimiters")),
			})
			if failed, ok := errors.AsType[*rendering.Error](err); ok {
				return nil, &history.FunctionError{Code: string(failed.Stage), Message: failed.Message}
			}
			if err != nil {
				return nil, err
			}
			return map[string]any{"text": out, "digest": fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(out)))}, nil
		},
	}
}
