package core

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// silent is a cluster whose API server carries out the first creation, and whose answer is lost.
type silent struct {
	*shelf

	lost  error
	times int
}

func (s *silent) Create(ctx context.Context, ref Ref, o Object) error {
	if s.objects[ref.String()] != nil {
		return fault.New(fault.Conflict, "%s exists", ref)
	}
	if err := s.shelf.Create(ctx, ref, o); err != nil {
		return err
	}
	if s.times--; s.times >= 0 {
		return s.lost
	}
	return nil
}

// R2-31, D54: the answer to the creation of a task is lost, between the API server and the relay, or with the relay. The call finds the
// task by its name, which is the same each time, and creates no second one; another call does not take it for its own.
func TestATaskWhoseCreationWasNotAnsweredIsFound(t *testing.T) {
	t.Parallel()
	job := strings.Replace(jobArgs, `"namespace":"work"`, `"namespace":"work","operation":"deployment 11"`, 1)
	for name, tc := range map[string]struct {
		function, args string
		lost           error
	}{
		"a Job, no route":      {FunctionRunJob, job, fault.New(fault.Unavailable, "connection reset by peer")},
		"a Job, too late":      {FunctionRunJob, job, context.DeadlineExceeded},
		"a Job, out of order":  {FunctionRunJob, job, fault.New(fault.Conflict, "exists")},
		"a Workflow, no route": {FunctionSubmitWorkflow, migration, fault.New(fault.Unavailable, "connection reset by peer")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &silent{shelf: &shelf{objects: map[string]Object{}}, lost: tc.lost, times: 1}
				var answer Answer
				for range 3 { // the engine repeats a call without an answer
					if answer = s.runIn(t, s, tasks(), tc.function, tc.args); answer.Err == nil {
						break
					}
				}
				if answer.Err != nil || s.writes != 1 || answer.Value["name"] != s.one(t).text("metadata", "name") {
					t.Fatalf("%+v after %d creations, expected the one task", answer, s.writes)
				}
				other := s.runIn(t, s, tasks(), tc.function, strings.Replace(tc.args, "deployment 11", "deployment 12", 1))
				if tc.function == FunctionRunJob && !strings.Contains(other.Err.Error(), "was not created by this call") {
					t.Errorf("another call is answered %+v, expected that the Job of the name is not its own", other)
				}
			})
		})
	}
}
