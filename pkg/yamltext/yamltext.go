// Package yamltext detects texts that YAML readers disagree on: without quotes, some read them as a string and others as a number, a date
// or a boolean. It neither reads nor writes YAML.
package yamltext

import (
	"regexp"
	"sync"
)

// Ambiguous reports whether an unquoted text is something other than a string to a common reader of YAML 1.1 or 1.2: by the types of either
// version, or by how go-yaml, goccy/go-yaml, PyYAML, Psych, SnakeYAML or js-yaml read it. A writer has to quote such a string. Texts that
// are invalid without quotes are not considered: every writer quotes those.
func Ambiguous(s string) bool { return ambiguous().MatchString(s) }

//nolint:gochecknoglobals // compiled once
var ambiguous = sync.OnceValue(func() *regexp.Regexp {
	const (
		words = `|~|=|.*<<.*|null|true|false|yes|no|on|off|y|n|:.*`
		// 1_000, 1,000, 0b1, 0o7, 0x1F, and numbers in base 60, such as times of day: 22:22, 190:20:30.15.
		integer     = `0b[01_]+|0o?[0-7_]+|0x[0-9a-f_]+|[0-9][0-9_,]*`
		sexagesimal = `[0-9][0-9_]*(:[0-9_]{1,3})+(\.[0-9_]*)?`
		// 1., .5, 1.5e3, 1e3, 0x1p-2, .inf, .nan
		float = `([0-9][0-9_,]*\.?[0-9_,]*|\.[0-9_][0-9_,]*)(e[-+]?[0-9_]+)?|0x[0-9a-f_.]+p[-+]?[0-9]+|\.?inf(inity)?|\.?nan`
		// 2001-12-14, 2001-12-14t21:59:43.10-05:00, 2001-12-14 21:59:43.10 -5
		timestamp = `-?[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([t \t].*)?`
	)
	return regexp.MustCompile(`(?is)^(` + words + `|[-+]*(` + integer + `|` + sexagesimal + `|` + float + `)|` + timestamp + `)$`)
})
