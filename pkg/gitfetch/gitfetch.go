// Package gitfetch fetches parts of a repository over Git's protocol, over a session that the caller has opened, within a memory budget
// that all fetches of the process share.
//
// The received pack is stored compressed: in memory if it is small, else in a temporary file that is already unlinked. Objects are
// decompressed one by one when they are read, and every size is checked before memory of that size is allocated. So a repository that is
// huge, or made to look small, is refused or costs time, but never the memory of others.
//
// It has no checkout and writes to no repository. Callers classify its errors, and decide what to do with the objects.
package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Want is what to fetch.
type Want struct {
	// Objects are commits, which are fetched with their trees and files and with earlier commits, or tags, or files.
	Objects []plumbing.Hash
	// Depth bounds how many commits in a row are fetched; 0 means all. A server that cannot leave any out sends all.
	Depth int
	// TreesAlone omits the contents of files, if the server supports it.
	TreesAlone bool
}

// ErrInterrupted means that the pack is incomplete or invalid; it is joined with the cause.
var ErrInterrupted = errors.New("the pack did not come to its end")

// Fetch fetches what is wanted into the store. refs are those that the session has advertised. ctx is that of a share of the budget, and
// the session's requests go through a Transport. An error is either the session's own, unchanged, so that the caller can classify it, or
// wraps ErrInterrupted.
func (s *Store) Fetch(ctx context.Context, session transport.UploadPackSession, refs *packp.AdvRefs, w Want) error {
	ctx, end := telemetry.StartChildSpan(ctx, "git fetch", telemetry.Client, telemetry.Count(telemetry.GitObjects, len(w.Objects)))
	err := s.fetch(ctx, session, refs, w)
	if err != nil {
		end("the fetch failed")
	} else {
		end("")
	}
	return err
}

func (s *Store) fetch(ctx context.Context, session transport.UploadPackSession, refs *packp.AdvRefs, w Want) error {
	req, err := request(refs, w)
	if err != nil {
		return err
	}
	ctx, stream := withStream(ctx)
	res, err := session.UploadPack(ctx, req)
	if err != nil {
		return err // the caller classifies it by what the transport has made of it
	}
	defer res.Close() //nolint:errcheck // everything relevant has been read
	stream.pack.Store(true)
	// The server may send progress messages between the parts of the pack; they are dropped.
	var from io.Reader = res
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		from = sideband.NewDemuxer(sideband.Sideband64k, res)
	case req.Capabilities.Supports(capability.Sideband):
		from = sideband.NewDemuxer(sideband.Sideband, res)
	}
	p, err := readPack(s.share, from)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	s.packs = append(s.packs, p)
	return nil
}

// CanFilter reports whether the server can omit files from a fetch.
func CanFilter(refs *packp.AdvRefs) bool { return refs.Capabilities.Supports(capability.Filter) }

// CanFetchFiles reports whether the server can omit files from a fetch and later send single ones by name.
func CanFetchFiles(refs *packp.AdvRefs) bool {
	c := refs.Capabilities
	return CanFilter(refs) && c.Supports(capability.AllowReachableSHA1InWant) && c.Supports(capability.AllowTipSHA1InWant)
}

// request asks the server to omit only what it can omit.
func request(refs *packp.AdvRefs, w Want) (*packp.UploadPackRequest, error) {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	req.Wants = w.Objects
	if w.Depth > 0 && refs.Capabilities.Supports(capability.Shallow) {
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return nil, fmt.Errorf("ask for %d commits: %w", w.Depth, err)
		}
		req.Depth = packp.DepthCommits(w.Depth)
	}
	if w.TreesAlone && CanFilter(refs) {
		if err := req.Capabilities.Set(capability.Filter); err != nil {
			return nil, fmt.Errorf("ask for trees alone: %w", err)
		}
		req.Filter = packp.FilterBlobNone()
	}
	return req, nil
}
