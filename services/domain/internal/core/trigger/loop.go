package trigger

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// What an event has Lockstep do may have the same event sent again: CI builds a commit that an edit made, and a channel reports that a
// runbook has ended. So events of Lockstep's own are refused, what is built from an edit's commit is declined, and both have a limit.

// The limit of edits, and of runbooks, that a trigger begins within an hour because of events.
const (
	defaultPerHour = 12
	maxPerHour     = 1000
)

func (c config) perHour() int {
	if c.PerHour == nil {
		return defaultPerHour
	}
	return *c.PerHour
}

// What notifications of Lockstep have as their type and source when a channel sends them as CloudEvents.
const (
	ownTypes   = "com.lockstep."
	ownSources = "/lockstep/organizations/"
)

// ours is why an event is refused that a channel of Lockstep sends; empty for another.
func (e Event) ours() string {
	if strings.HasPrefix(e.Type, ownTypes) || strings.HasPrefix(e.Source, ownSources) {
		return fmt.Sprintf("found an event of type %.100q and source %.100q, which a notification channel of Lockstep sends; expected one of others: "+
			"what a trigger begins would have the next one sent. Use a trigger of kind chain to follow rollouts", e.Type, e.Source)
	}
	return ""
}

// commitMembers are the members of an event's data that say from which commit something was built.
//
//nolint:gochecknoglobals // a table
var commitMembers = []string{"build.commit", "build.sha", "git.commit", "git.sha", "commit", "sha"}

// commitForm is a commit, or what it begins with: by fewer digits others could be meant.
var commitForm = regexp.MustCompile(`^[0-9a-f]{7,64}$`)

// builtFrom is the commit that an event is about; empty if it says none.
func builtFrom(data map[string]any) string {
	for _, path := range commitMembers {
		if found, exists := member(data, path); exists && commitForm.MatchString(strings.ToLower(found)) {
			return strings.ToLower(found)
		}
	}
	return ""
}

// sender is who has sent an event, in words.
func sender(by core.Author) string {
	one := fmt.Sprintf("%s %d", by.Type, by.ID)
	if by.Name == "" || by.Name == one {
		return one
	}
	return fmt.Sprintf("%s (%.100s)", one, by.Name)
}

// beginEdit notes that a run of an edit begins. If none does, it answers why: nothing is edited for that event, and nothing rolled out, or
// it waits.
func (d *decision) beginEdit(ctx context.Context, s core.TriggerSignal) (why core.TriggerSignal, begins bool, err error) {
	refused, frozen, err := d.refuseEdit(ctx, s)
	e := *s.Edit
	switch {
	case err != nil:
		return why, false, err
	case refused != "":
		d.editing, d.signals = nil, []core.TriggerSignal{s}
		e.State, e.Why = core.EditFailed, refused
		return d.declines("%s", refused), false, d.tx.SaveSignalEdit(ctx, s.ID, e.Attempt, e, d.now)
	case frozen != "":
		d.editing = nil
		return d.waits(d.now.Add(rarely), "no files are edited while a rollout could not begin to deploy: %s", frozen), false, nil
	}
	e.Begun = e.Attempt + 1
	d.editing.Edit = &e
	return why, true, d.tx.SaveSignalEdit(ctx, s.ID, e.Attempt, e, d.now.Add(editLease))
}

// refuseEdit is why the files of an event are not edited, or which freezes they wait for. What a rollout would be refused for keeps its
// files from being edited, too: where others deploy a commit at once, it would be too late afterwards.
func (d *decision) refuseEdit(ctx context.Context, s core.TriggerSignal) (refused, frozen string, err error) {
	if of := s.Edit.BuiltFrom; of != "" {
		by, ours, err := d.tx.TriggerOfCommit(ctx, of)
		if err != nil {
			return "", "", err
		}
		if ours {
			return fmt.Sprintf("it is built from Lockstep's own commit %.12s, which trigger %s has made", of, by.Name), "", nil
		}
	}
	edits, _, err := d.tx.LatelyOfTrigger(ctx, d.trigger.ID, d.now.Add(-time.Hour))
	if err != nil {
		return "", "", err
	}
	if most := d.config.perHour(); edits >= most {
		return fmt.Sprintf("the trigger has edited files %d times within an hour, and may %d times (per_hour): its events may be sent because "+
			"of its own commits", edits, most), "", nil
	}
	if d.config.Edit.PullRequest { // people merge it
		return "", "", nil
	}
	if exists, err := d.newest(ctx); err != nil || !exists {
		return noVersionSet, "", err
	}
	n := d.automatic(rollout.Automatic{Until: d.config.Until, Inputs: d.config.Inputs, Again: true}, s)
	return d.u.rollouts.Refused(ctx, d.tx, d.organization, n)
}
