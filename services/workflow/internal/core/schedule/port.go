package schedule

import (
	"context"
	"time"
)

// Store keeps schedules and the outcomes of their due times. Each method is one transaction.
type Store interface {
	// SaveSchedule makes s the schedule of its name. settle is called with the one that exists, if one does, inside the transaction, and
	// returns its next due time, or why s is not stored; the same digest again stores nothing, and created is false. fault.Refused where
	// the organization has most.
	SaveSchedule(
		ctx context.Context, s Schedule, digest [32]byte, most int, settle func(old *Known) (time.Time, error),
	) (Schedule, bool, error)
	// ChangeSchedule applies change to a schedule that is locked, stores Paused, Note, NextDue, ChangedBy and ChangedAt of the result, and
	// has it looked at immediately; fault.NotFound. Of the fires that change returns, those are stored whose due time has no run and
	// will get none; added counts them.
	ChangeSchedule(
		ctx context.Context, organization int64, name string, change func(Known) (Schedule, []Fire, error),
	) (changed Schedule, added int, err error)
	// FindSchedule reads a schedule without its program, inputs and secrets; fault.NotFound.
	FindSchedule(ctx context.Context, organization int64, name string) (Schedule, error)
	// Fires reads the last due times that were dealt with, newest first.
	Fires(ctx context.Context, organization, schedule int64, limit int) ([]Fire, error)
	// ListSchedules reads schedules in the order of their ids, those after `after`, as FindSchedule does.
	ListSchedules(ctx context.Context, organization, after int64, limit int) ([]Schedule, error)
	// DeleteSchedule removes a schedule and what is known of its due times; fault.NotFound.
	DeleteSchedule(ctx context.Context, organization int64, name string) error

	// TakeTurns locks schedules that are to be looked at by now, at most limit, the longest due first, calls decide for each with its open
	// fires, and stores what that returns. Schedules that another process looks at are left out.
	TakeTurns(ctx context.Context, now time.Time, limit int, decide func(Schedule, []Fire) (Turn, error)) ([]Taken, error)
	// LoadSchedules reads schedules with their programs, inputs and secrets, by ID. Those that were deleted are left out.
	LoadSchedules(ctx context.Context, of []Taken) (map[int64]Schedule, error)
	// FinishTurns stores the outcomes of starts, and Settled where all of a turn's starts have an outcome and nothing has changed since.
	FinishTurns(ctx context.Context, outcomes []Outcome, settled []Taken) error
	// NextAttention is when the next schedule is to be looked at; zero if none is.
	NextAttention(ctx context.Context) (time.Time, error)
}

// Known is a schedule as it is stored, with what a change has to know of it.
type Known struct {
	Schedule
	// LastDue is the last due time that was dealt with; zero if there is none.
	LastDue time.Time
}

// Taken is a turn that was stored.
type Taken struct {
	Schedule Schedule
	Turn     Turn
	// Number distinguishes it from other turns of the schedule.
	Number int64
}

// Outcome is the result of the start of a run: Started or Refused.
type Outcome struct {
	Organization, Schedule int64
	Due                    time.Time
	State                  State
	Detail                 string
}
