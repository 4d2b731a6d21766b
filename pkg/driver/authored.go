package driver

import (
	"errors"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/expression"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rendering"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// expressions is the keyword for a text that is an expression: which names it sees, and what it makes. One that is not well-formed is
// refused when it is written, with its line and column (D37).
func expressions() schema.Vocabulary {
	return schema.Vocabulary{
		Keyword: "lockstepExpression",
		Schema: `{"type":"object","required":["sees"],"additionalProperties":false,"properties":{` +
			`"sees":{"type":"array","maxItems":64,"items":{"type":"string","pattern":"^[A-Za-z_][A-Za-z0-9_]{0,62}$"}},` +
			`"type":{"enum":["any","bool","map"]}}}`,
		Check: func(keyword, value any) string {
			text, isText := value.(string)
			form, _ := keyword.(map[string]any)
			if !isText {
				return "" // its type is for other keywords
			}
			list, _ := form["sees"].([]any)
			names := make([]string, 0, len(list))
			for _, each := range list {
				if name, is := each.(string); is {
					names = append(names, name)
				}
			}
			p, err := expression.Compile(text, names...)
			if err == nil {
				kind, _ := form["type"].(string)
				err = p.Expect(expression.Kind(kind))
			}
			if err != nil {
				return fmt.Sprintf("%s; expected an expression in CEL", err)
			}
			return ""
		},
	}
}

// templates is the keyword for a text that is a template, with {[ ]} around its expressions.
func templates() schema.Vocabulary {
	return schema.Vocabulary{
		Keyword: "lockstepTemplate", Schema: `{"const":true}`,
		Check: func(_, value any) string {
			text, isText := value.(string)
			if !isText {
				return ""
			}
			err := rendering.Check(text, rendering.Square)
			if failed, is := errors.AsType[*rendering.Error](err); is {
				return failed.Message + "; expected a template with {[ ]}"
			}
			if err != nil {
				return fault.Public(err)
			}
			return ""
		},
	}
}
