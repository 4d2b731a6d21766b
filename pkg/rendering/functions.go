package rendering

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

// allowed are the functions of Sprig that templates have. Left out are those that read the environment, a host name or the clock, that are
// random, that change a value in place (a value that contains itself has no end), and costly ones.
func allowed() []string {
	return strings.Fields(`
		abbrev abbrevboth trunc trim upper lower title untitle substr repeat trimall trimAll trimSuffix trimPrefix nospace initials swapcase
		snakecase camelcase kebabcase wrap wrapWith contains hasPrefix hasSuffix quote squote cat indent nindent replace plural
		sha1sum sha256sum sha512sum adler32sum toString atoi int64 int float64 seq toDecimal split splitList splitn toStrings until untilStep
		add1 add sub div mod mul add1f addf subf divf mulf biggest max min maxf minf ceil floor round join sortAlpha default empty coalesce all
		any compact fromJson mustFromJson toJson mustToJson toRawJson mustToRawJson ternary typeOf typeIs typeIsLike kindOf kindIs deepEqual
		base dir clean ext isAbs b64enc b64dec b32enc b32dec tuple list dict get hasKey pluck keys pick omit values append prepend first rest last
		initial reverse uniq without has slice concat dig chunk semver semverCompare fail regexMatch mustRegexMatch regexFindAll mustRegexFindAll
		regexFind mustRegexFind regexReplaceAll mustRegexReplaceAll regexReplaceAllLiteral mustRegexReplaceAllLiteral regexSplit mustRegexSplit
		regexQuoteMeta urlParse urlJoin`)
}

// Functions returns the names of the functions that templates have beside those of Go's text/template.
func Functions() []string { return allowed() }

// meter counts the work of one template.
type meter struct{ left int }

// spend takes units from what is left.
func (m *meter) spend(units int) error {
	if units < 0 || units > m.left {
		return errWork
	}
	m.left -= units
	return nil
}

// known are the functions that templates have, by name.
//
//nolint:gochecknoglobals // a constant
var known = sync.OnceValue(func() map[string]any {
	all := map[string]any{
		"print": fmt.Sprint, "println": fmt.Sprintln, "printf": fmt.Sprintf,
		"html": template.HTMLEscaper, "js": template.JSEscaper, "urlquery": template.URLQueryEscaper,
		"urlQueryEscape": template.URLQueryEscaper,
	}
	sprigs := sprig.TxtFuncMap()
	for _, name := range allowed() {
		all[name] = sprigs[name]
	}
	return all
})

// functions returns the functions that a text can call: those whose names are in it. Each is metered, also those of text/template that make
// texts.
func (m *meter) functions(text string) template.FuncMap {
	all := template.FuncMap{}
	for name, f := range known() {
		if strings.Contains(text, name) {
			all[name] = m.metered(name, f)
		}
	}
	all[shown] = func(v any) any {
		if v == nil {
			return ""
		}
		return v
	}
	all[read] = func(v any) (any, error) {
		n, err := measure(reflect.ValueOf(&v).Elem())
		if err == nil {
			err = m.spend(n)
		}
		return v, err
	}
	all[step] = func() (string, error) { return "", m.spend(stepUnits) }
	return all
}

// stepUnits is the work of one round of a loop, beside what it calls.
const stepUnits = 64

//nolint:gochecknoglobals // a constant
var errorType = reflect.TypeFor[error]()

// metered returns a function of the same parameters that refuses arguments of which the result could be too large, and counts its work.
func (m *meter) metered(name string, f any) any {
	inner := reflect.ValueOf(f)
	t := inner.Type()
	in := make([]reflect.Type, t.NumIn())
	for i := range in {
		in[i] = t.In(i)
	}
	outer := reflect.FuncOf(in, []reflect.Type{t.Out(0), errorType}, t.IsVariadic())
	refuse := func(err error) []reflect.Value {
		return []reflect.Value{reflect.Zero(t.Out(0)), reflect.ValueOf(&err).Elem()}
	}
	return reflect.MakeFunc(outer, func(args []reflect.Value) []reflect.Value {
		size := stepUnits
		for _, a := range args {
			n, err := measure(a)
			if err != nil {
				return refuse(err)
			}
			size += n
		}
		if most := expands(name, args, size); most > maxValue {
			return refuse(fmt.Errorf("%s could make %d bytes, expected at most %d", name, most, maxValue))
		}
		if err := m.spend(size + compares(name, args, size)); err != nil {
			return refuse(err)
		}
		var out []reflect.Value
		if t.IsVariadic() {
			out = inner.CallSlice(args)
		} else {
			out = inner.Call(args)
		}
		n, err := measure(out[0])
		if err == nil {
			err = m.spend(n)
		}
		if err == nil && len(out) == 2 && !out[1].IsNil() {
			err, _ = reflect.TypeAssert[error](out[1])
		}
		if err != nil {
			return refuse(err)
		}
		return []reflect.Value{out[0], reflect.Zero(errorType)}
	}).Interface()
}

// expands returns how long the result of a function may be at most, if that can be much longer than its arguments; size is their length.
func expands(name string, args []reflect.Value, size int) int {
	text := func(i int) int {
		if i < len(args) && args[i].Kind() == reflect.String {
			return args[i].Len()
		}
		return size
	}
	number := func(i int) int {
		if i >= len(args) || !args[i].CanInt() {
			return 0
		}
		n := args[i].Int()
		return int(min(max(n, -maxValue-1), maxValue+1))
	}
	switch name {
	case "repeat":
		return max(number(0), 0) * text(1)
	case "indent", "nindent":
		return max(number(0), 0) * (1 + strings.Count(args[1].String(), "\n"))
	case "replace":
		return strings.Count(args[2].String(), args[0].String()) * text(1)
	case "join":
		return size * (text(0) + 1)
	case "wrapWith":
		return text(2) * (text(1) + 2)
	case "until":
		return distance(0, number(0), 1)
	case "untilStep":
		return distance(number(0), number(1), number(2))
	case "seq":
		return sequence(args)
	case "printf":
		return printed(args, size)
	default:
		if strings.Contains(strings.ToLower(name), "regexreplace") {
			return (text(1) + 1) * (text(2) + 1)
		}
		return 0
	}
}

// compares returns the work of a function that reads its arguments again and again; size is their length.
func compares(name string, args []reflect.Value, size int) int {
	switch {
	case name == "uniq" && len(args) == 1:
		list := args[0]
		for list.Kind() == reflect.Interface && !list.IsNil() {
			list = list.Elem()
		}
		if list.Kind() == reflect.Slice || list.Kind() == reflect.Array {
			return list.Len() * size
		}
	case name == "without" && len(args) > 1 && args[1].Kind() == reflect.Slice:
		return args[1].Len() * size
	case strings.Contains(strings.ToLower(name), "regex") && len(args) > 1 && args[1].Kind() == reflect.String:
		text := args[1].Len() + 1
		work := (args[0].Len() + 1) * repeats(args[0].String()) * text
		if len(args) > 2 { // all matches: each of them may read up to the end of the text
			const perUnit = 4
			work += text * text / perUnit
		}
		return work
	}
	return 0
}

// repeats is how much longer a pattern may become by its counted repetitions. Go refuses patterns with more than maxRepeats.
func repeats(pattern string) int {
	const maxRepeats = 1000
	all, number, within := 1, 0, false
	for _, r := range pattern {
		switch {
		case r == '{':
			number, within = 0, true
		case within && r >= '0' && r <= '9':
			number = min(10*number+int(r-'0'), maxRepeats)
		case within && r == ',':
			all, number = min(all*max(number, 1), maxRepeats), 0
		case within:
			all, within = min(all*max(number, 1), maxRepeats), false
		}
	}
	return all
}

// distance is how many numbers a loop has, in bytes.
func distance(from, to, by int) int {
	const number = 8
	if by == 0 {
		return 0
	}
	return number * max((to-from)/by, (from-to)/by, 0)
}

// sequence is the length of seq's text. It has up to three whole numbers: last; first, last; first, step, last.
func sequence(args []reflect.Value) int {
	if len(args) != 1 || args[0].Kind() != reflect.Slice {
		return 0
	}
	numbers := make([]int, args[0].Len())
	for i := range numbers {
		numbers[i] = int(min(max(args[0].Index(i).Int(), -maxValue-1), maxValue+1))
	}
	switch len(numbers) {
	case 1:
		return distance(1, numbers[0], 1)
	case 2:
		return distance(numbers[0], numbers[1], 1)
	case 3:
		return distance(numbers[0], numbers[2], max(numbers[1], -numbers[1], 1))
	default:
		return 0
	}
}

// printed is the length that a format can have: each of its verbs may be about any argument, and may ask for a width.
func printed(args []reflect.Value, size int) int {
	if len(args) == 0 || args[0].Kind() != reflect.String {
		return size
	}
	format := args[0].String()
	width, digits := 0, 0
	for _, r := range format {
		if r < '0' || r > '9' {
			digits = 0
			continue
		}
		digits = min(10*digits+int(r-'0'), maxValue)
		width = max(width, digits)
	}
	const quoted = 6 // bytes that %q may make of one
	if strings.Contains(format, "*") {
		return maxValue + 1 // a width that is an argument
	}
	return strings.Count(format, "%")*max(width, quoted*(size-stepUnits-len(format))) + len(format)
}

// measure returns the length of a value in bytes: of a value that several parts share, once for each. A value that is too long, or too
// deep, is an error.
func measure(v reflect.Value) (int, error) { return measureAt(v, 0, maxValue) }

func measureAt(v reflect.Value, depth, left int) (int, error) {
	const one = 8
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return one, nil
		}
		return measureAt(v.Elem(), depth, left)
	case reflect.String:
		return within(one+v.Len(), left)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return within(one+v.Len(), left)
		}
		return members(depth, left, func(yield func(reflect.Value) bool) {
			for i := range v.Len() {
				if !yield(v.Index(i)) {
					return
				}
			}
		})
	case reflect.Map:
		return members(depth, left, func(yield func(reflect.Value) bool) {
			for each := v.MapRange(); each.Next(); {
				if !yield(each.Key()) || !yield(each.Value()) {
					return
				}
			}
		})
	default:
		return within(one, left)
	}
}

// members measures the parts of a value.
func members(depth, left int, all func(yield func(reflect.Value) bool)) (int, error) {
	if depth == maxDepth {
		return 0, fmt.Errorf("found a value of more than %d levels, expected fewer", maxDepth)
	}
	total := 8
	var failed error
	all(func(v reflect.Value) bool {
		n, err := measureAt(v, depth+1, left-total)
		total += n
		failed = err
		return err == nil
	})
	return total, failed
}

func within(n, left int) (int, error) {
	if n > left {
		return 0, fmt.Errorf("found a value of more than %d bytes, expected less", maxValue)
	}
	return n, nil
}
