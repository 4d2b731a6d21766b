package history

import (
	"encoding/json"
	"math/big"
	"testing"
)

func TestProjectReadsCanonicalScalars(t *testing.T) {
	t.Parallel()
	data := json.RawMessage(`{"s": "25", "i": 25, "f": 25.0, "e": 2.5e1, "h": 0.5, "big": 12345678901234567890, "t": true, "n": null, "l": [1], "o": {"p": {"q": 1}}}`)
	for path, want := range map[string]string{
		"s": `"25"`, "i": "25", "f": "25", "e": "25", "h": "0.5", "big": "12345678901234567890", "t": "true", "n": "null", "o.p.q": "1",
		"l": "", "o": "", "o.p": "", "none": "", "s.x": "", "o.none.q": "", "": "",
	} {
		values, ok := Project(data, []string{path})
		if got := append(values, "")[0]; ok != (want != "") || ok && got != want {
			t.Errorf("%q: found %q %t, expected %q", path, got, ok, want)
		}
	}
	if _, ok := Project(json.RawMessage(`nonsense`), []string{"a"}); ok {
		t.Error("nonsense has a value")
	}
	if _, ok := Project(nil, nil); !ok {
		t.Error("an event without data does not match the empty filter")
	}
}

// TestNumbersThatAreEqualInAProgramAreEqualInAFilter: Starlark's 1e17 is 100000000000000000, and so is JSON's.
func TestNumbersThatAreEqualInAProgramAreEqualInAFilter(t *testing.T) {
	t.Parallel()
	whole, _ := new(big.Int).SetString("9223372036854775808", 10) // 2^63
	for _, tt := range []struct {
		filter any
		equal  []string
		others []string
	}{
		{
			float64(1 << 53),
			[]string{"9007199254740992", "9007199254740992.0", "9.007199254740992e15"},
			[]string{"9007199254740993", "9007199254740991"},
		},
		{1e17, []string{"100000000000000000", "1e17", "1E+17"}, []string{"100000000000000001", `"1e17"`}},
		{whole, []string{"9223372036854775808", "9223372036854775808.0"}, []string{"9223372036854775807", "9223372036854775809"}},
		{int64(1), []string{"1", "1.0", "1e0", "10e-1"}, []string{`"1"`, "1.5", "true"}},
		{0.5, []string{"0.5", "5e-1"}, []string{"0"}},
		{-1e300, []string{"-1e300", "-1E+300"}, []string{"1e300"}},
	} {
		value, _ := Scalar(tt.filter)
		for _, text := range tt.equal {
			if !(Filter{"n": value}).Matches(json.RawMessage(`{"n": ` + text + `}`)) {
				t.Errorf("%v does not match %s", tt.filter, text)
			}
		}
		for _, text := range tt.others {
			if (Filter{"n": value}).Matches(json.RawMessage(`{"n": ` + text + `}`)) {
				t.Errorf("%v matches %s", tt.filter, text)
			}
		}
	}
	if !(Filter{"n": "1e+17"}).Matches(json.RawMessage(`{"n": 1e17}`)) || (Filter{"n": `"1e+17"`}).Matches(json.RawMessage(`{"n": 1e17}`)) {
		t.Error("a filter that was stored before is another one now")
	}
}

func TestKeysDifferWhereEventsDo(t *testing.T) {
	t.Parallel()
	seen := map[[16]byte]string{}
	for name, key := range map[string][16]byte{
		"plain":              Key(1, "x", []string{"a"}, []string{"1"}),
		"other organization": Key(2, "x", []string{"a"}, []string{"1"}),
		"other type":         Key(1, "y", []string{"a"}, []string{"1"}),
		"other path":         Key(1, "x", []string{"b"}, []string{"1"}),
		"other value":        Key(1, "x", []string{"a"}, []string{`"1"`}),
		"no filter":          Key(1, "x", nil, nil),
		"shifted borders":    Key(1, "xa", []string{""}, []string{"1"}),
		"two paths":          Key(1, "x", []string{"a", "b"}, []string{"1", "2"}),
		"two paths shifted":  Key(1, "x", []string{"a", "1"}, []string{"b", "2"}),
	} {
		if other, taken := seen[key]; taken {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[key] = name
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{`{"b":1,"a":[1.50,null]}`, ``, ` `, `[`, `1 2`, `{"a":{"b":"\u0000"}}`, `1e999`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once, err := Canonical([]byte(text))
		if err != nil {
			return
		}
		if twice, err := Canonical(once); err != nil || string(twice) != string(once) {
			t.Errorf("%q became %q and then %q (%v)", text, once, twice, err)
		}
	})
}
