package engine

import (
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// keepRoom finds workers of this process for the calls that a turn opens. The rounds of a poll are offered to all.
func (r *run) keepRoom(opened []Opening) {
	if r.engine.Room == nil {
		return
	}
	for i := range opened {
		if o := &opened[i]; o.Location == activity.Worker && o.Poll == nil {
			o.Room = r.engine.Room(r.loaded.Organization, o.Op.Name)
		}
	}
}

// leaveRoom gives up what keepRoom has kept, and nobody was given.
func leaveRoom(opened []Opening) {
	for _, o := range opened {
		if o.Room != nil {
			o.Room.Leave("")
		}
	}
}

// loseRoom gives it up after an error of the commit, which it returns. The calls may be stored all the same: they are offered to all then.
func (r *run) loseRoom(opened []Opening, err error) error {
	for _, o := range opened {
		if o.Room != nil {
			o.Room.Leave(o.Op.Activity(r.loaded.Ref))
		}
	}
	return err
}

// offer has a worker get a call that is stored.
func (r *run) offer(o Opening) {
	switch {
	case o.Room != nil:
		o.Room.Give(activity.Offer{
			ID: o.Op.Activity(r.loaded.Ref), Execution: r.loaded.ID, Workflow: r.loaded.Workflow, Args: o.Op.Args, Deadline: o.Due,
			Trace: r.loaded.Trace,
		})
	case r.engine.Offered != nil:
		r.engine.Offered(r.loaded.Organization, o.Op.Name)
	}
}
