package manifest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/secret/redact"
)

// hider takes the values of secrets out of objects. In the place of each is a token, equal for equal values at one place, of which nobody
// can learn the value: the key is random, and settle takes the tokens away.
type hider struct{ key []byte }

var (
	// secretKey is the end of keys, and of names of variables, options and properties, whose values may be secret in objects of any kind.
	secretKey = regexp.MustCompile(`(?i)(password|passwd|passphrase|pass|pwd|secret|token|credential|authorization|dockerconfigjson|dockercfg|` +
		`(api|private|secret|access|account|signing|encryption|master|ssh|tls|license)[-_.]?key([-_.]?id)?)s?$`)
	hiddenToken = regexp.MustCompile(`hidden-[0-9a-f]{64}`)
	// keyed is a key with what follows it in a text: a property, a variable, a member of JSON, a line of YAML, or an option.
	keyed = regexp.MustCompile(`(--?[\w.-]+[ \t]+|[\w.-]+["']?[ \t]*[:=][ \t]*)`)
	// userinfo is who, and with which password, an address is for.
	userinfo = regexp.MustCompile(`://(?:[^\s/"'@]*@|[^\s/:"']*:[^\s"']*@)`)
	// named is a line with the name of a variable, whose value is in one of the next lines.
	named  = regexp.MustCompile(`(?:^|[\s{,"'-])(?:name|key)["']?\s*:\s*["']?([\w.-]+)["']?[\s,]*$`)
	option = regexp.MustCompile(`^--?[\w.-]+$`)
)

const (
	// lastApplied is an annotation with the whole object, of a secret too.
	lastApplied = "last-applied-configuration"
	pem         = "-----BEGIN"
)

// token is in the place of a value at a path.
func (h hider) token(path, value string) string {
	mac := hmac.New(sha256.New, h.key)
	_, _ = fmt.Fprintf(mac, "%q %q", path, value)
	return fmt.Sprintf("hidden-%x", mac.Sum(nil))
}

// hide hides values at and below a node: all if it is secret, all of a secret object but what identifies it, and elsewhere what keys or the
// values themselves say is secret. A truth value is none.
func (h hider) hide(n *yaml.Node, path string, secret bool) {
	switch n.Kind {
	case yaml.ScalarNode:
		switch tag := n.ShortTag(); {
		case tag == "!!bool" || tag == "!!null":
		case secret || strings.Contains(n.Value, pem):
			n.SetString(h.token(path, n.Value))
			n.Style = 0
		case tag == "!!str":
			n.Value = h.text(path, n.Value)
		}
	case yaml.MappingNode:
		h.hideMapping(n, path, secret)
	case yaml.SequenceNode, yaml.DocumentNode:
		for i, c := range n.Content {
			at := textAt(c, "name")
			if at == "" {
				at = strconv.Itoa(i)
			}
			after := i > 0 && option.MatchString(n.Content[i-1].Value) && secretKey.MatchString(n.Content[i-1].Value)
			h.hide(c, path+"/"+at, secret || after && c.Kind == yaml.ScalarNode && !strings.HasPrefix(c.Value, "-"))
		}
	default: // there are no aliases
	}
}

func (h hider) hideMapping(n *yaml.Node, path string, secret bool) {
	object := isSecret(n)
	variable := secretKey.MatchString(textAt(n, "name")) || secretKey.MatchString(textAt(n, "key"))
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		at := path + "/" + k.Value
		if k.Kind != yaml.ScalarNode { // what it names is not known
			digest, _ := digestOf(k) // it was found before
			*k = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: h.token(at, string(digest[:]))}
			h.hide(value, at, true)
			continue
		}
		key := k.Value
		k.Value = h.text(path, key)
		switch {
		case object && !secret && key == "metadata":
			h.hideMetadata(value, at)
		case object && !secret && (key == "apiVersion" || key == "kind" || key == "type"):
		default:
			secretName := secretKey.MatchString(key) || key == "literals" || strings.HasSuffix(key, lastApplied) || variable && key == "value"
			h.hide(value, at, secret || object || secretName && !refers(key, value))
		}
	}
}

// isSecret reports whether a mapping is a secret, whatever its form, and not what refers to one.
func isSecret(n *yaml.Node) bool {
	return strings.Contains(strings.ToLower(textAt(n, "kind")), "secret") && slices.ContainsFunc(
		[]string{"apiVersion", "metadata", "data", "stringData", "spec"}, func(key string) bool { return valueOf(n, key) != nil })
}

// refers reports whether a value only names secrets, as in pods.
func refers(key string, value *yaml.Node) bool {
	only := func(n *yaml.Node, allowed ...string) bool {
		if n.Kind != yaml.MappingNode {
			return false
		}
		for i := 0; i < len(n.Content); i += 2 {
			if !slices.Contains(allowed, n.Content[i].Value) || n.Content[i+1].Kind != yaml.ScalarNode {
				return false
			}
		}
		return true
	}
	switch {
	case key == "imagePullSecrets" && value.Kind == yaml.SequenceNode:
		return !slices.ContainsFunc(value.Content, func(one *yaml.Node) bool { return !only(one, "name") })
	case key == "secret":
		return valueOf(value, "secretName") != nil && only(value, "secretName", "defaultMode", "optional")
	}
	return false
}

// hideMetadata hides the annotations of a secret: one may have the secret as it was applied last.
func (h hider) hideMetadata(n *yaml.Node, path string) {
	if n.Kind != yaml.MappingNode {
		h.hide(n, path, true)
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		shown := n.Content[i].Kind == yaml.ScalarNode && (key == "name" || key == "namespace" || key == "labels")
		h.hide(value, path+"/"+key, !shown)
	}
}

// text hides what is secret within a text, line by line: what follows a key that says so, with the lines below it that are indented more,
// passwords in addresses, and what has a known form.
func (h hider) text(path, text string) string {
	lines := strings.Split(text, "\n")
	variable := false
	below := -1 // the indentation of a line whose block is secret
	for i, line := range lines {
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		if below >= 0 && (indent > below || strings.TrimSpace(line) == "") {
			if strings.TrimSpace(line) != "" {
				lines[i] = line[:indent] + h.token(fmt.Sprintf("%s/%d", path, i), line)
			}
			continue
		}
		below = -1
		var block bool
		if lines[i], block = h.line(path, line, variable); block {
			below = indent
		}
		if found := named.FindStringSubmatch(line); found != nil {
			variable = secretKey.MatchString(found[1])
		}
	}
	return strings.Join(lines, "\n")
}

// line is text for one line; block reports whether the lines below belong to a secret. Variable is whether a variable was named that is
// one.
func (h hider) line(path, line string, variable bool) (shown string, block bool) {
	for _, at := range keyed.FindAllStringIndex(line, -1) {
		key := strings.TrimRight(line[at[0]:at[1]], " \t:=\"'")
		if !secretKey.MatchString(key) && (!variable || key != "value") {
			continue
		}
		rest := strings.TrimSpace(line[at[1]:])
		if rest == "" || strings.ContainsAny(rest[:1], "|>{[") || strings.HasSuffix(rest, "\\") {
			block = true
		}
		switch strings.Trim(rest, `"',`) {
		case "", "true", "false", "null", "|", ">", "|-", ">-":
			continue
		}
		line = line[:at[1]] + h.token(path+"/"+key, rest)
		break
	}
	line = userinfo.ReplaceAllStringFunc(line, func(found string) string { return "://" + h.token(path, found) + "@" })
	return redact.Forms(line, func(secret string) string { return h.token(path, secret) }), block
}

// newHider has a key of its own.
func newHider() hider {
	h := hider{key: make([]byte, sha256.Size)}
	_, _ = rand.Read(h.key) // it never fails
	return h
}

// The lines of a file of YAML whose values are secret because of the lines around them, and variables on one line.
var (
	secretKind    = regexp.MustCompile(`^[ \t-]*["']?kind["']?[ \t]*:[ \t]*["']?Secret["']?[ \t\r]*,?[ \t\r]*(?:#.*)?$`)
	secretMembers = regexp.MustCompile(`^([ \t-]*["']?(?:data|stringData)["']?[ \t]*:[ \t]*)[^\s#]`)
	flowOfSecret  = regexp.MustCompile(`^\s*(?:- )?\{.*["']?kind["']?\s*:\s*["']?Secret\b`)
	// variableValue is the value of a variable that was named before, and inline one that is named on the same line.
	variableValue = regexp.MustCompile(`^([ \t-]*["']?(?:value|default)["']?[ \t]*:[ \t]+)\S`)
	inline        = regexp.MustCompile(`(\b(?:name|key)["']?\s*:\s*["']?([\w.-]+)["']?\s*,\s*["']?(?:value|default)["']?\s*:\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,}]+)`)
	// words is a plain value of several words behind a key.
	words = regexp.MustCompile(`^([ \t-]*["']?([\w.-]+)["']?[ \t]*:[ \t]+)[^\s"'\[{|>&*!#].*[\s&]`)
	// comment is what stands behind a plain value.
	comment = regexp.MustCompile(`[ \t]+#.*$`)
)

// file hides what is secret in the text of a file, which keeps its lines, order and comments. What was hidden before stays as it is.
func (h hider) file(text string) string {
	var shown, document strings.Builder
	end := func() {
		shown.WriteString(redact.Replace(h.lines(document.String()), func(secret string) string { return h.token("", secret) }))
		document.Reset()
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "---") {
			end()
		}
		document.WriteString(line)
	}
	end()
	return shown.String()
}

// lines hides in one document of YAML what redact does not find in a text: values of variables, several words, and Secrets of Kubernetes
// that are not written line by line. What continues in the lines below is hidden with it.
func (h hider) lines(document string) string {
	lines := strings.Split(document, "\n")
	secret, variable := slices.ContainsFunc(lines, secretKind.MatchString), false
	below := -1     // the indentation of a key whose value continues in the lines that are indented more
	variableAt := 0 // that of the name of the variable
	for i, line := range lines {
		indent, at := len(line)-len(strings.TrimLeft(line, " \t")), columnOf(line)
		if strings.TrimSpace(line) == "" {
			continue
		}
		if below >= 0 && indent > below {
			lines[i] = line[:indent] + h.token("", line[indent:])
			continue
		}
		below = -1
		if at > indent && indent < variableAt { // another item of the list that the variable is in
			variable = false
		}
		from := -1 // where what is hidden begins
		switch value, several := variableValue.FindStringSubmatch(line), words.FindStringSubmatch(line); {
		case flowOfSecret.MatchString(line):
			from, at = indent, indent
		case secret && secretMembers.MatchString(line):
			from = len(secretMembers.FindStringSubmatch(line)[1])
		case value != nil && (variable || namedBelow(lines[i:])):
			from, variable = len(value[1]), false
		case several != nil && redact.Names(several[2]):
			from = len(several[1])
		default:
			lines[i] = h.inline(line)
		}
		if from >= 0 {
			if hidden := h.value(line[from:]); hidden != line[from:] {
				lines[i], below = line[:from]+hidden, at
				if continues(line[from:]) { // within quotes and braces, indentation means less
					below = indent
				}
			}
		}
		if found := named.FindStringSubmatch(line); found != nil {
			variable, variableAt = redact.Names(found[1]), at
		}
	}
	return strings.Join(lines, "\n")
}

// continues reports whether a value in quotes, or an object or a list in braces, does not end on its line.
func continues(value string) bool {
	value = strings.Trim(comment.ReplaceAllString(value, ""), " \t\r,")
	ends := map[byte]string{'{': "}", '[': "]", '"': `"`, '\'': "'"}
	end, begins := ends[append([]byte(value), ' ')[0]]
	return begins && (len(value) == 1 || !strings.HasSuffix(value, end))
}

// columnOf is where the first key of a line begins, behind the dashes of lists.
func columnOf(line string) int { return len(line) - len(strings.TrimLeft(line, " \t-")) }

// namedBelow reports whether the first of some lines has the value of a variable whose name stands below it and is one of a secret.
func namedBelow(lines []string) bool {
	const most = 20 // members of a variable
	at, members := columnOf(lines[0]), 0
	for _, line := range lines[1:] {
		switch indent := len(line) - len(strings.TrimLeft(line, " \t")); {
		case strings.TrimSpace(line) == "" || indent > at: // what belongs to the value
		case indent < at || strings.HasPrefix(line[indent:], "-"): // another one
			return false
		default:
			found := named.FindStringSubmatch(line)
			if members++; found != nil || members == most {
				return found != nil && redact.Names(found[1])
			}
		}
	}
	return false
}

// inline hides the values of variables that are named on the same line.
func (h hider) inline(line string) string {
	return inline.ReplaceAllStringFunc(line, func(match string) string {
		if found := inline.FindStringSubmatch(match); redact.Names(found[2]) {
			return found[1] + h.value(found[3])
		}
		return match
	})
}

// value is a value of YAML, hidden unless it is a truth value, only refers to a secret, or was hidden before.
func (h hider) value(text string) string {
	plain := strings.Trim(comment.ReplaceAllString(text, ""), " \t\r,")
	switch within := strings.Trim(plain, `"'`); {
	case plain == "true" || plain == "false" || plain == "null":
		return text
	case within == "" || within == redact.Mark || redact.Refers(within):
		return text
	}
	return h.token("", text)
}
