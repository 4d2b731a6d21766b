package plain_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/plain"
)

// standard is how encoding/json reads an object, with numbers as this package has them.
func standard(data []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, err
	}
	numbers(object)
	return object, nil
}

func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			v[key] = numbers(member)
		}
	case []any:
		for i, item := range v {
			v[i] = numbers(item)
		}
	case json.Number:
		whole, err := v.Int64()
		if err == nil {
			return whole
		}
		if !strings.ContainsAny(v.String(), ".eE") {
			return v
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
		return v.String()
	}
	return v
}

// examples are objects, and what is none.
func examples() []string {
	return []string{
		`{}`, `null`, `{"a":1,"b":[1,2.5,-0,1e3,{"c":null}],"d":"x","e":true,"f":false}`, `{"a":[]}`, `{"a":{}}`,
		`{"a":9007199254740993,"b":9223372036854775808,"c":-9223372036854775808,"d":1e999,"e":0.1}`,
		`{"a":1,"a":{"b":2}}`, `{"a":{"b":1},"a":{"c":2}}`, "{\"a\":\"\xff\"}", `{"\u00e9\ud83d\ude00":"\ud800"}`, `{"a":1} trailing`, " \n{\"a\":1}",
		``, `[1]`, `"x"`, `1`, `true`, `{"a"}`, `{"a":1,}`, `{"a":01}`, `{a:1}`, `{"a":1`, `{"a":[1}`, `{"a":+1}`, "{\"a\":\"\n\"}", `{"a":nul}`,
		strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200),
		strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat(`}`, 100_000),
	}
}

// same fails the test where the two differ, also in what they refuse.
func same(t *testing.T, data []byte) {
	t.Helper()
	got, err := plain.Object(data)
	want, wantErr := standard(data)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("of %.200q: found the error %v, expected %v", data, err, wantErr)
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("of %.200q: found %#v, expected %#v", data, got, want)
	}
}

func TestObjectsAreReadAsTheStandardLibraryDoes(t *testing.T) {
	t.Parallel()
	for _, example := range examples() {
		same(t, []byte(example))
	}
}

func FuzzObject(f *testing.F) {
	for _, example := range examples() {
		f.Add([]byte(example))
	}
	f.Fuzz(same)
}

func BenchmarkObject(b *testing.B) {
	data := []byte(`{"data":{"Subject":{"application":{"id":1,"name":"shop"},"commits":["4f2a"],"rollout":{"id":7}}},"expressions":[{"name":"result"}]}`)
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = plain.Object(data)
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = standard(data)
		}
	})
}
