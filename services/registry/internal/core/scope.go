package core

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Scope is what a sender may report. The zero value allows everything.
type Scope struct {
	// Organization is the only one that receives it; 0 means the one that the sender names, or every organization with a source of the
	// image.
	Organization int64
	// Repositories are patterns of repositories, with their registry: * matches a part of a path, ** any path. Empty means all.
	Repositories []string
}

// narrow returns n restricted to the scope, or the reasons why it is outside.
func (s Scope) narrow(names Naming, n Notification) (Notification, []fault.Field) {
	var problems []fault.Field
	if s.Organization != 0 {
		if n.Organization != 0 && n.Organization != s.Organization {
			problems = append(problems, fault.Field{
				Name:    "organizationid",
				Problem: fmt.Sprintf("found %d; expected %d, the organization of this sender, or none", n.Organization, s.Organization),
			})
		}
		n.Organization = s.Organization
	}
	if !s.covers(names, n.Image) {
		problems = append(problems, fault.Field{
			Name: n.Names.Image, Problem: "found " + quote(n.Image) + "; expected one of the repositories that this sender may report: " +
				strings.Join(s.Repositories, ", "),
		})
	}
	return n, problems
}

// covers reports whether a repository is within the scope.
func (s Scope) covers(names Naming, image string) bool {
	if len(s.Repositories) == 0 {
		return true
	}
	name, err := names.Image(image)
	if err != nil {
		return false
	}
	for _, pattern := range s.Repositories {
		if re, err := repositoryPattern(pattern); err == nil && re.MatchString(name) {
			return true
		}
	}
	return false
}

// patternForm is the syntax of patterns of repositories. The registry is required: a pattern must not match in another registry.
var patternForm = regexp.MustCompile(`^[a-z0-9_.\[\]:-]+(?:/(?:[a-z0-9._-]|\*)+)+$`)

// CheckPattern returns an error for a malformed pattern of repositories, or one with a registry that is not in canonical form.
func CheckPattern(names Naming, pattern string) error {
	if _, err := repositoryPattern(pattern); err != nil {
		return err
	}
	host, _, _ := strings.Cut(pattern, "/")
	if normalized, ok := names.Host(host, "https"); !ok || normalized != host {
		return fault.New(fault.Invalid, "found the registry %q in %q; expected %s", host, pattern,
			cmp.Or(normalized, "a host, with its port if it has one"))
	}
	return nil
}

func repositoryPattern(pattern string) (*regexp.Regexp, error) {
	if !patternForm.MatchString(pattern) {
		return nil, fault.New(fault.Invalid, "found %q; expected a repository with its registry, in which * stands for a part of the path and ** for any path, such as registry.example.com/shop/*", pattern)
	}
	expression := regexp.QuoteMeta(pattern)
	expression = strings.ReplaceAll(expression, `\*\*`, `.+`)
	expression = strings.ReplaceAll(expression, `\*`, `[^/]+`)
	re, err := regexp.Compile("^" + expression + "$")
	if err != nil {
		return nil, fault.Because(err, fault.Invalid, "found %q; expected a pattern of repositories", pattern)
	}
	return re, nil
}
