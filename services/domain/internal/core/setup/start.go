package setup

import (
	"context"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// StartTx writes what it takes to start a workflow.
type StartTx interface {
	// KeepBundle keeps a driver's bytes under their digest. Keeping them again is a no-op.
	KeepBundle(ctx context.Context, digest, ref string, content []byte) error
	// AddHandoff writes one that is pending. A workflow is started once: a second start is a Conflict.
	AddHandoff(ctx context.Context, h core.Handoff) error
}

// Submit keeps the driver's bytes and writes the start of a workflow, to be handed over after the commit.
func Submit(ctx context.Context, tx StartTx, drivers DriverSet, at time.Time, driverRef string, h core.Handoff) error {
	driver, err := drivers.Lookup(driverRef)
	if err != nil {
		return fault.Because(err, fault.Refused, "the driver %s is not installed: %s", driverRef, fault.Public(err))
	}
	content, err := drivers.Export(driverRef)
	if err != nil {
		return err
	}
	return start(ctx, tx, driver, content, at, h)
}

// SubmitCombined is Submit for a workflow that goes through environments of several drivers: one run carries a whole rollout (D25, D53).
func SubmitCombined(ctx context.Context, tx StartTx, drivers DriverSet, at time.Time, driverRefs []string, h core.Handoff) error {
	refs := slices.Compact(slices.Sorted(slices.Values(driverRefs)))
	if len(refs) == 1 {
		return Submit(ctx, tx, drivers, at, refs[0], h)
	}
	driver, content, err := drivers.Combine(refs...)
	if err != nil {
		return err
	}
	return start(ctx, tx, driver, content, at, h)
}

func start(ctx context.Context, tx StartTx, driver core.Driver, content []byte, at time.Time, h core.Handoff) error {
	if err := tx.KeepBundle(ctx, driver.Digest, driver.Ref, content); err != nil {
		return err
	}
	h.Kind, h.DriverDigest, h.DueAt = core.HandoffStart, driver.Digest, at
	return tx.AddHandoff(ctx, h)
}
