package workflow

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// TestTheTimelineAsATable: branches below each other, bars to scale, an open operation up to now, and what is missing.
func TestTheTimelineAsATable(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) *timestamppb.Timestamp {
		return timestamppb.New(start.Add(time.Duration(seconds) * time.Second))
	}
	var out strings.Builder
	timelineTable(&out, &autoflowv1.GetTimelineResponse{
		Earlier: true, Gap: "the program has changed",
		Steps: []*autoflowv1.TimelineStep{
			{
				Sequence: 7, Branch: 1, Kind: "run", Name: "http.request", BeganAt: at(10), EndedAt: at(20), Code: "timeout", Output: "no answer", Position: "main.star:3:1",
				RetriesCount: 5, Retries: []*autoflowv1.CallRetry{
					{Number: 1, BeganAt: at(10), EndedAt: at(11), Code: "busy", Message: "later", NextAt: at(12)},
					{Number: 2, EndedAt: at(12), Code: "busy"},
					{Number: 3, EndedAt: at(12), Code: "busy"},
					{Number: 5, EndedAt: at(15), Code: "busy"},
				},
			},
			{Sequence: 8, Branch: 0, Kind: "sleep", BeganAt: at(0), EndedAt: at(10), Output: strings.Repeat("x", 100)},
			{Branch: 0, Kind: "wait", Name: "com.example.done", BeganAt: at(20)},
		},
	}, start.Add(40*time.Second))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{
		"BRANCH\tOPERATION\tBEGAN\tTOOK\t-\tRESULT\tAT",
		"0\tsleep\t*\t10s\t" + strings.Repeat("█", 11) + strings.Repeat("·", 29) + "\t" + strings.Repeat("x", 60) + "…\t-",
		"0\twait com.example.done\t*\t20s\t" + strings.Repeat("·", 20) + strings.Repeat("█", 20) + "\topen\t-",
		"1\trun http.request\t*\t10s\t" + strings.Repeat("·", 10) + strings.Repeat("█", 11) + strings.Repeat("·", 19) + "\ttimeout: no answer\tmain.star:3:1",
		"-\t  attempt 1 failed\t*\t1s\t-\tbusy: later\t-",
		"-\t  attempt 2 failed\t*\t-\t-\tbusy: \t-",
		"-\t  attempt 3 failed\t*\t-\t-\tbusy: \t-",
		"-\t  1 other failed attempts",
		"-\t  attempt 5 failed\t*\t-\t-\tbusy: \t-",
		"earlier operations: --before 7",
		"the program has changed",
	}
	if len(lines) != len(want) {
		t.Fatalf("found %q", lines)
	}
	for i, line := range lines {
		cells := strings.Split(line, "\t")
		if len(cells) > 2 && i > 0 {
			cells[2] = "*" // in local time
		}
		if found := strings.Join(cells, "\t"); found != want[i] {
			t.Errorf("line %d: found\n%q, expected\n%q", i, found, want[i])
		}
	}
}
