package flow

import (
	"cmp"
	"encoding/json"
	"time"
)

// DefaultWork is how long a rollout may be at work in an environment of a pipeline without deadlines (R4-25).
const DefaultWork = 6 * time.Hour

// Given is how long the pipeline itself lets a deploy step work: its jobs with each repetition, and the driver, whose
// configuration may say how long each of its waits takes; it waits once for each weight, and once for all.
func (d Definition) Given(step int) time.Duration {
	deploy := d.Steps[step]
	seconds := 0
	for _, list := range deploy.JobLists() {
		for _, job := range list.Jobs {
			seconds += cmp.Or(job.Deadline, defaultJob) * (job.Retries + 1)
		}
	}
	var config struct {
		Deadline float64 `json:"deadline"`
	}
	if json.Unmarshal(deploy.Config, &config) == nil && config.Deadline > 0 { // a driver of others may mean something else
		seconds += int(min(config.Deadline, maxGiven)) * (len(deploy.Gates) + 1)
	}
	return time.Duration(seconds) * time.Second
}

const (
	// defaultJob is how long an attempt at a job takes that names no deadline, in seconds.
	defaultJob = 3600
	// maxGiven is the longest wait of a driver that counts, in seconds: 30 days.
	maxGiven = 2_592_000
)
