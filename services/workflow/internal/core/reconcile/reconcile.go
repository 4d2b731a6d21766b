// Package reconcile serves a service whose database was restored to an earlier time (D66): it lists the reports of programs, the passages
// granted to runs, and the commits in the repositories of environments.
//
// It decides nothing: the calling service finds what it lacks, and settles it.
package reconcile

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Report is an event that was published about a run.
type Report struct {
	// Position orders the reports.
	Position         int64
	ID, Source, Type string
	Workflow         string
	Time             time.Time
}

// Passage is a passage granted to the run of a rollout. Pinned lists the weights of the environment that need a passage of their own.
type Passage struct {
	Workflow, Gate string
	Pinned         []int32
}

// Which selects reports.
type Which struct {
	Since time.Time
	// After is the position after which the page begins; Workflow is empty for all.
	After    int64
	Workflow string
	Limit    int
}

// Branch is a branch that belongs to an environment; Name is empty for the repository's default one.
type Branch struct{ Repository, Name string }

// Commit is a commit with the trailers of its message.
type Commit struct {
	SHA      string
	Trailers map[string]string
}

// History is the end of a branch, newest first; Problem says why it could not be read.
type History struct {
	Branch

	Commits []Commit
	Problem string
}

// Store reads what is kept, and repeats it.
type Store interface {
	// Reports reads events that were published, oldest first.
	Reports(ctx context.Context, organization int64, w Which) ([]Report, error)
	// Repeat publishes events again, and returns how many of them are still stored.
	Repeat(ctx context.Context, organization int64, ids []string) (int, error)
	// Passages reads what runs have been granted since a time.
	Passages(ctx context.Context, organization int64, workflows []string, since time.Time) ([]Passage, error)
	// Branches reads the branches that belong to environments, in a fixed order, behind a number of them.
	Branches(ctx context.Context, organization int64, offset, limit int) ([]Branch, error)
}

// Forge reads repositories.
type Forge interface {
	// History is the last commits of a branch that have trailers, newest first.
	History(ctx context.Context, organization int64, b Branch) ([]Commit, error)
}

const (
	// MostIDs bounds how many things a request may name.
	MostIDs = 1000
	// MostBranches bounds how many branches one request reads.
	MostBranches = 10
	// readWithin bounds reading one branch. All of a request are read at once.
	readWithin = 30 * time.Second
)

// Service serves the requests. It is safe for concurrent use.
type Service struct {
	Store Store
	Forge Forge
}

// Reports are a page of events that were published about runs.
func (s *Service) Reports(ctx context.Context, organization int64, w Which) ([]Report, error) {
	return s.Store.Reports(ctx, organization, w)
}

// Repeat has events published again. Receivers that have applied one ignore it.
func (s *Service) Repeat(ctx context.Context, organization int64, ids []string) (int, error) {
	if err := checkIDs("event_ids", ids); err != nil {
		return 0, err
	}
	return s.Store.Repeat(ctx, organization, ids)
}

// Passages are what runs have been granted since a time.
func (s *Service) Passages(ctx context.Context, organization int64, workflows []string, since time.Time) ([]Passage, error) {
	if err := checkIDs("workflow_ids", workflows); err != nil {
		return nil, err
	}
	return s.Store.Passages(ctx, organization, workflows, since)
}

func checkIDs(field string, ids []string) error {
	if len(ids) > MostIDs {
		return fault.InvalidFields(fault.Field{Name: field, Problem: "found more than 1000, expected at most 1000"})
	}
	return nil
}

// Histories reads the last commits of branches that belong to environments. A branch that cannot be read carries the reason; the others are
// still read.
func (s *Service) Histories(ctx context.Context, organization int64, offset, limit int) ([]History, error) {
	branches, err := s.Store.Branches(ctx, organization, offset, min(limit, MostBranches))
	if err != nil {
		return nil, err
	}
	all := make([]History, len(branches))
	var reading sync.WaitGroup
	for i, b := range branches {
		reading.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, readWithin)
			defer cancel()
			all[i].Branch = b
			commits, err := s.Forge.History(ctx, organization, b)
			if err != nil {
				all[i].Problem = problem(err)
				return
			}
			all[i].Commits = commits
		})
	}
	reading.Wait()
	return all, ctx.Err()
}

// problem is what a caller may read of an error.
func problem(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "found no answer within 30 seconds"
	}
	return fault.Public(err)
}
