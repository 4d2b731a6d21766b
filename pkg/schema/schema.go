// Package schema compiles JSON Schemas (draft 2020-12) that come with data, and turns their findings into located
// fields: the JSON pointer of the value, what was found there and what was expected. It knows no particular schema, and
// it never reads a file or a URL: a reference to another document is refused.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/message"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// MaxBytes bounds a schema's text; a schema is written by hand, and larger ones are mistakes or attacks.
const MaxBytes = 256 << 10

// A Schema is a compiled schema. It is safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	// doc is the source document: the library keeps no list of the known members.
	doc any
}

// A Vocabulary constrains one keyword of ours: its value must fit Schema wherever the keyword occurs in a schema. Other validators ignore
// the keyword.
type Vocabulary struct {
	// Keyword is the name, such as gitlabUi.
	Keyword string
	// Schema is the JSON Schema of the keyword's value.
	Schema string
	// Check says what is wrong with a value, given the value of the keyword; "" for nothing. nil: the keyword only describes.
	Check func(keyword, value any) (problem string)
}

// checked is a keyword of ours that checks values.
type checked struct {
	keyword string
	check   func(value any) string
}

// Validate adds what is wrong with a value.
func (c checked) Validate(ctx *jsonschema.ValidatorContext, value any) {
	if problem := c.check(value); problem != "" {
		ctx.AddError(&ownProblem{keyword: c.keyword, problem: problem})
	}
}

// ownProblem is a finding of a keyword of ours.
type ownProblem struct{ keyword, problem string }

// KeywordPath is where the keyword is.
func (p *ownProblem) KeywordPath() []string { return []string{p.keyword} }

// LocalizedString is the problem; it has one language.
func (p *ownProblem) LocalizedString(*message.Printer) string { return p.problem }

// register makes compiler check a vocabulary at every node of the schemas it compiles.
func register(compiler *jsonschema.Compiler, v Vocabulary) error {
	doc, err := Decode([]byte(`{"properties":{"` + v.Keyword + `":` + v.Schema + `}}`))
	if err != nil {
		return err
	}
	url := root + "vocabulary/" + v.Keyword
	own := jsonschema.NewCompiler()
	own.UseLoader(denyAll{})
	if err := own.AddResource(url, doc); err != nil {
		return fmt.Errorf("vocabulary %s: %w", v.Keyword, err)
	}
	compiled, err := own.Compile(url)
	if err != nil {
		return fmt.Errorf("vocabulary %s: %w", v.Keyword, err)
	}
	compiler.RegisterVocabulary(&jsonschema.Vocabulary{
		URL:    url,
		Schema: compiled,
		Compile: func(_ *jsonschema.CompilerContext, node map[string]any) (jsonschema.SchemaExt, error) {
			keyword, has := node[v.Keyword]
			if v.Check == nil || !has {
				return nil, nil //nolint:nilnil // the library's way to say: nothing to check in values
			}
			return checked{v.Keyword, func(value any) string { return v.Check(keyword, value) }}, nil
		},
	})
	return nil
}

// Compile compiles the text of one schema. The error is Invalid and names the place in the text: by line if it is not JSON, and by JSON
// pointer otherwise.
func Compile(text []byte, vocabularies ...Vocabulary) (*Schema, error) {
	if len(text) > MaxBytes {
		return nil, fault.New(fault.Invalid, "found %d bytes; expected a schema of at most %d", len(text), MaxBytes)
	}
	doc, err := Decode(text)
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(denyAll{})
	compiler.AssertFormat() // patterns run on Go's RE2: linear time, whatever the pattern
	compiler.AssertVocabs()
	for _, v := range vocabularies {
		if err := register(compiler, v); err != nil {
			return nil, err
		}
	}
	if err := compiler.AddResource(root, doc); err != nil {
		return nil, fault.New(fault.Invalid, "not a JSON Schema: %s", oneLine(err))
	}
	compiled, err := compiler.Compile(root)
	if err != nil {
		return nil, notSchema(err, doc)
	}
	return &Schema{compiled: compiled, doc: doc}, nil
}

// Validate checks the text of one JSON value. The error is Invalid and has one field for each finding, named by JSON pointer ("" is the
// whole value); a missing member is named itself, not its parent.
func (s *Schema) Validate(text []byte) error {
	value, err := Decode(text)
	if err != nil {
		return err
	}
	return s.ValidateValue(value)
}

// ValidateValue is Validate for a value from Decode.
func (s *Schema) ValidateValue(value any) error {
	err := s.compiled.Validate(value)
	if err == nil {
		return nil
	}
	var findings *jsonschema.ValidationError
	if !errors.As(err, &findings) {
		return fault.Because(err, fault.Invalid, "does not fit its schema")
	}
	return fault.InvalidFields(fields(findings, value, s.doc)...)
}

// Decode reads one JSON value, with exact numbers. The error is Invalid and names the line and column.
func Decode(text []byte) (any, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fault.InvalidFields(fault.Field{Name: "", Problem: "found nothing; expected JSON"})
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, notJSON(text, err)
	}
	return value, checkNumbers(value, nil)
}

const (
	// maxDigits and maxExponent bound a number. Numbers are compared exactly, so that one of a few characters could take megabytes and
	// milliseconds; these are more than any format of numbers has.
	maxDigits   = 400
	maxExponent = 400
)

// checkNumbers refuses a number that costs more than its text.
func checkNumbers(value any, path []string) error {
	switch value := value.(type) {
	case json.Number:
		text := value.String()
		digits, exponent := text, "0"
		if at := strings.IndexAny(text, "eE"); at >= 0 {
			digits, exponent = text[:at], text[at+1:]
		}
		if n, err := strconv.Atoi(exponent); len(digits) > maxDigits || err != nil || n > maxExponent || n < -maxExponent {
			return fault.InvalidFields(fault.Field{Name: Pointer(path...), Problem: fmt.Sprintf(
				"found the number %s; expected at most %d digits, and an exponent between -%d and %d", short(text), maxDigits, maxExponent, maxExponent,
			)})
		}
	case []any:
		for i, item := range value {
			if err := checkNumbers(item, append(path, strconv.Itoa(i))); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, member := range value {
			if err := checkNumbers(member, append(path, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// root names the document being compiled. Nothing is ever loaded from it.
const root = "schema:///"

// denyAll refuses every reference to another document: the library opens local files by default.
type denyAll struct{}

// Load refuses url.
func (denyAll) Load(url string) (any, error) {
	return nil, fmt.Errorf("refers to %q; references to other documents are not allowed", url)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
