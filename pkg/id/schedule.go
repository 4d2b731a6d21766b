package id

import (
	"regexp"
	"strconv"
	"time"
)

// scheduleTime is the form of a due time in an id.
const scheduleTime = "20060102T150405Z"

// ScheduleRun returns the id of the run of a schedule for a due time, in whole seconds. The number of the schedule distinguishes it from
// one of the same name that was deleted before.
func ScheduleRun(name string, schedule int64, due time.Time) string {
	return "schedule/" + name + "/" + strconv.FormatInt(schedule, 10) + "/" + due.UTC().Format(scheduleTime)
}

var scheduledRun = regexp.MustCompile(`^schedule/[a-z0-9][a-z0-9._-]{0,99}/[0-9]+/[0-9]{8}T[0-9]{6}Z$`)

// ScheduledRun reports whether an id has the form of a run that a schedule starts. Nobody else may start a run with such an id.
func ScheduledRun(run string) bool { return scheduledRun.MatchString(run) }
