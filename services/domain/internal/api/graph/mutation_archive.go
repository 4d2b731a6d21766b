package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
)

// ArchiveApplication takes an application, given by name or identifier, out of use.
func (m mutation) ArchiveApplication(ctx context.Context, in model.ArchiveApplicationInput) (p model.ArchiveApplicationPayload, err error) {
	l := loadersOf(ctx)
	n, err := applicationNumber(ctx, m.domain, in.Application)
	if err == nil {
		_, err = m.domain.ArchiveApplication(ctx, l.actor, n)
	}
	p.Application, p.Errors, err = outcome(ctx, l.applications, n, model.WrapApplication, inField(err, "/application"))
	return p, err
}

// ArchiveEnvironment takes an environment out of use.
func (m mutation) ArchiveEnvironment(ctx context.Context, in model.ArchiveEnvironmentInput) (p model.ArchiveEnvironmentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.ArchiveEnvironment(ctx, l.actor, n)
		err = inField(err, "/environmentId")
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, err)
	return p, err
}
