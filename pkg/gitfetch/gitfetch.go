// Package gitfetch fetches parts of a repository over Git's protocol, over a session that the caller has opened, within memory that all fetches of
// the process share.
//
// What a server sends is kept as it came, compressed: in memory if that is little, else in a temporary file that has no name any more. Objects are
// decompressed one by one when somebody asks for them, and every size is looked at before anything of that size is made. So a repository that is
// huge, or made to look small, is refused or costs time, and never the memory of others.
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

// Want is what to get.
type Want struct {
	// Objects are commits, which are got with their trees and files and with the commits before them, tags, or files.
	Objects []plumbing.Hash
	// Depth is how many commits in a row are got at most; 0 is all. A server that cannot leave any out sends all.
	Depth int
	// TreesAlone leaves the contents of files out, where the server can.
	TreesAlone bool
}

// ErrInterrupted is that the pack did not come to its end, or was none; beside it is why.
var ErrInterrupted = errors.New("the pack did not come to its end")

// Fetch gets what is wanted into the store. refs are those that the session has told of; ctx is that of a share of the budget, and the session's
// requests go through a Transport. An error is what the session says as it is, so that it can be classed, or wraps ErrInterrupted.
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
		return err // the caller classes it by what the transport has made of it
	}
	defer res.Close() //nolint:errcheck // everything of interest has been read
	stream.pack.Store(true)
	// The server puts progress messages between the parts of the pack, if it can; they are dropped.
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

// CanFilter reports whether the server can leave files out of a fetch.
func CanFilter(refs *packp.AdvRefs) bool { return refs.Capabilities.Supports(capability.Filter) }

// CanFetchFiles reports whether the server can leave files out of a fetch and send one of them when it is asked for by name.
func CanFetchFiles(refs *packp.AdvRefs) bool {
	c := refs.Capabilities
	return CanFilter(refs) && c.Supports(capability.AllowReachableSHA1InWant) && c.Supports(capability.AllowTipSHA1InWant)
}

// request asks for no more than the server can leave out.
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
