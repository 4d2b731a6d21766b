package redact

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// words are those that the name of a secret has; before are those that make one of a key.
//
//nolint:gochecknoglobals // tables
var (
	words = []string{
		"password", "passwd", "passphrase", "secret", "token", "credential", "authorization", "apikey", "accesskey", "secretkey", "privatekey",
	}
	before = []string{"api", "access", "secret", "private", "signing", "encryption", "master", "account", "shared", "auth"}
	// references are the ends of names that say where a secret is.
	references = []string{"file", "path", "name", "ref", "dir", "url", "uri", "namespace"}
	// where are the members of what refers to a secret, such as secretKeyRef and passwordSecret.
	where = []string{
		"name", "key", "secretname", "optional", "items", "path", "mode", "defaultmode", "namespace", "kind", "apiversion", "audience",
		"expirationseconds", "file", "external",
	}
	// values are the members that hold the value of what has a name beside them.
	values = []string{"value", "values", "default", "enum"}
	flag   = regexp.MustCompile(`^--?[A-Za-z][\w.-]*$`)
	// reference is the whole of a value that only refers to one: a variable that Kubernetes fills in, or an expression of Argo.
	reference = regexp.MustCompile(`^(?:\$\([A-Za-z_][A-Za-z0-9_]*\)|\$\{[A-Za-z_][A-Za-z0-9_]*\}|\{\{[ \w.-]+\}\})$`)
)

// Value is a copy of JSON values without what looks like a secret, and whether there was any, here or when it was redacted before.
func Value(v any) (any, bool) {
	r := &redactor{}
	found := r.value(v, open)
	return found, r.found
}

// How much of a value is hidden.
type how int

const (
	open    how = iota // what looks like a secret
	pointer            // all but what says where a secret is
	hidden             // all
)

type redactor struct{ found bool }

func (r *redactor) value(v any, how how) any {
	switch v := v.(type) {
	case map[string]any:
		return r.object(v, how)
	case []any:
		return r.list(v, how)
	case nil, bool:
		return v
	case string:
		return r.text(v, how)
	default: // a number
		if how == open {
			return v
		}
		r.found = true
		return Mark
	}
}

func (r *redactor) object(o map[string]any, how how) any {
	name, _ := o["name"].(string)
	secret, isSecret := Names(name), o["kind"] == "Secret"
	all := make(map[string]any, len(o))
	for key, member := range o {
		of := how
		switch {
		case how == hidden:
		case how == pointer && slices.Contains(where, strings.ToLower(key)):
			of = open
		case isSecret && (key == "data" || key == "stringData"), secret && slices.Contains(values, key):
			of = hidden
		case secret && key == "valueFrom":
			all[key] = r.source(member)
			continue
		case Names(key):
			of = hidden
			if _, nested := member.(string); !nested && pointsTo(key) {
				of = pointer
			}
		}
		all[strings.ReplaceAll(key, "\x00", "\ufffd")] = r.value(member, of)
	}
	return all
}

// source is where the value of a secret comes from: of it, only the default is one.
func (r *redactor) source(v any) any {
	from, isObject := v.(map[string]any)
	if !isObject {
		return r.value(v, hidden)
	}
	all := make(map[string]any, len(from))
	for key, member := range from {
		of := open
		if key == "default" {
			of = hidden
		}
		all[key] = r.value(member, of)
	}
	return all
}

func (r *redactor) list(l []any, how how) any {
	all := make([]any, len(l))
	for i, each := range l {
		of := how
		if i > 0 && of == open {
			of = r.behind(l[i-1], each)
		}
		all[i] = r.value(each, of)
	}
	return all
}

// behind is how much is hidden of an argument behind another.
func (r *redactor) behind(last, each any) how {
	name, _ := last.(string)
	text, _ := each.(string)
	switch {
	case !flag.MatchString(name), strings.HasPrefix(text, "--"):
		return open
	case Names(strings.TrimLeft(name, "-")):
		return hidden
	case slices.Contains([]string{"-u", "--user", "--proxy-user"}, name) && strings.Contains(text, ":"):
		return hidden
	}
	return open
}

func (r *redactor) text(s string, how how) string {
	s = strings.ReplaceAll(s, "\x00", "\ufffd") // which PostgreSQL does not store
	if how != open && s != "" && !reference.MatchString(s) {
		r.found = true
		return Mark
	}
	if text := strings.TrimSpace(s); strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
		var within any
		if json.Unmarshal([]byte(text), &within) == nil {
			of := &redactor{}
			if found := of.value(within, open); of.found {
				if text, err := json.Marshal(found); err == nil {
					r.found = true
					return string(text)
				}
			}
		}
	}
	found, redacted := Text(s)
	r.found = r.found || redacted || strings.Contains(s, Mark)
	return found
}

// Names reports whether a name is that of a secret, and not of what refers to one.
func Names(name string) bool {
	all := split(name)
	if len(all) == 0 || slices.Contains(references, all[len(all)-1]) {
		return false
	}
	for i, word := range all {
		one := strings.TrimSuffix(word, "s")
		for _, w := range words {
			if strings.HasSuffix(one, w) {
				return true
			}
		}
		if one == "pwd" && len(all) > 1 || one == "key" && i > 0 && slices.Contains(before, all[i-1]) {
			return true
		}
	}
	return false
}

// pointsTo reports whether what has a name may also say where a secret is: imagePullSecrets, serviceAccountToken.
func pointsTo(name string) bool {
	return strings.Contains(strings.ToLower(name), "secret") || strings.Contains(strings.ToLower(name), "token") ||
		strings.Contains(strings.ToLower(name), "credential")
}

// split returns the words of a name in lower case: those of DB_PASSWORD and of dbPassword are the same.
func split(name string) []string {
	var b strings.Builder
	lower := false
	for _, c := range name {
		switch {
		case !unicode.IsLetter(c) && !unicode.IsDigit(c):
			b.WriteByte(' ')
			lower = false
			continue
		case unicode.IsUpper(c) && lower:
			b.WriteByte(' ')
		}
		lower = unicode.IsLower(c) || unicode.IsDigit(c)
		b.WriteRune(unicode.ToLower(c))
	}
	return strings.Fields(b.String())
}
