package events

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
	sourcesv1 "github.com/lockstep-cd/lockstep/proto/lockstep/sources/v1"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/credential"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/origin"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// Asker asks over the bus, and hints.
type Asker interface {
	Ask(ctx context.Context, subject string, request []byte) ([]byte, error)
	Hint(subject string, payload []byte)
}

// Registry is setup.SourceStatus over the bus: what the registry service knows of sources is asked for, and never kept.
type Registry struct{ conn Asker }

var _ setup.SourceStatus = Registry{}

// NewRegistry asks over a connection.
func NewRegistry(conn Asker) Registry { return Registry{conn} }

// stateWithin is short, because a page waits for it; a look may have to ask a slow registry several things.
const (
	stateWithin = 2 * time.Second
	lookWithin  = 70 * time.Second
)

// States implements setup.SourceStatus.
func (r Registry) States(ctx context.Context, organization int64, ids []int64) (map[int64]setup.SourceState, error) {
	answer, err := ask(ctx, r.conn, stateWithin, bus.SourcesStates, &sourcesv1.StatesRequest{OrganizationId: organization, Ids: ids},
		&sourcesv1.StatesResponse{})
	if err != nil {
		return nil, err
	}
	all := make(map[int64]setup.SourceState, len(answer.GetStates()))
	for _, s := range answer.GetStates() {
		all[s.GetId()] = setup.SourceState{
			ID: s.GetId(), Polled: s.GetPolled(), LookedAt: instant(s.GetLookedAt()), NextLookAt: instant(s.GetNextAt()),
			Failures: int(s.GetFailures()), LastError: s.GetLastError(), LastArtifact: s.GetLastArtifact(),
			LastArtifactAt: instant(s.GetLastArtifactAt()),
		}
	}
	return all, nil
}

// Senders implements setup.SourceStatus.
func (r Registry) Senders(ctx context.Context, organization int64) ([]setup.ArtifactSender, error) {
	answer, err := ask(ctx, r.conn, stateWithin, bus.SourcesStates, &sourcesv1.StatesRequest{OrganizationId: organization, Senders: true},
		&sourcesv1.StatesResponse{})
	if fault.Is(err, fault.Invalid) {
		return nil, fault.New(fault.Unavailable, "the registry service is an older release, which does not report its hooks; upgrade it")
	}
	if err != nil {
		return nil, err
	}
	all := make([]setup.ArtifactSender, len(answer.GetSenders()))
	for i, s := range answer.GetSenders() {
		all[i] = setup.ArtifactSender{
			Name: s.GetName(), Format: s.GetFormat(), Repositories: s.GetRepositories(), ExpiresAt: instant(s.GetExpiresAt()),
			LastArtifact:    s.GetLastArtifact(),
			LastPublishedAt: instant(s.GetLastPublishedAt()), Waiting: int(s.GetWaiting()),
		}
		for _, refused := range s.GetRefused() {
			all[i].Refused = append(all[i].Refused, setup.ArtifactRefusal{
				What: refused.GetWhat(), Reason: refused.GetReason(), Times: refused.GetTimes(), FirstAt: refused.GetFirstAt().AsTime(),
				LastAt: refused.GetLastAt().AsTime(),
			})
		}
	}
	return all, nil
}

var _ forge.Secrets = Registry{}

// ForgeHook implements forge.Secrets.
func (r Registry) ForgeHook(ctx context.Context, organization int64, key, of string) (path, secret string, err error) {
	answer, err := ask(ctx, r.conn, stateWithin, bus.SourcesStates, &sourcesv1.StatesRequest{
		OrganizationId: organization, ForgeHook: &sourcesv1.ForgeHook{Key: key, Forge: of},
	}, &sourcesv1.StatesResponse{})
	if fault.Is(err, fault.Invalid) {
		return "", "", fault.New(fault.Unavailable, "the registry service is an older release, which has no hooks for statuses of commits; upgrade it")
	}
	return answer.GetForgeHook().GetPath(), answer.GetForgeHook().GetSecret(), err
}

// ForgeRefusals implements forge.Secrets.
func (r Registry) ForgeRefusals(ctx context.Context, organization int64, keys []string) (map[string][]forge.Refusal, error) {
	request := &sourcesv1.StatesRequest{OrganizationId: organization, ForgeHookKeys: keys}
	answer, err := ask(ctx, r.conn, stateWithin, bus.SourcesStates, request, &sourcesv1.StatesResponse{})
	if fault.Is(err, fault.Invalid) {
		return nil, fault.New(fault.Unavailable, "the registry service is an older release, which does not report its refusals; upgrade it")
	}
	all := map[string][]forge.Refusal{}
	for _, hook := range answer.GetForgeRefusals() {
		for _, one := range hook.GetRefused() {
			all[hook.GetKey()] = append(all[hook.GetKey()], forge.Refusal{
				What: one.GetWhat(), Reason: one.GetReason(), Times: one.GetTimes(), FirstAt: one.GetFirstAt().AsTime(),
				LastAt: one.GetLastAt().AsTime(),
			})
		}
	}
	return all, err
}

// Look implements setup.SourceStatus.
func (r Registry) Look(ctx context.Context, organization, id int64) (setup.SourceSight, error) {
	return r.look(ctx, &sourcesv1.LookRequest{OrganizationId: organization, Id: id})
}

// Try implements setup.SourceStatus.
func (r Registry) Try(ctx context.Context, organization int64, n setup.NewArtifactSource) (setup.SourceSight, error) {
	return r.look(ctx, &sourcesv1.LookRequest{
		OrganizationId: organization,
		Source:         &sourcesv1.Source{SourceRef: n.Ref, SourceConfig: string(n.Config)},
	})
}

func (r Registry) look(ctx context.Context, request *sourcesv1.LookRequest) (setup.SourceSight, error) {
	answer, err := ask(ctx, r.conn, lookWithin, bus.SourcesLook, request, &sourcesv1.LookResponse{})
	return setup.SourceSight{Artifact: answer.GetArtifact(), Problem: answer.GetProblem()}, err
}

// proveWithin is how long the registry service may take to look up an image.
const proveWithin = 2 * time.Minute

var _ origin.Prover = Registry{}

// Prove implements origin.Prover.
func (r Registry) Prove(
	ctx context.Context, organization int64, image, digest string, claims bool,
) (report provenance.Report, off bool, err error) {
	request := &sourcesv1.ProveRequest{OrganizationId: organization, Image: image, Digest: digest, Claims: claims}
	answer, err := ask(ctx, r.conn, proveWithin, bus.SourcesProve, request, &sourcesv1.ProveResponse{})
	if err != nil || answer.GetOff() {
		return report, err == nil, err
	}
	report, err = provenance.Decode(answer.GetReport())
	return report, false, err
}

// Changed implements setup.SourceStatus.
func (r Registry) Changed() { r.conn.Hint(bus.SourcesChanged, nil) }

func ask[A proto.Message](
	ctx context.Context, conn Asker, within time.Duration, subject string, request proto.Message, answer A,
) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	raw, err := proto.Marshal(request)
	if err != nil {
		return answer, fmt.Errorf("encode a request to %s: %w", subject, err)
	}
	got, err := conn.Ask(ctx, subject, raw)
	if err != nil {
		return answer, err
	}
	if err := proto.Unmarshal(got, answer); err != nil {
		return answer, fmt.Errorf("read the answer to %s: %w", subject, err)
	}
	return answer, nil
}

func instant(at *timestamppb.Timestamp) *time.Time {
	if at == nil {
		return nil
	}
	t := at.AsTime()
	return &t
}

// maxPull is how many sources are sent at once.
const maxPull = 1000

// maxCredentials is how many credentials are sent at once: their values may have many bytes.
const maxCredentials = 20

// Pulled answers the registry service that pulls the sources, the hooks for statuses of commits, or the credentials for registries, of all
// organizations.
func Pulled(
	sources func(ctx context.Context, after int64, most int) ([]setup.PlacedSource, error),
	hooks func(ctx context.Context, after int64, most int) ([]forge.PlacedHook, error),
	credentials func(ctx context.Context, after int64, most int) ([]credential.Credential, error),
) func(context.Context, []byte) ([]byte, error) {
	return func(ctx context.Context, raw []byte) ([]byte, error) {
		var request sourcesv1.PullRequest
		if err := proto.Unmarshal(raw, &request); err != nil {
			return nil, fault.Because(err, fault.Invalid, "not a PullRequest")
		}
		if request.GetLimit() < 1 || request.GetLimit() > maxPull || request.GetAfter() < 0 {
			return nil, fault.New(fault.Invalid, "found limit %d after %d; expected 1 to %d, after 0 or more", request.GetLimit(),
				request.GetAfter(), maxPull)
		}
		if request.GetCredentials() {
			all, err := credentials(ctx, request.GetAfter(), min(int(request.GetLimit()), maxCredentials))
			if err != nil {
				return nil, err
			}
			return encodeCredentials(all)
		}
		if request.GetForgeHooks() {
			all, err := hooks(ctx, request.GetAfter(), int(request.GetLimit()))
			if err != nil {
				return nil, err
			}
			answer := &sourcesv1.ForgeHooks{Hooks: make([]*sourcesv1.ForgeHook, len(all))}
			for i, h := range all {
				answer.Hooks[i] = &sourcesv1.ForgeHook{Id: h.ID, OrganizationId: h.Organization, Key: h.Key}
			}
			return proto.Marshal(&sourcesv1.PullResponse{ForgeHooks: answer})
		}
		all, err := sources(ctx, request.GetAfter(), int(request.GetLimit()))
		if err != nil {
			return nil, err
		}
		answer := &sourcesv1.PullResponse{Sources: make([]*sourcesv1.Source, len(all))}
		for i, s := range all {
			answer.Sources[i] = &sourcesv1.Source{Id: s.ID, OrganizationId: s.OrganizationID, SourceRef: s.Ref, SourceConfig: string(s.Config)}
		}
		return proto.Marshal(answer)
	}
}

func encodeCredentials(all []credential.Credential) ([]byte, error) {
	answer := &sourcesv1.Credentials{Credentials: make([]*sourcesv1.Credential, len(all))}
	for i, c := range all {
		proof := ""
		if !c.Proof.IsZero() {
			encoded, err := json.Marshal(c.Proof)
			if err != nil {
				return nil, fmt.Errorf("encode the proof of credential %q: %w", c.Name, err)
			}
			proof = string(encoded)
		}
		answer.Credentials[i] = &sourcesv1.Credential{
			Id: c.ID, OrganizationId: c.Organization, Name: c.Name, Version: int32(c.Version), UrlPrefixes: c.URLPrefixes, Username: c.Username,
			Proof: proof, Reference: c.Reference, Sealed: c.Sealed, Revoked: c.RevokedAt != nil,
		}
	}
	encoded, err := proto.Marshal(&sourcesv1.PullResponse{Credentials: answer})
	if err != nil {
		return nil, fmt.Errorf("encode credentials: %w", err)
	}
	return encoded, nil
}
