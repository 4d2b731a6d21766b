package workflow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// TestAChannelIsOpenForItsToken covers D19: a token is the only way to a channel, in its organization, while
// its run lives; a sender that repeats itself hears the same afterwards.
func TestAChannelIsOpenForItsToken(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	e.run("one", e.store, nil)
	e.start("receive(channel())")
	e.await(execution.Parked)
	token := strings.TrimSuffix(strings.TrimPrefix(e.history()[0], `channel "`), `"`)

	for _, tt := range []struct {
		name    string
		message history.Message
		want    fault.Class
	}{
		{"no token", history.Message{Organization: 1, Token: "ch_1", ID: "m"}, fault.Invalid},
		{"no id", history.Message{Organization: 1, Token: token}, fault.Invalid},
		{"no JSON", history.Message{Organization: 1, Token: token, ID: "m", Data: json.RawMessage("{")}, fault.Invalid},
		{"another token", history.Message{Organization: 1, Token: "ch_" + strings.Repeat("A", 26), ID: "m"}, fault.NotFound},
		{"another organization", history.Message{Organization: 2, Token: token, ID: "m"}, fault.NotFound},
	} {
		if _, err := e.service.SendToChannel(t.Context(), tt.message); !fault.Is(err, tt.want) || strings.Contains(err.Error(), token) {
			t.Errorf("%s: found %v, expected %s without the token", tt.name, err, tt.want)
		}
	}
	message := history.Message{Organization: 1, Token: token, ID: "m"}
	if duplicate, err := e.service.SendToChannel(t.Context(), message); duplicate || err != nil {
		t.Fatal(duplicate, err)
	}
	e.await(execution.Completed)
	if duplicate, err := e.service.SendToChannel(t.Context(), message); !duplicate || err != nil {
		t.Errorf("sent again to a run that has ended: duplicate %t, error %v", duplicate, err)
	}
	message.ID = "late"
	if _, err := e.service.SendToChannel(t.Context(), message); !fault.Is(err, fault.NotFound) {
		t.Errorf("found %v, expected that the channel is gone", err)
	}
}
