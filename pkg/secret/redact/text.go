// Package redact takes out of texts and objects what looks like a secret: before they are recorded, shown or compared by people. It finds
// the forms that secrets commonly have, not every secret.
package redact

import (
	"regexp"
	"strings"
	"unicode"
)

// Mark stands for what was taken out.
const Mark = "[redacted]"

// secretive is a name of a secret in a text, as in DB_PASSWORD_PROD. What has such a word in another, as secretName, only refers to one.
const secretive = `(?i:password|passwd|passphrase|[a-z0-9]+[-_.]pwd|secret|token|` +
	`(?:api|access|secret|private|signing|encryption|account)[-_.]?key|authorization|credential)(?i:s?)(?:[-_.][A-Za-z0-9_.-]*)?`

// value ends at its quote if it has one, else at a blank; the part of a query at its &. What was redacted before stays as it is.
const value = `\[redacted\]|\{\{[^{}\n]*\}\}|\\"(?:[^"\\\n]|\\[^"])*\\"|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|["']?[^\s"'&]+`

// whole are forms of which nothing is kept but their first and second group.
var whole = regexp.MustCompile(strings.Join([]string{
	`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|$)`,
	`(\b[a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^/\s:@]*:[^/\s]+|[^/\s:@]{16,})(@)`,
	`[\w.-]+:[^\s/@:]+(@(?:tcp|udp|unix)\()`,
	`(\bhooks\.slack\.com/(?:services|workflows|triggers)/)[\w/-]+`,
	`(\bdiscord(?:app)?\.com/api/webhooks/)[\w/-]+`,
	`\b(?:gh[opsur]_[A-Za-z0-9]{10,}|github_pat_\w{20,}|glpat-[\w-]{10,}|xox[abeprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|sk_live_\w{10,})`,
	`\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*`,
}, "|"))

// named is a value behind its name; schemed one behind its scheme, and flagged one behind the flag of a command. What has only the form
// of a flag needs no = or : behind it.
var (
	named   = regexp.MustCompile(`(` + secretive + `(?:\\?["'])?[ \t]*[:=][ \t]*(?i:bearer |basic )?)(` + value + `)`)
	flagged = regexp.MustCompile(`((?:^|[\s"'])--?(?:[A-Za-z0-9]+-)*(?i:password|passwd|passphrase|secret|token|` +
		`(?:api|access|secret|private)-?key)[ \t]+)(` +
		value + `)`)
	user    = regexp.MustCompile(`((?:^|[\s"'])(?:-u|--user|--proxy-user)[ \t=]+)(["']?[^\s"':]+:[^\s"']+)`)
	schemed = regexp.MustCompile(`(\b(?i:bearer)[ \t]+)([A-Za-z0-9._~+/=-]{8,})|(\b(?i:basic)[ \t]+)([A-Za-z0-9._~+/=-]{16,})`)
)

// refers is the whole of a value that only refers to one: a variable of a shell, or an expression of Argo.
var refers = regexp.MustCompile(`^(?:\$[A-Z_][A-Z0-9_]*|\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$\([A-Za-z_][A-Za-z0-9_]*\)|\{\{[ \w.-]+\}\})$`)

// tag is what the tags of images commonly are.
var tag = regexp.MustCompile(`^(?:v?[0-9][\w.-]{0,40}|latest|main|stable)$`)

// pointing is a name that says where a secret is, not what it is.
var pointing = regexp.MustCompile(`(?i)[-_.](?:file|path|name|ref|dir|url|uri|namespace)(?:\\?["'])?[ \t]*[:=][ \t]*$`)

// Forms replaces what by its form alone is a secret: keys, tokens that providers give out, and logins in addresses.
func Forms(text string, as func(secret string) string) string {
	return whole.ReplaceAllStringFunc(text, func(match string) string {
		groups := whole.FindStringSubmatch(match)
		return groups[1] + groups[4] + groups[5] + as(match) + groups[2] + groups[3]
	})
}

// Logins replaces logins behind the options of commands, and what stands behind the scheme of an Authorization header.
func Logins(text string, as func(secret string) string) string {
	text = user.ReplaceAllStringFunc(text, func(match string) string { return user.FindStringSubmatch(match)[1] + as(match) })
	return schemed.ReplaceAllStringFunc(text, func(match string) string {
		groups := schemed.FindStringSubmatch(match)
		return groups[1] + groups[3] + as(match)
	})
}

// Refers reports whether the whole of a value only refers to one, such as a variable of a shell.
func Refers(value string) bool { return refers.MatchString(value) }

// Text takes out of a text what looks like a secret, and reports whether there was any.
func Text(text string) (string, bool) {
	found := Replace(text, func(string) string { return Mark })
	return found, found != text
}

// Replace is Text with something else in the place of each secret. What was taken out before stays as it is.
func Replace(text string, as func(secret string) string) string {
	text = Forms(text, as)
	text = blocks(text, as)
	text = pairs(named, text, as)
	text = pairs(flagged, text, as)
	return Logins(text, as)
}

// pairs hides the second group of each match, within its quotes.
func pairs(form *regexp.Regexp, text string, as func(secret string) string) string {
	var found strings.Builder
	end := 0
	for _, at := range form.FindAllStringSubmatchIndex(text, -1) {
		found.WriteString(text[end:at[2]])
		found.WriteString(pair(text[:at[0]], text[at[2]:at[3]], text[at[4]:at[5]], as))
		end = at[5]
	}
	return found.String() + text[end:]
}

// pair is a name with its value, which is hidden but for what refers to a secret, a truth value, and the tag of an image.
func pair(before, name, value string, as func(secret string) string) string {
	quote := ""
	for _, q := range []string{`\"`, `"`, `'`} {
		if strings.HasPrefix(value, q) {
			quote = q
			break
		}
	}
	within := strings.TrimSuffix(strings.TrimPrefix(value, quote), quote)
	bare := strings.TrimRight(within, ",;)}]")
	word := strings.TrimRightFunc(before, func(r rune) bool {
		return r == '-' || r == '_' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r)
	})
	switch {
	case within == "" || within == Mark || refers.MatchString(bare) || refers.MatchString(within) || pointing.MatchString(name):
		return name + value
	case quote == "" && (bare == "true" || bare == "false" || bare == "null"):
		return name + value
	case strings.HasSuffix(word, "/") && strings.HasSuffix(name, ":") && tag.MatchString(bare):
		return name + value
	}
	hidden := name + quote + as(within)
	if len(value) > len(quote) && strings.HasSuffix(value, quote) {
		return hidden + quote
	}
	return hidden
}

// The lines of YAML in which values are on further lines, or have names of their own.
var (
	block      = regexp.MustCompile(`^([ -]*)["']?[\w.-]*` + secretive + `["']?[ \t]*:[ \t]*[|>][-+0-9]*[ \t]*\r?$`)
	members    = regexp.MustCompile(`^([ -]*)(stringData|data)[ \t]*:[ \t]*\r?$`)
	isSecret   = regexp.MustCompile(`(?m)^[ -]*kind[ \t]*:[ \t]*["']?Secret\b`)
	memberLine = regexp.MustCompile(`^[ \t]*[^\s:#][^:]*:[ \t]*`)
)

// blocks hides the lines of YAML below a name of a secret, and the values of a Secret of Kubernetes.
func blocks(text string, as func(secret string) string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	secret := isSecret.MatchString(text)
	lines := strings.Split(text, "\n")
	within, depth := "", -1
	for i, line := range lines {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		bare := strings.TrimSpace(line)
		// A comment, or a line of a template such as Helm's, has no place in the outline of the document, and so ends nothing.
		outside := bare == "" || indent <= depth && (strings.HasPrefix(bare, "#") || strings.HasPrefix(bare, "{{"))
		if !outside && indent <= depth {
			within, depth = "", -1
		}
		switch {
		case outside:
		case within == "block":
			lines[i] = line[:indent] + as(line[indent:])
		case within == "members":
			key := memberLine.FindString(line)
			if key == "" {
				key = line[:indent]
			}
			lines[i] = key + as(line[len(key):])
		default:
			if found := block.FindStringSubmatch(line); found != nil {
				within, depth = "block", len(found[1])
			} else if found := members.FindStringSubmatch(line); found != nil && (found[2] == "stringData" || secret) {
				within, depth = "members", len(found[1])
			}
		}
	}
	return strings.Join(lines, "\n")
}
