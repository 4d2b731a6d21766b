package manifest

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	// Of a line in which the contents of strings are x, and comments blank.
	hclBlock     = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_-]*)((?:\s+(?:"x*"|[A-Za-z_][A-Za-z0-9_-]*))*)\s*\{\s*$`)
	hclLabel     = regexp.MustCompile(`"x*"|[A-Za-z_][A-Za-z0-9_-]*`)
	hclAttribute = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_-]*)\s*=\s*("x*"|-?[0-9][0-9.]*|true|false)\s*$`)
	plainValue   = regexp.MustCompile(`^[^\x00-\x1f\x7f"\\$%{}]{1,1000}$`)
)

// editHCL replaces the literal of one attribute. What it cannot read safely, such as heredocs and comments of several lines, it refuses.
func editHCL(content []byte, at string, e Edit) ([]byte, error) {
	if !plainValue.MatchString(e.Value) {
		return nil, problem(at+".value", "found %.100q, expected text without quotes, braces, escapes and interpolation", e.Value)
	}
	masked, err := maskHCL(content)
	if err != nil {
		return nil, problem("content", "%v", err)
	}
	h := hclReader{content: content, wanted: e.HCL}
	offset := 0
	for line := range bytes.Lines(masked) {
		if err := h.line(line, offset); err != nil {
			return nil, problem("content", "%v", err)
		}
		offset += len(line)
	}
	if len(h.open) > 0 {
		return nil, problem("content", "found a brace that is not closed, so that it cannot be edited safely")
	}
	if h.found != 1 {
		return nil, problem(at+".hcl", "the file has %d attributes %s with a plain value, expected one", h.found, e.HCL)
	}
	with := strconv.Quote(e.Value)
	if first := content[h.from]; first != '"' && numeral(e.Value) && first != 't' && first != 'f' || (first == 't' || first == 'f') && truth(e.Value) {
		with = e.Value
	}
	return putAt(content, h.from, h.to, []byte(with)), nil
}

// hclReader looks for an attribute, line by line.
type hclReader struct {
	content []byte
	wanted  string
	// open are the brackets around a line.
	open            []hclBracket
	from, to, found int
}

// hclBracket is a bracket, and the type and labels of its block; no name for anything else, in which no attribute is found.
type hclBracket struct {
	closing byte
	name    string
}

var errUnbalanced = errors.New("found braces that do not fit each other, so that it cannot be edited safely")

// line reads a line of masked text.
func (h *hclReader) line(line []byte, offset int) error {
	line = bytes.TrimRight(line, "\r\n")
	inBlock := !slices.ContainsFunc(h.open, func(b hclBracket) bool { return b.name == "" })
	if m := hclAttribute.FindSubmatchIndex(line); m != nil && inBlock {
		var path []string
		for _, b := range h.open {
			path = append(path, b.name)
		}
		literal := h.content[offset+m[4] : offset+m[5]]
		if strings.Join(append(path, string(line[m[2]:m[3]])), ".") == h.wanted && !bytes.ContainsAny(literal, `\$%`) {
			h.from, h.to = offset+m[4], offset+m[5]
			h.found++
		}
		return nil
	}
	name := ""
	if m := hclBlock.FindSubmatchIndex(line); m != nil && inBlock {
		name = string(line[m[2]:m[3]])
		for _, l := range hclLabel.FindAllIndex(line[m[4]:m[5]], -1) {
			label := h.content[offset+m[4]+l[0] : offset+m[4]+l[1]]
			if bytes.ContainsAny(label, `\$%`) {
				name = ""
				break
			}
			name += "." + strings.Trim(string(label), `"`)
		}
	}
	for _, b := range line {
		switch b {
		case '{':
			h.open = append(h.open, hclBracket{closing: '}', name: name})
		case '[':
			h.open = append(h.open, hclBracket{closing: ']'})
		case '(':
			h.open = append(h.open, hclBracket{closing: ')'})
		case '}', ']', ')':
			if len(h.open) == 0 || h.open[len(h.open)-1].closing != b {
				return errUnbalanced
			}
			h.open = h.open[:len(h.open)-1]
		}
	}
	return nil
}

// maskHCL returns a text of the same length in which the contents of strings are x, and comments blank.
func maskHCL(content []byte) ([]byte, error) {
	masked := bytes.Clone(content)
	for i := 0; i < len(content); i++ {
		rest := content[i:]
		switch {
		case content[i] == '"':
			end, err := hclString(content, i, 0)
			if err != nil {
				return nil, err
			}
			for j := i + 1; j < end; j++ {
				masked[j] = 'x'
			}
			i = end
		case bytes.HasPrefix(rest, []byte("<<")), bytes.HasPrefix(rest, []byte("/*")):
			return nil, errors.New("found a heredoc or a comment of several lines, which cannot be edited safely")
		case content[i] == '#', bytes.HasPrefix(rest, []byte("//")):
			for ; i < len(content) && content[i] != '\n'; i++ {
				masked[i] = ' '
			}
		}
	}
	return masked, nil
}

// maxNested is how deep strings may stand in the interpolations of others.
const maxNested = 10

// hclString is where the string ends that begins at a place.
func hclString(content []byte, at, depth int) (int, error) {
	wrong := errors.New("found a string that does not end on its line, or is nested too deeply, so that it cannot be edited safely")
	for i := at + 1; i < len(content) && depth < maxNested; i++ {
		switch c := content[i]; {
		case c == '\n':
			return 0, wrong
		case c == '"':
			return i, nil
		case c == '\\':
			i++
		case bytes.HasPrefix(content[i:], []byte("$${")), bytes.HasPrefix(content[i:], []byte("%%{")):
			i += 2
		case bytes.HasPrefix(content[i:], []byte("${")), bytes.HasPrefix(content[i:], []byte("%{")):
			end, err := hclInterpolation(content, i+2, depth+1)
			if err != nil {
				return 0, err
			}
			i = end
		}
	}
	return 0, wrong
}

// hclInterpolation is where an interpolation or directive ends, which begins before a place.
func hclInterpolation(content []byte, at, depth int) (int, error) {
	open := 1
	for i := at; i < len(content) && content[i] != '\n'; i++ {
		switch c := content[i]; {
		case c == '"':
			end, err := hclString(content, i, depth)
			if err != nil {
				return 0, err
			}
			i = end
		case c == '#', bytes.HasPrefix(content[i:], []byte("//")), bytes.HasPrefix(content[i:], []byte("/*")), bytes.HasPrefix(content[i:], []byte("<<")):
			return 0, errors.New("found a comment or a heredoc in the interpolation of a string, which cannot be edited safely")
		case c == '{':
			open++
		case c == '}':
			if open--; open == 0 {
				return i, nil
			}
		}
	}
	return 0, errors.New("found an interpolation that does not end on its line, so that it cannot be edited safely")
}
