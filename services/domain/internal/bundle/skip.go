package bundle

import (
	"encoding/json"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/flow"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// skip is core.Flow.Skip. An approval without a name gets that of its gate, which would otherwise go by another number.
func skip(definition json.RawMessage, news core.News) (left json.RawMessage, skipped []string, err error) {
	n := flow.News{Messages: news.Messages, Files: news.Files}
	left, err = rewrite(definition, func(steps []step) ([]step, error) {
		kept := []step{}
		for i, s := range steps {
			text, err := json.Marshal(s)
			if err != nil {
				return nil, fmt.Errorf("write step %d of pipeline: %w", i, err)
			}
			one, err := flow.LeftOf(text)
			if err != nil {
				return nil, err
			}
			if why := one.SkipOn.Because(n); why != "" {
				skipped = append(skipped, one.What+" is skipped: "+why)
				continue
			}
			names, err := skipJobs(s, text, n)
			if err != nil {
				return nil, err
			}
			skipped = append(skipped, names...)
			if err := nameGate(s, text, i); err != nil {
				return nil, err
			}
			kept = append(kept, s)
		}
		return kept, nil
	})
	return left, skipped, err
}

// skipJobs takes those jobs out of a deploy step that are left out, and says so.
func skipJobs(s step, text json.RawMessage, n flow.News) (skipped []string, err error) {
	var read flow.Step
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("read a step of a pipeline: %w", err)
	}
	for part, jobs := range map[string][]flow.Job{"before": read.Before, "after": read.After} {
		var raw, kept []json.RawMessage
		if len(jobs) == 0 {
			continue
		}
		if err := json.Unmarshal(s[part], &raw); err != nil {
			return nil, fmt.Errorf("read the jobs of a step: %w", err)
		}
		for i, j := range jobs {
			why := j.SkipOn.Because(n)
			if why == "" {
				kept = append(kept, raw[i])
				continue
			}
			skipped = append(skipped, fmt.Sprintf("the job %s in %s is skipped: %s", j.Name, read.Environment, why))
		}
		if len(kept) == len(raw) {
			continue
		}
		delete(s, part)
		if len(kept) == 0 {
			continue
		}
		if s[part], err = json.Marshal(kept); err != nil {
			return nil, fmt.Errorf("write the jobs of a step: %w", err)
		}
	}
	return skipped, nil
}

// nameGate gives an approval step the name of its gate.
func nameGate(s step, text json.RawMessage, i int) error {
	var read flow.Step
	if err := json.Unmarshal(text, &read); err != nil {
		return fmt.Errorf("read a step of a pipeline: %w", err)
	}
	if read.Type != flow.Approve {
		return nil
	}
	name, err := json.Marshal(flow.StepGateID(i, read))
	if err != nil {
		return fmt.Errorf("name step %d of pipeline: %w", i, err)
	}
	s["name"] = name
	return nil
}
