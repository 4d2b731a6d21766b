package trigger

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

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

// sender is who has sent an event, in words.
func sender(by core.Author) string {
	one := fmt.Sprintf("%s %d", by.Type, by.ID)
	if by.Name == "" || by.Name == one {
		return one
	}
	return fmt.Sprintf("%s (%.100s)", one, by.Name)
}

// beginEdit notes that a run of an edit begins. If none does, it answers why: nothing is edited for that event, and nothing rolled out.
func (d *decision) beginEdit(ctx context.Context, s core.TriggerSignal) (why core.TriggerSignal, begins bool, err error) {
	refused, err := d.refuseEdit(ctx, s)
	if err != nil {
		return why, false, err
	}
	e := *s.Edit
	if refused != "" {
		d.editing, d.signals = nil, []core.TriggerSignal{s}
		e.State, e.Why = core.EditFailed, refused
		return d.declines("%s", refused), false, d.tx.SaveSignalEdit(ctx, s.ID, e.Attempt, e, d.now)
	}
	e.Begun = e.Attempt + 1
	d.editing.Edit = &e
	return why, true, d.tx.SaveSignalEdit(ctx, s.ID, e.Attempt, e, d.now.Add(editLease))
}

// refuseEdit is why the files of an event are not edited. What a rollout would be refused for keeps its files from being edited, too: where
// others deploy a commit at once, it would be too late afterwards.
func (d *decision) refuseEdit(ctx context.Context, s core.TriggerSignal) (refused string, err error) {
	if d.config.Edit.PullRequest { // people merge it
		return "", nil
	}
	if exists, err := d.newest(ctx); err != nil || !exists {
		return noVersionSet, err
	}
	n := d.automatic(rollout.Automatic{Until: d.config.Until, Inputs: d.config.Inputs, Again: true}, s)
	return d.u.rollouts.Refused(ctx, d.tx, d.organization, n)
}
