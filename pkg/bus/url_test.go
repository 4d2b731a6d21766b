package bus_test

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/bus"
)

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"", "nats://127.0.0.1:4222", "tls://nats.example", "localhost:4222",
		"nats://user:s3cret@a:1, nats://b:2", "wss://nats.example/path",
	} {
		if problems := bus.CheckURL("nats_url", address); len(problems) > 0 {
			t.Errorf("%q has problems: %v", address, problems)
		}
	}
	for address, want := range map[string]string{
		"htp://user:s3cret@x": `"htp://"`, "nats://a:1,http://b": `"http://"`, "nats://": `expected a host`,
	} {
		problems := bus.CheckURL("nats_url", address)
		if len(problems) != 1 || problems[0].Name != "nats_url" || !strings.Contains(problems[0].Problem, want) ||
			strings.Contains(problems[0].Problem, "s3cret") {
			t.Errorf("%q has problems %v, want one that names %s", address, problems, want)
		}
	}
}
