package domain

import (
	"context"
	"os"
	"strconv"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

// PolicyOff switches a policy set off, in the name of the system and with a row of the journal of changes: the command policy-off.
// Policies do not decide about it, so it is the way out where they deny every change of a policy. Its arguments are the number of the
// organization, the name of the set and the reason.
func PolicyOff(ctx context.Context, c Config, arguments []string) error {
	organization, err := strconv.ParseInt(arguments[0], 10, 64)
	if err != nil || organization < 1 {
		return fault.InvalidFields(fault.Field{
			Name: "ORGANIZATION", Problem: "found " + arguments[0] + "; expected the number of an organization",
		})
	}
	c = c.withDefaults()
	pool, err := pg.Open(ctx, database(c, telemetry.Logger(os.Stderr, c.LogLevel)))
	if err != nil {
		return err
	}
	defer pool.Close()
	kept := store.New(store.Deps{Pool: pool, Publish: outbox.Add})
	return policyOff(ctx, policy.New(kept.ForPolicy(), &policy.Engine{}, clock.System(), func() {}), organization, arguments[1], arguments[2])
}

func policyOff(ctx context.Context, policies *policy.UseCases, organization int64, set, reason string) error {
	operator := core.Actor{
		Organization: organization, Type: core.PrincipalSystem, Name: "operator", Permissions: core.PermissionsOf(core.AllPermissions()...),
	}
	_, err := policies.PutPolicySet(ctx, operator, policy.NewPolicySet{Name: set, Mode: core.PolicyOff, Reason: reason})
	return err
}
