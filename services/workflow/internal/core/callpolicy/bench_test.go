package callpolicy

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// manyPolicies are 200 policies about calls: one permits, the others forbid calls of so many Functions with arguments that no call has.
func manyPolicies(functions int) string {
	var text strings.Builder
	text.WriteString(`@id("calls") permit (principal, action == Action::"function.call", resource);` + "\n")
	for i := range policy.MaxPolicies - 1 {
		_, _ = fmt.Fprintf(&text, `@id("p%d") forbid (principal, action == Action::"function.call", resource == Function::"f%d")
when { context.arguments.contains("state.tenant=%d") && context.time.hour < 24 };`+"\n", i, i%functions, i)
	}
	return text.String()
}

// BenchmarkDecide is what policies cost a call: the goal of the engine's steps a second with them leaves a few microseconds.
func BenchmarkDecide(b *testing.B) {
	for _, functions := range []int{200, 20, 1} {
		set := Set{Organization: 1, Name: "calls", Version: 1, Mode: "enforce", TimeZone: "UTC", Text: manyPolicies(functions)}
		r := NewRegistry(stored{set}, clock.System(), slog.New(slog.DiscardHandler))
		run, err := r.Find(b.Context(), 1, "rollout-7")
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("200 policies about %d Functions", functions), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d, _, err := r.Decide(b.Context(), run, "f0", json.RawMessage(`{"state": {"i": 7}}`), nil)
				if err != nil || d.Verdict != policy.Allow {
					b.Fatal(d, err)
				}
			}
		})
	}
}
