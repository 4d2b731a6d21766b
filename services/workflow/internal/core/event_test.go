package core

import (
	"encoding/json"
	"testing"
)

func TestProjectReadsCanonicalScalars(t *testing.T) {
	t.Parallel()
	data := json.RawMessage(`{"s": "25", "i": 25, "f": 25.0, "e": 2.5e1, "h": 0.5, "big": 12345678901234567890, "t": true, "n": null, "l": [1], "o": {"p": {"q": 1}}}`)
	for path, want := range map[string]string{
		"s": `"25"`, "i": "25", "f": "25", "e": "25", "h": "0.5", "big": "1.2345678901234567e+19", "t": "true", "n": "null", "o.p.q": "1",
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
