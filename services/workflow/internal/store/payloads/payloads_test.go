package payloads_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/payloads"
)

// big is a JSON text of a string of n bytes.
func big(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

func TestSplitAndWholeAreInverse(t *testing.T) {
	t.Parallel()
	large, marker := big(payloads.Threshold+1), `{"lockstep.dev/payload":"7/`+strings.Repeat("ab", 32)+`"}`
	many := "[" + strings.TrimSuffix(strings.Repeat("1234567,", 10_000), ",") + "]"
	nested := strings.Repeat(`{"a":`, 40) + large + strings.Repeat("}", 40)
	for name, c := range map[string]struct {
		value    string
		payloads int
	}{
		"small":                         {`{"a": [1, "two", null]}`, 0},
		"at the threshold":              {big(payloads.Threshold), 0},
		"a long string":                 {large, 1},
		"a long list of short values":   {many, 1},
		"one long member":               {`{"id":"e", "data" : ` + large + ` ,"n":1}`, 1},
		"two long members":              {`{"a":` + large + `,"b":[1,` + many + `,{}]}`, 2},
		"the same twice":                {`[` + large + `,` + large + `]`, 2},
		"brackets and escapes in text":  {`{"\"}]":"[{\\","d":` + large + `,"e":"\\\""}`, 1},
		"what looks like a reference":   {marker, 1},
		"a reference in small data":     {`{"channel":"c","data":{"x":[` + marker + `]}}`, 1},
		"a reference as text":           {fmt.Sprintf("{\"a\":%q}", marker), 0},
		"a reference beside large data": {`{"a":` + marker + `,"b":` + large + `}`, 2},
		"nested deeply":                 {nested, 1},
		"no data":                       {"null", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !json.Valid([]byte(c.value)) {
				t.Fatal("the case is not JSON")
			}
			s := payloads.Split(7, []byte(c.value), payloads.Threshold)
			if !json.Valid([]byte(s.Text)) || len(s.Text) > payloads.Threshold {
				t.Errorf("stored %d bytes, valid %v; expected JSON of at most %d", len(s.Text), json.Valid([]byte(s.Text)), payloads.Threshold)
			}
			if len(s.Payloads) != c.payloads {
				t.Errorf("found %d payloads, expected %d", len(s.Payloads), c.payloads)
			}
			found := map[payloads.Key][]byte{}
			for _, p := range s.Payloads {
				found[p.Key] = p.Data
			}
			if keys := payloads.Keys([]byte(s.Text)); len(keys) != c.payloads {
				t.Errorf("the text refers to %d payloads, expected %d", len(keys), c.payloads)
			}
			whole, err := payloads.Whole([]byte(s.Text), found)
			if err != nil || string(whole) != c.value {
				t.Errorf("read %d bytes (%v), expected the %d that were stored", len(whole), err, len(c.value))
			}
			if _, err := payloads.Whole([]byte(s.Text), nil); (err != nil) != (c.payloads > 0) {
				t.Errorf("without payloads: %v", err)
			}
		})
	}
}

// An event and what a run records of it are one payload (issue 18, point 8).
func TestAValueWithinAnotherIsTheSamePayload(t *testing.T) {
	t.Parallel()
	for _, data := range []string{big(100_000), `{"files":` + big(100_000) + `,"n":1}`, `{"l":[` + strings.Repeat(`{"a":1},`, 20_000) + `0]}`} {
		alone := payloads.Split(7, []byte(data), payloads.Threshold)
		within := payloads.Split(7, []byte(`{"id":"1","data":`+data+`}`), payloads.Threshold)
		if len(alone.Payloads) != 1 || len(within.Payloads) != 1 || alone.Payloads[0].Key != within.Payloads[0].Key {
			t.Errorf("found %v and %v, expected one payload", alone.Text, within.Text)
		}
	}
	a, b := payloads.Split(7, []byte(big(100_000)), payloads.Threshold), payloads.Split(8, []byte(big(100_000)), payloads.Threshold)
	if a.Payloads[0].Key == b.Payloads[0].Key {
		t.Error("two organizations share a payload")
	}
}

func FuzzSplit(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":"c"}]}`, `[]`, `"x"`, `{"lockstep.dev/payload":"1/00"}`, `{"a" : 1 , "b":"\\"}`} {
		f.Add(seed, uint16(3))
	}
	f.Fuzz(func(t *testing.T, text string, times uint16) {
		if !json.Valid([]byte(text)) {
			return
		}
		value := `{"a":[` + text + strings.Repeat(","+text, int(times)%2000) + `],"b":` + text + `}`
		s := payloads.Split(3, []byte(value), 1+int(times)%200)
		found := map[payloads.Key][]byte{}
		for _, p := range s.Payloads {
			found[p.Key] = p.Data
		}
		if whole, err := payloads.Whole([]byte(s.Text), found); err != nil || string(whole) != value {
			t.Fatalf("read %d bytes (%v), expected %d", len(whole), err, len(value))
		}
	})
}
