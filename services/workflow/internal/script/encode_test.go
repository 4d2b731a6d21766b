package script

import (
	"encoding/json"
	"math/big"
	"testing"

	"go.starlark.net/starlark"
)

// What is written is compared with what was written years ago (D34), and then encoding/json wrote it.
func TestEncodeWritesWhatEncodingJSONWrites(t *testing.T) {
	t.Parallel()
	values := map[string]any{
		"empty": "", "words": "a b-c_d/e:f", "html": "<a href='x'>&</a>", "separators": "\u2028\u2029", "beyond ASCII": "größer 日本 🚀",
		"nested": map[string]any{"b": []any{1, "two", nil, true, []any{}}, "a": map[string]any{"": "x", "é": "y"}},
	}
	for c := range 0x80 {
		values["character "+string(rune(c))] = "x" + string(rune(c)) + "y"
		values["key "+string(rune(c))] = map[string]any{"k" + string(rune(c)): c}
	}
	for name, v := range values {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		value, err := decode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := encode(value, 1<<20)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: found %s (%v), expected %s", name, got, err, want)
		}
	}
}

func TestEncodeNumbers(t *testing.T) {
	t.Parallel()
	long, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	for want, v := range map[string]starlark.Value{
		"0": starlark.MakeInt(0), "-7": starlark.MakeInt(-7), "9223372036854775807": starlark.MakeInt64(1<<63 - 1),
		"-9223372036854775808": starlark.MakeInt64(-1 << 63),
		"9223372036854775808":  starlark.MakeUint64(1 << 63), "123456789012345678901234567890": starlark.MakeBigInt(long),
		"1.5": starlark.Float(1.5), "1e+21": starlark.Float(1e21),
	} {
		if got, err := encode(v, 100); err != nil || string(got) != want {
			t.Errorf("found %s (%v), expected %s", got, err, want)
		}
	}
}

func TestErrorsOfEncodeNameThePlace(t *testing.T) {
	t.Parallel()
	container := starlark.NewDict(1)
	_ = container.SetKey(starlark.String("container"), starlark.NewBuiltin("f", nil))
	images := starlark.NewDict(1)
	_ = images.SetKey(starlark.String("images"), starlark.NewList([]starlark.Value{starlark.None, container}))
	_, err := encode(images, 100)
	const want = "value.images[1].container is a builtin_function_or_method; only None, bools, numbers, strings, lists and dicts leave a program"
	if err == nil || err.Error() != want {
		t.Errorf("found %v, expected %s", err, want)
	}
}
