package registry

import (
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	sourcesv1 "github.com/lockstep-cd/lockstep/proto/lockstep/sources/v1"
	"github.com/lockstep-cd/lockstep/services/registry/internal/api"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/store"
)

// Senders implements events.Answers: it returns the hooks and tokens of an organization and, if it is the only one, those without an
// organization. The reports of the latter may concern any organization's images.
func (a answers) Senders(ctx context.Context, organization int64) ([]*sourcesv1.Sender, error) {
	if a.hooks == nil {
		return nil, nil
	}
	withSources, err := store.Organizations(ctx, a.pool)
	if err != nil {
		return nil, err
	}
	only := len(a.config.organizations(append(withSources, organization))) == 1
	all, err := a.hooks.Status(ctx, core.Token{})
	if err != nil {
		return nil, err
	}
	var senders []*sourcesv1.Sender
	for _, h := range all.Hooks {
		if h.Organization != organization && (h.Organization != 0 || !only) {
			continue
		}
		one := &sourcesv1.Sender{
			Name: h.Name, Format: h.Format, Repositories: h.Repositories, LastArtifact: h.LastArtifact, Waiting: int32(len(h.Waiting)),
			Refused: refusedParts(h.Refused),
		}
		if h.LastPublished != nil {
			one.LastPublishedAt = timestamppb.New(*h.LastPublished)
		}
		senders = append(senders, one)
	}
	for _, t := range all.Tokens {
		if t.Organization != organization && (t.Organization != 0 || !only) {
			continue
		}
		one := &sourcesv1.Sender{Name: t.Name, Format: "token", Repositories: t.Repositories, Refused: refusedParts(t.Refused)}
		if t.Expires != nil {
			one.ExpiresAt = timestamppb.New(*t.Expires)
		}
		senders = append(senders, one)
	}
	return slices.Clip(senders), nil
}

func refusedParts(all []api.RefusedStatus) []*sourcesv1.Refused {
	parts := make([]*sourcesv1.Refused, len(all))
	for i, r := range all {
		parts[i] = &sourcesv1.Refused{
			What: r.What, Reason: r.Reason, Times: r.Times, FirstAt: timestamppb.New(r.First),
			LastAt: timestamppb.New(r.Last),
		}
	}
	return parts
}

// ForgeRefusals implements events.Answers.
func (a answers) ForgeRefusals(ctx context.Context, organization int64, keys []string) ([]*sourcesv1.ForgeRefusals, error) {
	senders := make([]string, len(keys))
	for i, key := range keys {
		senders[i] = core.StatusHook{Organization: organization, Key: key}.Sender()
	}
	refused, err := store.NewHooks(store.HooksDeps{Pool: a.pool}).Refusals(ctx, senders)
	if err != nil {
		return nil, err
	}
	var all []*sourcesv1.ForgeRefusals
	for i, key := range keys {
		var parts []*sourcesv1.Refused
		for _, r := range refused[senders[i]] {
			parts = append(parts, &sourcesv1.Refused{
				What: r.What, Reason: r.Reason, Times: r.Times, FirstAt: timestamppb.New(r.First), LastAt: timestamppb.New(r.Last),
			})
		}
		if len(parts) > 0 {
			all = append(all, &sourcesv1.ForgeRefusals{Key: key, Refused: parts})
		}
	}
	return all, nil
}
