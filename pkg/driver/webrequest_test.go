package driver_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// R3-30, R3-31, R3-37 to R3-41, D37: what is wrong with a check of kind web-request is reported when it is written, an expression with its
// column.
func TestAWebRequestIsValidatedWhenItIsWritten(t *testing.T) {
	t.Parallel()
	set, err := driver.EmbeddedChecks()
	if err != nil {
		t.Fatal(err)
	}
	kind, err := set.Get("web-request@1")
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"http_request":{"url_template":"https://a.test/{[ .Branch ]}"},"mode":{"type":"polling"},` +
		`"success":{"when":{"expression":"Response.StatusCode == 200"}}}`
	for _, one := range []struct{ from, to, want string }{
		{"", "", ""},
		{`== 200`, `==`, `/success/when/expression: line 1, column`},
		{`Response.StatusCode`, `Respons.StatusCode`, `line 1, column 1: undeclared reference to 'Respons'`},
		{`Response.StatusCode`, `Variables.n`, ``},
		{`== 200`, `== 200 && timestamp(Now) < timestamp(Response.Body.until)`, ``},
		{`Response.StatusCode`, `now()`, `undeclared reference to 'now'`},
		{`{[ .Branch ]}`, `{[ .Branch `, `/http_request/url_template: template:1: unclosed action`},
		{`{[ .Branch ]}`, `{[ env \"HOME\" ]}`, `function \"env\" not defined`},
		{`{[ .Branch ]}`, `{[ getHostByName \"x\" ]}`, `function \"getHostByName\" not defined`},
		{`"polling"`, `"polling","when":{"expression":"true"}`, `/mode/when`},
		{`"polling"`, `"trigger"`, `/mode/when: found nothing`},
		{`"polling"`, `"trigger","when":{"expression":"Response == null"}`, `undeclared reference to 'Response'`},
		{`"polling"`, `"trigger","when":{"expression":"1"}`, `found an expression that makes a int, expected a bool`},
		{
			`"polling"`, `"trigger","when":{"expression":"true"},"response":{"output":{"expression":"{\"a\": Phase}"}}`,
			`undeclared reference to 'Phase'`,
		},
		{`"polling"`, `"trigger","when":{"expression":"true","output":{"expression":"[1]"}}`, `expected a map`},
		{`"polling"`, `"polling","interval":1`, `/mode/interval`},
		{`"polling"`, `"both"`, `/mode/type`},
		{`"polling"`, `"polling","context":"cluster"`, `/mode/context`},
		{`"http_request":{`, `"http_request":{"timeout":301,`, `/http_request/timeout`},
		{`"http_request":{`, `"http_request":{"header_templates":{"Authorization":"x"},`, `/http_request/header_templates/Authorization`},
		{`"http_request":{`, `"http_request":{"password":"x",`, `/http_request/password`},
	} {
		text := strings.Replace(good, one.from, one.to, 1)
		err := kind.ValidateCheck(json.RawMessage(text))
		want := strings.ReplaceAll(one.want, `\"`, `"`)
		if want == "" && err != nil || want != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: found %v, expected %q", text, err, one.want)
		}
	}
}
