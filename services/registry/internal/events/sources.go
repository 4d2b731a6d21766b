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
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// Asker sends requests over the bus.
type Asker interface {
	Ask(ctx context.Context, subject string, request []byte) ([]byte, error)
}

// pageOfSources is the number of sources in one response: some 100 kB.
const pageOfSources = 500

// Pull fetches the sources of all organizations from the domain, and passes them to each, page by page.
func Pull(ctx context.Context, domain Asker, each func([]core.Source) error) error {
	for after := int64(0); ; {
		request, err := proto.Marshal(&sourcesv1.PullRequest{After: after, Limit: pageOfSources})
		if err != nil {
			return fmt.Errorf("encode a pull: %w", err)
		}
		raw, err := domain.Ask(ctx, bus.SourcesPull, request)
		if err != nil {
			return fmt.Errorf("pull sources after %d: %w", after, err)
		}
		var page sourcesv1.PullResponse
		if err := proto.Unmarshal(raw, &page); err != nil {
			return fmt.Errorf("read the sources after %d: %w", after, err)
		}
		if len(page.GetSources()) == 0 {
			return nil
		}
		all := make([]core.Source, len(page.GetSources()))
		for i, s := range page.GetSources() {
			all[i] = read(s)
			// A response in another order could make us request the same page for ever.
			if s.GetId() <= after {
				return fmt.Errorf("pull sources after %d: found id %d; expected a higher one", after, s.GetId())
			}
			after = s.GetId()
		}
		if err := each(all); err != nil {
			return err
		}
	}
}

// PullForgeHooks fetches the hooks for statuses of commits of all organizations from the domain, as those of each that were not removed. It
// reports false if the domain is an older release, which does not say them.
func PullForgeHooks(ctx context.Context, domain Asker) (all []core.StatusHook, known bool, err error) {
	for after := int64(0); ; {
		request, err := proto.Marshal(&sourcesv1.PullRequest{After: after, Limit: pageOfSources, ForgeHooks: true})
		if err != nil {
			return nil, false, fmt.Errorf("encode a pull of hooks: %w", err)
		}
		raw, err := domain.Ask(ctx, bus.SourcesPull, request)
		if err != nil {
			return nil, false, fmt.Errorf("pull hooks after %d: %w", after, err)
		}
		var page sourcesv1.PullResponse
		if err := proto.Unmarshal(raw, &page); err != nil {
			return nil, false, fmt.Errorf("read the hooks after %d: %w", after, err)
		}
		if page.GetForgeHooks() == nil {
			return nil, false, nil
		}
		for _, h := range page.GetForgeHooks().GetHooks() {
			if h.GetId() <= after {
				return nil, false, fmt.Errorf("pull hooks after %d: found id %d; expected a higher one", after, h.GetId())
			}
			after = h.GetId()
			all = append(all, core.StatusHook{Organization: h.GetOrganizationId(), Key: h.GetKey()})
		}
		if len(page.GetForgeHooks().GetHooks()) == 0 {
			return all, true, nil
		}
	}
}

// read converts the fields that do not require parsing the configuration.
func read(s *sourcesv1.Source) core.Source {
	return core.Source{ID: s.GetId(), Organization: s.GetOrganizationId(), Ref: s.GetSourceRef(), Config: json.RawMessage(s.GetSourceConfig())}
}

// Answers answers the domain's requests about sources.
type Answers interface {
	// States returns the states of an organization's sources, as far as known.
	States(ctx context.Context, organization int64, ids []int64) ([]core.SourceState, error)
	// Look polls a source now, and Try one that need not exist: the newest artifact, or the problem.
	Look(ctx context.Context, organization, id int64) (artifact, problem string, err error)
	Try(ctx context.Context, s core.Source) (artifact, problem string, err error)
	// Senders returns the hooks and tokens that an organization may see.
	Senders(ctx context.Context, organization int64) ([]*sourcesv1.Sender, error)
	// ForgeHook returns the path and the secret of a hook of an organization for statuses of commits.
	ForgeHook(ctx context.Context, organization int64, key, forge string) (path, secret string, err error)
	// ForgeRefusals returns what was left out of the deliveries to such hooks of an organization.
	ForgeRefusals(ctx context.Context, organization int64, keys []string) ([]*sourcesv1.ForgeRefusals, error)
}

// maxStates bounds the sources in one request.
const maxStates = 1000

// maxForgeHooks bounds the hooks for statuses of commits in one request.
const maxForgeHooks = 100

// Answerer answers requests over the bus.
type Answerer interface {
	Answer(ctx context.Context, subject string, fn func(ctx context.Context, request []byte) ([]byte, error)) error
}

// Serve answers the domain's requests until ctx ends. It returns as soon as it can receive them.
func Serve(ctx context.Context, conn Answerer, a Answers) error {
	err := conn.Answer(ctx, bus.SourcesStates, func(ctx context.Context, raw []byte) ([]byte, error) {
		var request sourcesv1.StatesRequest
		if err := decode(raw, &request); err != nil {
			return nil, err
		}
		empty := len(request.GetIds()) == 0 && !request.GetSenders() && request.GetForgeHook() == nil && len(request.GetForgeHookKeys()) == 0
		if n := len(request.GetIds()); request.GetOrganizationId() <= 0 || empty || n > maxStates {
			return nil, fault.New(fault.Invalid, "found organization %d and %d ids; expected one, and 1 to %d",
				request.GetOrganizationId(), n, maxStates)
		}
		if n := len(request.GetForgeHookKeys()); n > maxForgeHooks {
			return nil, fault.New(fault.Invalid, "found %d hooks of forges; expected at most %d", n, maxForgeHooks)
		}
		states, err := a.States(ctx, request.GetOrganizationId(), request.GetIds())
		if err != nil {
			return nil, err
		}
		answer := &sourcesv1.StatesResponse{}
		if request.GetSenders() {
			if answer.Senders, err = a.Senders(ctx, request.GetOrganizationId()); err != nil {
				return nil, err
			}
		}
		if keys := request.GetForgeHookKeys(); len(keys) > 0 {
			if answer.ForgeRefusals, err = a.ForgeRefusals(ctx, request.GetOrganizationId(), keys); err != nil {
				return nil, err
			}
		}
		if h := request.GetForgeHook(); h != nil {
			path, secret, err := a.ForgeHook(ctx, request.GetOrganizationId(), h.GetKey(), h.GetForge())
			if err != nil {
				return nil, err
			}
			answer.ForgeHook = &sourcesv1.ForgeHook{Key: h.GetKey(), Forge: h.GetForge(), Path: path, Secret: secret}
		}
		for _, s := range states {
			answer.States = append(answer.States, &sourcesv1.State{
				Id: s.ID, Polled: s.Polled, LookedAt: stamp(s.Looked), NextAt: stamp(s.Next), Failures: int32(s.Failures), LastError: s.LastError,
				LastArtifact: s.LastArtifact, LastArtifactAt: stamp(s.LastArtifactAt),
			})
		}
		return proto.Marshal(answer)
	})
	if err != nil {
		return err
	}
	return conn.Answer(ctx, bus.SourcesLook, func(ctx context.Context, raw []byte) ([]byte, error) {
		var request sourcesv1.LookRequest
		if err := decode(raw, &request); err != nil {
			return nil, err
		}
		var (
			answer sourcesv1.LookResponse
			err    error
		)
		if s := request.GetSource(); s != nil {
			tried := read(s)
			tried.Organization = request.GetOrganizationId()
			answer.Artifact, answer.Problem, err = a.Try(ctx, tried)
		} else {
			answer.Artifact, answer.Problem, err = a.Look(ctx, request.GetOrganizationId(), request.GetId())
		}
		if err != nil {
			return nil, err
		}
		return proto.Marshal(&answer)
	})
}

// Proves answers the domain's requests about where images come from.
type Proves interface {
	// Prove returns what verified evidence states about an image, and what it claims if that is requested; off reports whether no signer is
	// configured for the organization.
	Prove(
		ctx context.Context, organization int64, image, digest string, claims bool,
	) (report provenance.Report, off bool, err error)
}

// ServeProvenance answers the domain's requests about where images come from, until ctx ends. It returns as soon as it can receive them.
func ServeProvenance(ctx context.Context, conn Answerer, p Proves) error {
	return conn.Answer(ctx, bus.SourcesProve, func(ctx context.Context, raw []byte) ([]byte, error) {
		var request sourcesv1.ProveRequest
		if err := decode(raw, &request); err != nil {
			return nil, err
		}
		if request.GetOrganizationId() <= 0 || request.GetImage() == "" || request.GetDigest() == "" {
			return nil, fault.New(fault.Invalid, "found organization %d, image %.200q and digest %.100q; expected all of them",
				request.GetOrganizationId(), request.GetImage(), request.GetDigest())
		}
		report, off, err := p.Prove(ctx, request.GetOrganizationId(), request.GetImage(), request.GetDigest(), request.GetClaims())
		if err != nil {
			return nil, err
		}
		answer := &sourcesv1.ProveResponse{Off: off}
		if !off {
			if answer.Report, err = report.Encode(); err != nil {
				return nil, err
			}
		}
		return proto.Marshal(answer)
	})
}

func decode(raw []byte, into proto.Message) error {
	if err := proto.Unmarshal(raw, into); err != nil {
		return fault.Because(err, fault.Invalid, "not a %s", into.ProtoReflect().Descriptor().Name())
	}
	return nil
}

func stamp(at *time.Time) *timestamppb.Timestamp {
	if at == nil {
		return nil
	}
	return timestamppb.New(*at)
}
