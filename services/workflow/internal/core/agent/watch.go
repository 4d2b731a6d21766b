package agent

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// The events by which relays report what they see under a watch: of Argo Rollouts (E71), and of everything else.
const (
	TypeRolloutStatusChanged = "com.gitlab.cd.argo.rollout.status_changed"
	TypeObjectChanged        = "com.gitlab.cd.object.changed"
)

// Watch is what a program wants to be notified of: an object in a cluster, or the objects with certain labels. It lives no
// longer than its execution, however that ends (D20, E78).
type Watch struct {
	// ID is the activity that opened it. What is observed carries it, which is what the program's wait filters by.
	ID string
	// Execution is the handle of the run.
	Execution string
	Agent     int64
	Spec      WatchSpec
}

// WatchSpec says what is watched. It is stored.
type WatchSpec struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"api_version,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	// Name, or Labels: a selector as kubectl writes it.
	Name   string `json:"name,omitempty"`
	Labels string `json:"labels,omitempty"`
	// Fields are the dotted paths whose changes matter, and all that is reported.
	Fields []string `json:"fields"`
	// Subject are members that everything observed gets, in place of those that the relay may have given it: so one wait
	// can be for what is seen and for what else happens to the subject, such as a rollout's.
	Subject map[string]int64 `json:"subject,omitempty"`
	// Report and Expected are an Observer's.
	Report   string `json:"report,omitempty"`
	Expected string `json:"expected,omitempty"`
}

// WatchStore keeps what is to be watched. Every method is one transaction and may be repeated.
type WatchStore interface {
	// OpenWatch adds a watch, unless its execution has ended.
	OpenWatch(ctx context.Context, w Watch) error
	// CloseWatch removes a watch of the execution, and answers its agent; 0 if there was none.
	CloseWatch(ctx context.Context, execution, watch string) (agent int64, err error)
	// WantedWatches are an agent's watches of executions that have not ended, by id, and those of observers.
	WantedWatches(ctx context.Context, agent int64) ([]Watch, error)
	// WantedIDs are the ids of what WantedWatches answers, of several agents. One without watches is left out.
	WantedIDs(ctx context.Context, agents []int64) (map[int64][]string, error)
	// ReceiveObserved stores an event about a watch like Store.Receive; one about a watch that is not there changes
	// nothing. fault.Denied: the watch is another agent's.
	ReceiveObserved(ctx context.Context, watch string, agent int64, e history.Event) (matched int, err error)
}
