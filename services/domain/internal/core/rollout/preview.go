package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

const (
	// previewsKept is how long a preview can be looked at: it describes files as they were when it was made, and is no record.
	previewsKept = 7 * 24 * time.Hour
	// forgottenAtOnce is more than one, so that those that are too old become fewer with each that is asked for.
	forgottenAtOnce = 100
)

// NewPreview asks what a rollout would change.
type NewPreview struct {
	VersionSetID int64
	// Rollback is that the rollout would be a rollback, which an application may have pass its gates at once (D14).
	Rollback bool
	// Strategy is whether the rollout is to stop at weights.
	Strategy planner.Choice
	// Inputs are those that the pipeline declares, an object of JSON; empty for none.
	Inputs json.RawMessage
}

type previewInput struct {
	Preview    numbered              `json:"preview"`
	Rollout    previewedRolloutInput `json:"rollout"`
	VersionSet versionSetInput       `json:"version_set"`
}

type numbered struct {
	ID int64 `json:"id"`
}

// previewedRolloutInput is a rollout's as far as there is one: it has no number, and its deployments have those of their services.
type previewedRolloutInput struct {
	OrganizationID int64                     `json:"organization_id"`
	Application    setup.Named               `json:"application"`
	Environments   []rolloutEnvironmentInput `json:"environments"`
	PromoteFull    bool                      `json:"promote_full,omitempty"`
	Strategy       planner.Strategy          `json:"strategy,omitempty"`
	Inputs         json.RawMessage           `json:"inputs,omitempty"`
}

// PreviewRollout asks what a rollout of a version set would change. It is refused where the rollout would be, but for another
// one that is under way; the answer comes later.
func (u *UseCases) PreviewRollout(ctx context.Context, a core.Actor, n NewPreview) (core.Preview, error) {
	var made core.Preview
	err := core.Within(ctx, u.store, a, core.ActionPreviewRollout, func(ctx context.Context, tx Tx) error {
		var back *rollbackOf
		if n.Rollback {
			back = &rollbackOf{}
		}
		p, err := u.planAny(ctx, tx, a.Organization, n.VersionSetID, back, wish{strategy: n.Strategy, inputs: n.Inputs})
		if err != nil {
			return err
		}
		if err := a.MayIn(core.ActionPreviewRollout, p.targets()...); err != nil {
			return err
		}
		if err := p.refuseNoPreview(); err != nil {
			return err
		}
		if err := tx.ForgetPreviews(ctx, u.clock.Now().Add(-previewsKept), forgottenAtOnce); err != nil {
			return err
		}
		if made, err = tx.AddPreview(ctx, core.Preview{ApplicationID: p.application.ID, VersionSetID: p.versionSet.ID}); err != nil {
			return err
		}
		inputs, err := json.Marshal(p.previewInput(a.Organization, made.ID))
		if err != nil {
			return fmt.Errorf("encode inputs of preview %d: %w", made.ID, err)
		}
		return setup.SubmitCombined(ctx, tx, p.drivers, u.clock.Now(), p.driverRefs(), core.Handoff{
			WorkflowID: previewWorkflow(made.ID), Subject: core.HandoffPreview, SubjectID: made.ID, Program: core.ProgramPreview, Inputs: inputs,
		})
	})
	u.wake()
	return made, err
}

// refuseNoPreview refuses a plan with a driver that cannot examine its environments. One workflow examines all stops, as one carries the
// rollout through them (D25).
func (p plan) refuseNoPreview() error {
	refs := p.driverRefs()
	several := slices.ContainsFunc(refs, func(ref string) bool { return ref != refs[0] })
	for _, s := range p.stops {
		switch {
		case !s.driver.Previews:
			return fault.New(fault.Refused, "driver %s cannot say beforehand what a rollout changes", s.driver.Ref)
		case several && !s.driver.CombinesPreview:
			return fault.New(fault.Refused, "driver %s cannot say beforehand what a rollout changes in a pipeline of several drivers", s.driver.Ref)
		}
	}
	return nil
}

func (p plan) previewInput(organization, preview int64) previewInput {
	in := previewInput{
		Preview: numbered{preview},
		Rollout: previewedRolloutInput{
			OrganizationID: organization, Application: setup.Named{ID: p.application.ID, Name: p.application.Name}, PromoteFull: p.inFull,
			Strategy: p.decision.Strategy, Inputs: p.inputs,
		},
		VersionSet: versionSetInput{p.versionSet.ID, p.versionSet.Name, p.versionsOf(0)},
	}
	for i, s := range p.stops {
		e := p.input(s, i+1)
		for _, svc := range p.services {
			if versions := p.versionsOf(svc.ID); len(versions) > 0 {
				e.Deployments = append(e.Deployments, deploymentInput{svc.ID, setup.Named{ID: svc.ID, Name: svc.Name}, versions})
			}
		}
		in.Rollout.Environments = append(in.Rollout.Environments, e)
	}
	return in
}

// Previewed is what a program has found out.
type Previewed struct {
	PreviewID    int64
	Environments []core.PreviewedEnvironment
}

func (m Previewed) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	known, err := tx.PreviewsByID(ctx, c.Organization, []int64{m.PreviewID})
	if err != nil {
		return err
	}
	p, ok := known[m.PreviewID]
	if !ok {
		return fault.New(fault.NotFound, "preview %d does not exist", m.PreviewID)
	}
	ids := make([]int64, len(m.Environments))
	for i, e := range m.Environments {
		ids[i] = e.EnvironmentID
	}
	environments, err := tx.EnvironmentsByID(ctx, c.Organization, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, ok := environments[id]; !ok {
			return fault.New(fault.NotFound, "preview %d names environment %d, which does not exist", m.PreviewID, id)
		}
	}
	p.State, p.Reason, p.Environments = core.PreviewMade, "", m.Environments
	return tx.SettlePreview(ctx, p)
}

func previewWorkflow(preview int64) string { return id.PreviewRun(preview) }
