package core

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Before a rollout is begun one may ask what it would change. The domain knows no Git: a program of the driver finds out, from
// the files as they are and the versions that would go into them, and tells.

// PreviewState is where a preview stands. The numbers are stored.
type PreviewState int16

// The states.
const (
	PreviewPending PreviewState = iota
	PreviewMade
	PreviewFailed
)

// String is the state as the API spells it.
func (s PreviewState) String() string {
	switch s {
	case PreviewPending:
		return "pending"
	case PreviewMade:
		return "made"
	case PreviewFailed:
		return "failed"
	default:
		return "unknown"
	}
}

// Preview is what a rollout of a version set would have changed, had it been begun when it was asked for.
type Preview struct {
	ID, ApplicationID, VersionSetID int64
	State                           PreviewState
	// Reason is why it failed.
	Reason       string
	Environments []PreviewedEnvironment
	RequestedAt  time.Time
}

// PreviewedEnvironment is what would change in one environment, in the order of promotion. It is kept in this form.
type PreviewedEnvironment struct {
	EnvironmentID int64        `json:"environment_id"`
	Changes       []FileChange `json:"changes"`
	// Reason is why that cannot be told; then there are no changes.
	Reason string `json:"reason,omitempty"`
}

// FileChange is what changes in one file, for people to read. It is kept in this form.
type FileChange struct {
	Path string `json:"path"`
	// Diff is in the unified form; Truncated is that the rest was left out.
	Diff      string `json:"diff"`
	Truncated bool   `json:"truncated,omitempty"`
}

const (
	// previewsKept is how long a preview can be looked at: it tells of files as they were when it was made, and is no record.
	previewsKept = 7 * 24 * time.Hour
	// forgottenAtOnce is more than one, so that those that are too old become fewer with each that is asked for.
	forgottenAtOnce = 100
)

// NewPreview asks what a rollout would change.
type NewPreview struct {
	VersionSetID int64
	// Rollback is that the rollout would be a way back, which an application may have pass its gates at once (D14).
	Rollback bool
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
	Application    named                     `json:"application"`
	Environments   []rolloutEnvironmentInput `json:"environments"`
	PromoteFull    bool                      `json:"promote_full,omitempty"`
}

// PreviewRollout asks what a rollout of a version set would change. It is refused where the rollout would be, but for another
// one that is under way; the answer comes later.
func (d *Domain) PreviewRollout(ctx context.Context, a Actor, n NewPreview) (Preview, error) {
	var made Preview
	err := d.by(ctx, a, ActionPreviewRollout, func(ctx context.Context, tx Tx) error {
		var back *wayBack
		if n.Rollback {
			back = &wayBack{}
		}
		p, err := d.planAny(ctx, tx, a.Organization, n.VersionSetID, back)
		if err != nil {
			return err
		}
		// One workflow for all stops, as for the rollout itself (D25).
		driver := p.stops[0].driver
		if !driver.Previews {
			return fault.New(fault.Refused, "driver %s cannot say beforehand what a rollout changes", driver.Ref)
		}
		if err := tx.ForgetPreviews(ctx, d.clock.Now().Add(-previewsKept), forgottenAtOnce); err != nil {
			return err
		}
		if made, err = tx.AddPreview(ctx, Preview{ApplicationID: p.application.ID, VersionSetID: p.versionSet.ID}); err != nil {
			return err
		}
		inputs, err := json.Marshal(p.previewInput(a.Organization, made.ID))
		if err != nil {
			return fmt.Errorf("encode inputs of preview %d: %w", made.ID, err)
		}
		return d.submit(ctx, tx, p.drivers, driver.Ref, Handoff{
			WorkflowID: previewWorkflow(made.ID), Subject: HandoffPreview, SubjectID: made.ID, Program: ProgramPreview, Inputs: inputs,
		})
	})
	d.wake()
	return made, err
}

func (p plan) previewInput(organization, preview int64) previewInput {
	in := previewInput{
		Preview: numbered{preview},
		Rollout: previewedRolloutInput{
			OrganizationID: organization, Application: named{p.application.ID, p.application.Name}, PromoteFull: p.inFull,
		},
		VersionSet: versionSetInput{p.versionSet.ID, p.versionSet.Name, p.versionsOf(0)},
	}
	for i, s := range p.stops {
		e := s.input(i + 1)
		for _, svc := range p.services {
			if versions := p.versionsOf(svc.ID); len(versions) > 0 {
				e.Deployments = append(e.Deployments, deploymentInput{svc.ID, named{svc.ID, svc.Name}, versions})
			}
		}
		in.Rollout.Environments = append(in.Rollout.Environments, e)
	}
	return in
}

// RolloutPreviewed is what a program has found out.
type RolloutPreviewed struct {
	PreviewID    int64
	Environments []PreviewedEnvironment
}

func (m RolloutPreviewed) apply(ctx context.Context, _ *Domain, tx Tx, c cause, _ Inbound) error {
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
			return fault.New(fault.NotFound, "preview %d tells of environment %d, which does not exist", m.PreviewID, id)
		}
	}
	p.State, p.Reason, p.Environments = PreviewMade, "", m.Environments
	return tx.SettlePreview(ctx, p)
}

func previewWorkflow(preview int64) string { return fmt.Sprintf("preview-%d", preview) }
