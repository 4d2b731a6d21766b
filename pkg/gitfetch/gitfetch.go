// Package gitfetch fetches commits of a repository over Git's protocol into memory: the negotiation of wants and the transfer of a pack,
// over a session that the caller has opened. Callers classify its errors, and decide what to do with the objects. It writes nothing to
// disk and has no checkout.
package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
)

// Want is what to get.
type Want struct {
	// Commits are got with their trees and files, and with the commits before them.
	Commits []plumbing.Hash
	// Depth is how many commits in a row are got at most; 0 is all. A server that cannot leave any out sends all.
	Depth int
	// TreesAlone leaves the contents of files out, where the server can.
	TreesAlone bool
}

// ErrInterrupted is that the pack did not come to its end, or was none; beside it is why.
var ErrInterrupted = errors.New("the pack did not come to its end")

// Into gets what is wanted into a store. refs are those that the session has told of. An error is what the session says as it is,
// so that it can be classed, or wraps ErrInterrupted.
func Into(ctx context.Context, session transport.UploadPackSession, refs *packp.AdvRefs, objects storer.Storer, w Want) error {
	req, err := request(refs, w)
	if err != nil {
		return err
	}
	res, err := session.UploadPack(ctx, req)
	if err != nil {
		return err // the caller classes it by what the transport has made of it
	}
	defer res.Close() //nolint:errcheck // everything of interest has been read
	// The server puts progress messages between the parts of the pack, if it can; they are dropped.
	var pack io.Reader = res
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		pack = sideband.NewDemuxer(sideband.Sideband64k, res)
	case req.Capabilities.Supports(capability.Sideband):
		pack = sideband.NewDemuxer(sideband.Sideband, res)
	}
	if err := packfile.UpdateObjectStorage(objects, pack); err != nil {
		return fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	return nil
}

// request asks for no more than the server can leave out.
func request(refs *packp.AdvRefs, w Want) (*packp.UploadPackRequest, error) {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	req.Wants = w.Commits
	if w.Depth > 0 && refs.Capabilities.Supports(capability.Shallow) {
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return nil, fmt.Errorf("ask for %d commits: %w", w.Depth, err)
		}
		req.Depth = packp.DepthCommits(w.Depth)
	}
	if w.TreesAlone && refs.Capabilities.Supports(capability.Filter) {
		if err := req.Capabilities.Set(capability.Filter); err != nil {
			return nil, fmt.Errorf("ask for trees alone: %w", err)
		}
		req.Filter = packp.FilterBlobNone()
	}
	return req, nil
}
