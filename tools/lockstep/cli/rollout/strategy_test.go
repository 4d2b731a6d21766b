package rollout

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

func TestStrategiesAreNamedAndShown(t *testing.T) { // R4-16, R4-18
	t.Parallel()
	for name, want := range map[string]string{"auto": "", "quick": "QUICK", "pipeline": "PIPELINE"} {
		if got, err := strategyNamed(name); err != nil || got != want {
			t.Errorf("%s: found %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := strategyNamed("slow"); err == nil || !strings.Contains(err.Error(), `--strategy: found "slow"; expected auto, quick or pipeline`) {
		t.Errorf("found %v", err)
	}
	for _, c := range []struct {
		r    client.Rollout
		want string
	}{
		{client.Rollout{Strategy: "QUICK", StrategyReason: "x"}, "\nquick sync: x\n"},
		{client.Rollout{Strategy: "PIPELINE", StrategyReason: "y"}, "\npipeline: y\n"},
		{client.Rollout{}, ""}, // of a release that did not plan
	} {
		var out strings.Builder
		if strategyLine(&out, c.r); out.String() != c.want {
			t.Errorf("found %q; want %q", out.String(), c.want)
		}
	}
}
