package events

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	sourcesv1 "github.com/lockstep-cd/lockstep/proto/lockstep/sources/v1"
)

// PullCredentials fetches the credentials of all organizations for registries from the domain, by their numbers there. It reports false if
// the domain is an older release, which has none.
func PullCredentials(ctx context.Context, domain Asker) (all map[int64]book.Credential, known bool, err error) {
	all = map[int64]book.Credential{}
	for after := int64(0); ; {
		request, err := proto.Marshal(&sourcesv1.PullRequest{After: after, Limit: pageOfSources, Credentials: true})
		if err != nil {
			return nil, false, fmt.Errorf("encode a pull of credentials: %w", err)
		}
		raw, err := domain.Ask(ctx, bus.SourcesPull, request)
		if err != nil {
			return nil, false, fmt.Errorf("pull credentials after %d: %w", after, err)
		}
		var page sourcesv1.PullResponse
		if err := proto.Unmarshal(raw, &page); err != nil {
			return nil, false, fmt.Errorf("read the credentials after %d: %w", after, err)
		}
		if page.GetCredentials() == nil {
			return nil, false, nil
		}
		for _, c := range page.GetCredentials().GetCredentials() {
			if c.GetId() <= after {
				return nil, false, fmt.Errorf("pull credentials after %d: found id %d; expected a higher one", after, c.GetId())
			}
			after = c.GetId()
			if all[c.GetId()], err = readCredential(c); err != nil {
				return nil, false, err
			}
		}
		if len(page.GetCredentials().GetCredentials()) == 0 {
			return all, true, nil
		}
	}
}

func readCredential(c *sourcesv1.Credential) (book.Credential, error) {
	var proof sealing.Proof
	if c.GetProof() != "" {
		if err := json.Unmarshal([]byte(c.GetProof()), &proof); err != nil {
			return book.Credential{}, fmt.Errorf("read the proof of credential %d: %w", c.GetId(), err)
		}
	}
	return book.Credential{
		Terms: sealing.Terms{
			Organization: c.GetOrganizationId(), Name: c.GetName(), Version: int(c.GetVersion()), Kind: sealing.Registry,
			URLPrefixes: c.GetUrlPrefixes(), Username: c.GetUsername(), Proof: proof,
		},
		Reference: c.GetReference(), Sealed: c.GetSealed(), Revoked: c.GetRevoked(),
	}, nil
}
