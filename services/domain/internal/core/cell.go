package core

import (
	"fmt"
	"time"
)

// Cell is an application in an environment with what a cell of the matrix shows of it. It is read whole: a page has hundreds.
type Cell struct {
	ApplicationEnvironment
	Environment Environment
	// Live is the set of the last rollout that completed there, and LiveSince when; nil before the first.
	Live      *VersionSet
	LiveSince *time.Time
	// Latest is how the newest rollout that goes there stands there, and LatestVersionSet what that brings; nil before the first.
	Latest           *RolloutEnvironment
	LatestVersionSet *VersionSet
	// Health is the worst of its services', HealthUnknown before any was seen.
	Health Health
	// Reconciliation is what is in force there beside what was deployed last; nil before anybody has looked.
	Reconciliation *Reconciliation
}

// CellContent is what the matrix keeps of an application in an environment.
type CellContent struct {
	// Exists reports whether there is such a cell; the other fields of one that does not exist are empty.
	Exists bool
	// ApplicationName is what the matrix goes by, Shown whether the cell is in it, and Worst the worst health there, for people.
	ApplicationName string
	Shown           bool
	Worst           string
	// LatestStopID is the newest rollout's rollout environment, and LatestState its state; 0 and empty for none.
	LatestStopID int64
	LatestState  State
	// LiveStopID is that of the newest rollout that completed there, with its version set and when; 0 and empty for none.
	LiveStopID, LiveVersionSetID int64
	LiveSince                    string
}

// String says it for people.
func (c CellContent) String() string {
	if !c.Exists {
		return "nothing"
	}
	text, shown := "no stop", "shown"
	if c.LatestStopID != 0 {
		text = fmt.Sprintf("stop %d %s", c.LatestStopID, c.LatestState)
	}
	if !c.Shown {
		shown = "not shown"
	}
	text += fmt.Sprintf(", %s of %q, %s", shown, c.ApplicationName, c.Worst)
	if c.LiveStopID == 0 {
		return text + ", nothing live"
	}
	return text + fmt.Sprintf(", version set %d live by stop %d since %s", c.LiveVersionSetID, c.LiveStopID, c.LiveSince)
}

// CellDifference is a cell that is not what the application, its pipelines, its rollouts and its services' healths say.
type CellDifference struct {
	ApplicationID, EnvironmentID int64
	// StopID is the newest stop, by which the cell is named; 0 before the first, when its application names it.
	StopID        int64
	Kept, Rebuilt CellContent
}
