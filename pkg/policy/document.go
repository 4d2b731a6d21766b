package policy

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
)

// Schema is what policies may speak of, in Cedar's own syntax.
//
//go:embed schema.cedarschema
var Schema string

// strict is the validator of our schema. A schema that cannot be read is a mistake of ours, which a test finds.
var strict = sync.OnceValues(func() (*validate.Validator, error) { //nolint:gochecknoglobals // made once, and never changed
	return validatorOf("schema.cedarschema", Schema)
})

func validatorOf(name, text string) (*validate.Validator, error) {
	var s schema.Schema
	s.SetFilename(name)
	if err := s.UnmarshalCedar([]byte(text)); err != nil {
		return nil, fmt.Errorf("parse the schema of policies %s: %w", name, err)
	}
	resolved, err := s.Resolve()
	if err != nil {
		return nil, fmt.Errorf("resolve the schema of policies %s: %w", name, err)
	}
	return validate.New(resolved, validate.WithStrict()), nil
}

// Problem is something that is wrong with a policy set.
type Problem struct {
	// Line and Column are where the policy begins, or what cannot be read; counted from 1, and 0 if the problem has no place.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Policy is the @id of the policy; empty where it has none, or if the text cannot be read.
	Policy  string `json:"policy,omitempty"`
	Message string `json:"message"`
}

// String is the problem with its place.
func (p Problem) String() string {
	text := p.Message
	if p.Policy != "" {
		text = fmt.Sprintf("policy %q: %s", p.Policy, text)
	}
	if p.Line > 0 {
		text = fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, text)
	}
	return text
}

// Document is the text of one policy set, parsed and validated. It never changes.
type Document struct {
	text     string
	policies []*policy
	byID     map[string]*policy
	// index has the policies about rollouts, and own those about each action that has policies of its own.
	index *index
	own   map[Action]*index
}

// Info is a policy of a document.
type Info struct {
	// ID is its @id, and Message its @message, which is shown to people whom it concerns.
	ID, Message string
	// Forbids reports whether it forbids, and otherwise it permits.
	Forbids bool
	// Requires is the approval that it requires; nil for none.
	Requires *Requirement
	// Line and Column are where it begins.
	Line, Column int
}

type policy struct {
	Info
	compiled *cedar.Policy
	order    int
	// rest is what is left to evaluate where the index finds the policy.
	rest *cedar.Policy
	// asks is what a policy about calls asks of one.
	asks *reads
}

func (p *policy) ast() *xast.Policy { return (*xast.Policy)(p.compiled.AST()) }

// Text is what was parsed.
func (d *Document) Text() string { return d.text }

// Policies are those of the document, in its order.
func (d *Document) Policies() []Info {
	all := make([]Info, len(d.policies))
	for i, p := range d.policies {
		all[i] = p.Info
	}
	return all
}

// Parse reads and validates the text of a policy set. With problems there is no document.
func Parse(text string) (*Document, []Problem) {
	if problem := bounded(text); problem != nil {
		return nil, []Problem{*problem}
	}
	list, err := cedar.NewPolicyListFromBytes("", []byte(text))
	if err != nil {
		return nil, []Problem{syntax(err)}
	}
	if len(list) > MaxPolicies {
		return nil, []Problem{{Message: fmt.Sprintf("found %d policies; expected at most %d in one set", len(list), MaxPolicies)}}
	}
	d := &Document{text: text, byID: map[string]*policy{}}
	var found []Problem
	policies := map[Action][]*policy{}
	for _, one := range list {
		at := one.Position()
		p := &policy{Info: Info{Line: at.Line, Column: at.Column, Forbids: one.Effect() == cedar.Forbid}, compiled: one}
		wrong := p.annotate()
		own := p.own()
		policies[own] = append(policies[own], p)
		if others := p.onlyOwn(own); own != "" && len(others) > 0 {
			wrong = append(wrong, others...)
		} else {
			validator, err := validatorFor(own)
			if err != nil {
				return nil, []Problem{{Message: err.Error()}}
			}
			wrong = append(wrong, p.check(validator)...)
		}
		for _, message := range wrong {
			found = append(found, Problem{Line: at.Line, Column: at.Column, Policy: p.ID, Message: message})
		}
		if earlier := d.byID[p.ID]; earlier != nil {
			found = append(found, Problem{
				Line: at.Line, Column: at.Column, Policy: p.ID, Message: fmt.Sprintf("the policy in line %d has the same @id", earlier.Line),
			})
		}
		d.policies, d.byID[p.ID] = append(d.policies, p), p
	}
	if len(found) > maxProblems {
		more := len(found) - maxProblems
		found = append(found[:maxProblems], Problem{Message: fmt.Sprintf("and %d more", more)})
	}
	if len(found) > 0 {
		return nil, found
	}
	d.index, d.own = indexOf(policies[""], false), map[Action]*index{}
	for _, p := range policies[FunctionCall] {
		p.asks = readsOf(p)
	}
	for _, own := range ownActions() {
		if len(policies[own]) > 0 {
			d.own[own] = indexOf(policies[own], false)
		}
	}
	return d, nil
}

// Annotations are those that policies may have.
func Annotations() []string {
	return []string{"id", "message", "require", "group", "quorum", "expires", "requester"}
}

// idForm is the form of an @id: it is part of the names of gates.
var idForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// annotate reads the annotations of a policy, and answers what is wrong with them.
func (p *policy) annotate() (wrong []string) {
	annotations := p.compiled.Annotations()
	if p.ID = string(annotations["id"]); !idForm.MatchString(p.ID) {
		wrong = append(wrong, fmt.Sprintf("found @id(%.80q); expected 1 to 63 lower-case letters, digits and hyphens", p.ID))
		p.ID = ""
	}
	if p.Message = string(annotations["message"]); len(p.Message) > 500 {
		wrong = append(wrong, fmt.Sprintf("found a @message of %d bytes; expected at most 500", len(p.Message)))
	}
	require, required := annotations["require"]
	if required {
		p.Requires = &Requirement{Quorum: 1}
	}
	known := Annotations()
	for key, value := range annotations {
		var problem string
		switch {
		case key == "id", key == "message":
			continue
		case slices.Contains(known, string(key)):
			problem = p.require(string(key), string(value))
		default:
			last := len(known) - 1
			problem = fmt.Sprintf("found @%s; expected @%s or @%s", key, strings.Join(known[:last], ", @"), known[last])
		}
		if problem != "" {
			wrong = append(wrong, problem)
		}
	}
	if required && require == "approval" {
		wrong = append(wrong, p.mayRequire()...)
	}
	slices.Sort(wrong)
	return wrong
}

// require reads an annotation about the approval that a policy requires, and answers what is wrong with it.
func (p *policy) require(key, value string) string {
	if p.Requires == nil {
		return fmt.Sprintf(`found @%s without @require("approval")`, key)
	}
	switch key {
	case "require":
		if value != "approval" {
			return fmt.Sprintf(`found @require(%.80q); expected @require("approval")`, value)
		}
	case "group":
		if value == "" || len(value) > 200 {
			return "found @group without a name; expected that of a group of the organization"
		}
		p.Requires.Group = value
	case "quorum":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > MaxQuorum {
			return fmt.Sprintf("found @quorum(%.80q); expected a number from 1 to %d", value, MaxQuorum)
		}
		p.Requires.Quorum = n
	case "expires":
		d, err := time.ParseDuration(value)
		if err != nil || d < time.Second || d > MaxExpiry {
			return fmt.Sprintf("found @expires(%.80q); expected a duration such as 4h, of at most 720h", value)
		}
		p.Requires.ExpiresSeconds = int(d.Seconds())
	case "requester":
		if value != "may" {
			return fmt.Sprintf(`found @requester(%.80q); expected @requester("may")`, value)
		}
		p.Requires.RequesterMay = true
	}
	return ""
}

// mayRequire is why a policy may not require an approval: it forbids, or concerns an action that cannot wait.
func (p *policy) mayRequire() (wrong []string) {
	if p.Forbids {
		wrong = append(wrong, `found @require("approval") on a forbid; expected it on a permit`)
	}
	named, ok := p.actions(false)
	for _, a := range named {
		ok = ok && (Action(a.ID) == EnterEnvironment || Action(a.ID) == PassGate || Action(a.ID) == FunctionCall)
	}
	if !ok {
		wrong = append(wrong, fmt.Sprintf(
			`found @require("approval") for an action that cannot wait; expected the scope to name only Action::%q, `+
				`Action::%q or Action::%q`, EnterEnvironment, PassGate, FunctionCall,
		))
	}
	return wrong
}

// check validates a policy against the schema.
func (p *policy) check(v *validate.Validator) (wrong []string) {
	err := v.Policy(p.ID, p.ast())
	if err == nil {
		return nil
	}
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		line = strings.TrimPrefix(strings.TrimPrefix(line, fmt.Sprintf("for policy `%s`, ", p.ID)), fmt.Sprintf("for policy %q, ", p.ID))
		if line != "" {
			wrong = append(wrong, line)
		}
	}
	return wrong
}

// bounded is why a text is not even parsed: its size, or how deep it is nested. The parser is recursive.
func bounded(text string) *Problem {
	if len(text) > MaxText {
		return &Problem{Message: fmt.Sprintf("found %d bytes; expected at most %d in one policy set", len(text), MaxText)}
	}
	if !utf8.ValidString(text) {
		return &Problem{Message: "found bytes that are not UTF-8"}
	}
	line, column, level, operators, conditionals := 1, 0, 0, 0, 0
	quoted, comment := false, false
	word := ""
	for i := 0; i < len(text); i++ {
		c := text[i]
		column++
		if c == '\n' {
			line, column, comment = line+1, 0, false
		}
		switch {
		case comment:
			continue
		case quoted:
			if c == '\\' {
				i++
				column++
			}
			quoted = c != '"'
			continue
		case c == '"':
			quoted = true
		case c == '/' && i+1 < len(text) && text[i+1] == '/':
			comment = true
			continue
		case c == '(', c == '[', c == '{':
			level++
		case c == ')', c == ']', c == '}':
			level--
		case c == ';':
			conditionals = 0
		}
		if c == '!' || c == '-' {
			operators++
		} else if c > ' ' {
			operators = 0
		}
		if c >= 'a' && c <= 'z' {
			word += string(c)
		} else {
			if word == "if" {
				conditionals++
			}
			word = ""
		}
		if level > MaxDepth || operators > MaxDepth || conditionals > MaxDepth {
			return &Problem{Line: line, Column: column, Message: fmt.Sprintf("found more than %d brackets, signs or conditionals within one another", MaxDepth)}
		}
	}
	return nil
}

// parserError is how the parser words a syntax error, as in: parse error at <input>:3:17 "}": exact got } want ).
var parserError = regexp.MustCompile(`^parse error at [^:]*:(\d+):(\d+) (.*)$`)

// wanted is what the parser says of a word that cannot stand there: "}": exact got } want ).
var wanted = regexp.MustCompile(`^".*": (?:exact )?got (.*) want (.+)$`)

func syntax(err error) Problem {
	p := Problem{Message: err.Error()}
	for one := err; one != nil; one = errors.Unwrap(one) {
		m := parserError.FindStringSubmatch(one.Error())
		if m == nil {
			continue
		}
		p.Line, _ = strconv.Atoi(m[1])
		p.Column, _ = strconv.Atoi(m[2])
		p.Message = "cannot be read: " + m[3]
		if want := wanted.FindStringSubmatch(m[3]); want != nil {
			found := want[1]
			if found == "" {
				found = "the end"
			}
			p.Message = fmt.Sprintf("found %s; expected %s", found, want[2])
		}
	}
	return p
}

// ReferenceKind is what a policy names.
type ReferenceKind string

// The kinds.
const (
	ReferenceApplication ReferenceKind = "Application"
	ReferenceEnvironment ReferenceKind = "Environment"
	ReferenceGroup       ReferenceKind = "Group"
	// ReferenceFunction is one of the engine, or of a worker.
	ReferenceFunction ReferenceKind = "Function"
	// ReferenceUser and ReferenceMachine are members, by number.
	ReferenceUser    ReferenceKind = "User"
	ReferenceMachine ReferenceKind = "Machine"
	// ReferenceAgent is one by its name, and ReferenceDriver one as name@major.
	ReferenceAgent  ReferenceKind = "Agent"
	ReferenceDriver ReferenceKind = "Driver"
	// ReferenceService is a text that the services of a version set or of a change are searched for.
	ReferenceService ReferenceKind = "Service"
)

// Reference is something of the organization, or a Function, that a policy names.
type Reference struct {
	Kind         ReferenceKind
	Name         string
	Policy       string
	Line, Column int
}

// References are what the policies name, each once for a policy, so that the caller can refuse what does not exist.
func (d *Document) References() []Reference {
	var all []Reference
	for _, p := range d.policies {
		add := func(uid types.EntityUID) {
			r := Reference{ReferenceKind(uid.Type), string(uid.ID), p.ID, p.Line, p.Column}
			switch r.Kind {
			case ReferenceApplication, ReferenceEnvironment, ReferenceGroup, ReferenceFunction, ReferenceUser, ReferenceMachine, ReferenceAgent,
				ReferenceDriver, ReferenceService:
				if !slices.Contains(all, r) {
					all = append(all, r)
				}
			}
		}
		ast := p.ast()
		for _, scope := range []any{ast.Principal, ast.Resource} {
			switch s := scope.(type) {
			case xast.ScopeTypeEq:
				add(s.Entity)
			case xast.ScopeTypeIn:
				add(s.Entity)
			case xast.ScopeTypeIsIn:
				add(s.Entity)
			}
		}
		for _, c := range ast.Conditions {
			xast.Inspect(xast.NewNode(c.Body), func(n xast.IsNode) bool {
				if value, ok := n.(xast.NodeValue); ok {
					if uid, ok := value.Value.(types.EntityUID); ok {
						add(uid)
					}
				}
				for _, name := range servicesIn(n) {
					add(types.NewEntityUID(types.EntityType(ReferenceService), types.String(name)))
				}
				return true
			})
		}
		if p.Requires != nil && p.Requires.Group != "" {
			add(types.NewEntityUID(types.EntityType(ReferenceGroup), types.String(p.Requires.Group)))
		}
	}
	return all
}

// servicesIn are the texts that a part of a condition looks for among services; none for any other part.
func servicesIn(n xast.IsNode) []string {
	var of xast.BinaryNode
	switch v := n.(type) {
	case xast.NodeTypeContains:
		of = v.BinaryNode
	case xast.NodeTypeContainsAll:
		of = v.BinaryNode
	case xast.NodeTypeContainsAny:
		of = v.BinaryNode
	default:
		return nil
	}
	path := contextPath(of.Left)
	if len(path) != 2 || path[1] != "services" || path[0] != "versionSet" && path[0] != "change" {
		return nil
	}
	names, _ := literals(of.Right)
	return names
}

// Unpermitted are the actions that no policy of the document permits, so that a level with no other set denies them.
func (d *Document) Unpermitted() []Action {
	var all, concerned []Action
	if d.Concerns(CreateRollout) {
		concerned = rolloutActions()
	}
	for _, own := range ownActions() {
		if d.Concerns(own) {
			concerned = append(concerned, own)
		}
	}
	for _, a := range concerned {
		uid := actionUID(a)
		permits := slices.ContainsFunc(d.policies, func(p *policy) bool {
			named, only := p.actions(false)
			return !p.Forbids && (!only && !a.Own() || slices.Contains(named, uid))
		})
		if !permits {
			all = append(all, a)
		}
	}
	return all
}
