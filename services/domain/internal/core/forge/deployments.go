package forge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Published is what a forge is given about a commit.
type Published string

// The kinds.
const (
	PublishedStatus     Published = "status"
	PublishedDeployment Published = "deployment"
)

// Publications are all kinds.
func Publications() []Published { return []Published{PublishedStatus, PublishedDeployment} }

// Stage is how far a deployment has come, as forges show it; empty for a status.
type Stage string

// The stages.
const (
	StageQueued     Stage = "queued"
	StageInProgress Stage = "in_progress"
	StageSuccess    Stage = "success"
	StageFailure    Stage = "failure"
	StageInactive   Stage = "inactive"
)

// Stages are all stages.
func Stages() []Stage {
	return []Stage{StageQueued, StageInProgress, StageSuccess, StageFailure, StageInactive}
}

// phase is the same as the phase of a check, which every status has.
func (s Stage) phase() core.CheckPhase {
	switch s {
	case StageFailure:
		return core.CheckFailure
	case StageSuccess, StageInactive:
		return core.CheckSuccess
	case StageQueued, StageInProgress:
	}
	return core.CheckPending
}

// under is a rollout of the subject with its environments, in the order of promotion.
type under struct {
	rollout core.Rollout
	stops   []core.RolloutEnvironment
}

// readDeployments reads the rollouts whose deployments are published: the latest of the version set, and those that forges do not yet have
// the end of.
func (s *subject) readDeployments(ctx context.Context, tx Tx, organization int64) error {
	s.rollouts = nil
	if !s.mirror.Deployments {
		return nil
	}
	ids, err := tx.OpenForgeDeployments(ctx, s.mark.Application, s.mark.VersionSet)
	if err != nil {
		return err
	}
	if s.rollout.ID != 0 {
		ids = append(ids, s.rollout.ID)
	}
	ids = core.Distinct(ids)
	if len(ids) == 0 {
		return nil
	}
	rollouts, err := tx.RolloutsByID(ctx, organization, ids)
	if err != nil {
		return err
	}
	stops, err := tx.RolloutEnvironmentsByRollout(ctx, organization, ids)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(rollouts)) {
		one := under{rollouts[id], slices.Clone(stops[id])}
		slices.SortFunc(one.stops, func(a, b core.RolloutEnvironment) int { return a.Position - b.Position })
		s.rollouts = append(s.rollouts, one)
	}
	return nil
}

// separator is between the environment and the rollout in the name of a deployment. No name of an environment and no key of a check has it.
const separator = "#"

// deployments are what is published of a subject as deployments: one for each environment that a rollout has come to.
func (u *UseCases) deployments(s subject) (all []statement) {
	for _, one := range s.rollouts {
		reached := true
		for _, e := range one.stops {
			stage, text := s.stage(one.rollout, e, reached)
			reached = reached && e.State == core.RolloutCompleted
			if stage == "" || !s.published(e.EnvironmentID) {
				continue
			}
			all = append(all, statement{
				name:        fmt.Sprintf("%s%s/%s%srollout_%d", prefix, s.application.Name, s.names[e.EnvironmentID].Name, separator, one.rollout.ID),
				environment: e.EnvironmentID, rollout: one.rollout.ID, kind: PublishedDeployment, onlyKnown: stage == StageInactive,
				part: Part{
					Set: s.mark.VersionSet, Phase: stage.phase(), Stage: stage, Description: cut(text, maxDescription), Link: u.link(one.rollout.ID),
				},
			})
		}
	}
	return all
}

// stage is how far a rollout has come in an environment, and a text for people; empty before its turn has come.
func (s subject) stage(r core.Rollout, e core.RolloutEnvironment, reached bool) (Stage, string) {
	what := fmt.Sprintf("rollout_%d of %s", r.ID, s.set.Name)
	if r.RollbackOf != 0 {
		what = fmt.Sprintf("rollout_%d of %s, which takes back rollout_%d", r.ID, s.set.Name, r.RollbackOf)
	}
	state := e.State
	if !state.Terminal() && r.State.Terminal() { // it ended there, without a report of the environment
		state = r.State
		if e.State == core.RolloutPending {
			state = core.RolloutCancelled
		}
	}
	switch state {
	case core.RolloutPending:
		if reached {
			return StageQueued, what
		}
	case core.RolloutInProgress:
		return StageInProgress, what
	case core.RolloutPaused:
		return StageInProgress, what + ": it is paused"
	case core.RolloutFailed:
		return StageFailure, what + ": it has failed"
	case core.RolloutCancelled:
		return StageInactive, what + ": it ended before it was done"
	case core.RolloutCompleted:
		if by := s.replacedBy(r, e); by != "" {
			return StageInactive, what + ": it was replaced by " + by
		}
		if e.FinishedAt != nil {
			return StageSuccess, what + ", since " + e.FinishedAt.UTC().Format(time.DateTime) + " UTC"
		}
		return StageSuccess, what
	}
	return "", ""
}

// replacedBy is what has replaced a rollout in an environment; empty if nothing has.
func (s subject) replacedBy(r core.Rollout, e core.RolloutEnvironment) string {
	if live, is := s.live[e.EnvironmentID]; is && live.VersionSet != s.mark.VersionSet {
		return live.Name
	}
	for _, other := range s.rollouts {
		for _, at := range other.stops {
			if other.rollout.ID > r.ID && at.EnvironmentID == e.EnvironmentID && at.State == core.RolloutCompleted {
				return fmt.Sprintf("rollout_%d", other.rollout.ID)
			}
		}
	}
	return ""
}

// deploymentArguments are those of the program that publishes a deployment. Its environment has the name of the application before its own:
// several applications may come from one repository, and none speaks for another there.
func (s Status) deploymentArguments(organization int64, at whereabouts, taken []int64) map[string]any {
	environment, _, _ := strings.Cut(strings.TrimPrefix(s.Name, prefix), separator)
	arguments := map[string]any{
		"repo_url": s.Repository, "commit": s.Commit, "environment": environment, "key": fmt.Sprintf("o%d/rollout_%d", organization, s.RolloutID),
		"number": s.ForgeNumber, "state": s.Stage, "description": s.Description, "url": s.Link, "production": at.production,
	}
	if at.address != "" { // a release before knows no such argument
		arguments["environment_url"] = at.address
	}
	if s.ForgeNumber == 0 && len(taken) > 0 {
		arguments["taken"] = taken
	}
	return arguments
}

// title is the name of a deployment without its rollout.
func (s Status) title() string {
	title, _, _ := strings.Cut(s.Name, separator)
	return title
}

// own keeps a deployment that belongs to another rollout, also of another organization, from being taken for this one: it is searched for
// again, and made if there is no other.
func (u *UseCases) own(ctx context.Context, tx Tx, s *Status, before int64, now time.Time) error {
	if s.ForgeNumber == 0 || s.ForgeNumber == before {
		return nil
	}
	taken, err := tx.ForgeNumbersOfOthers(ctx, s.ID, s.Repository, s.title())
	if err == nil && slices.Contains(taken, s.ForgeNumber) {
		s.again(u.counts.of(s.Kind), now, fmt.Sprintf("the forge answered with the deployment %d, which is of another rollout", s.ForgeNumber))
		s.ForgeNumber, s.SentRevision = 0, 0
	}
	return err
}
