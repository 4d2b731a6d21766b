package application

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// D57: fields that are not named stay, another driver begins without any, and what is not there cannot be left out.
func TestTheNextBindingKeepsWhatIsNotNamed(t *testing.T) {
	t.Parallel()
	one := client.Environment{Name: "production", DriverBindings: []client.DriverBinding{
		{Version: 3, DriverRef: "paper@1", DriverConfig: map[string]any{"drawer": 3.0, "folders": []any{"a"}}}, {Version: 2, DriverRef: "letter@1"},
	}}
	for name, tt := range map[string]struct {
		driver, set string
		unset       []string
		want        string
	}{
		"one field":       {"", `{"drawer":4}`, nil, `paper@1 {"drawer":4,"folders":["a"]}`},
		"one less":        {"", `{}`, []string{"folders"}, `paper@1 {"drawer":3}`},
		"another major":   {"paper@2", `{"colour":"red"}`, nil, `paper@2 {"colour":"red","drawer":3,"folders":["a"]}`},
		"another driver":  {"letter@1", `{"box":1}`, nil, `letter@1 {"box":1}`},
		"what is missing": {"", `{}`, []string{"lid"}, `unset: found "lid"`},
	} {
		in := client.EnvironmentChange{}
		var got string
		if err := rebind(&in, one, tt.driver, json.RawMessage(tt.set), tt.unset); err != nil {
			got = err.Error()
		} else {
			text, err := json.Marshal(in.DriverConfig)
			if err != nil {
				t.Fatal(err)
			}
			if got = *in.DriverRef + " " + string(text); in.BindingVersion != 3 {
				t.Errorf("%s: from binding %d", name, in.BindingVersion)
			}
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: found %s, expected %s", name, got, tt.want)
		}
	}
}
