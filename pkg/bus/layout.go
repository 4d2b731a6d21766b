package bus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Layout is how the streams are laid out over the servers of a cluster: what a service that makes streams configures, in its Config. The
// zero value works everywhere.
//
// Streams may be changed beside it. What an operator has made larger or placed elsewhere stays: more replicas, more bytes or a longer age
// than a service needs, compression, a cluster, tags where none are configured here.
type Layout struct {
	// NATSReplicas is on how many servers of a NATS cluster each stream is stored, with its consumers: 1, 3 or 5. 0 is 3 where the
	// server belongs to a cluster of at least three, and 1 elsewhere. A stream that has more keeps them; one that has fewer gets more as
	// soon as the cluster has room. A stream with one replica stands still for as long as its server is down.
	NATSReplicas int `koanf:"nats_replicas"`
	// NATSPlacementTags are tags that servers must have to store the streams, such as "region:eu". Empty leaves each stream where it is, a
	// new one to the cluster.
	NATSPlacementTags []string `koanf:"nats_placement_tags"`
	// NATSMirrorTags are tags of servers, in another region for example, that keep a read-only copy of each event stream under the name
	// <stream>_MIRROR; empty for none. CLUSTER_CALLS, a work queue, has none. Without these tags existing mirrors are left alone.
	NATSMirrorTags []string `koanf:"nats_mirror_tags"`
}

// Check returns what is wrong with the settings, by key.
func (l Layout) Check() []fault.Field {
	var problems []fault.Field
	if l.NATSReplicas != 0 && !slices.Contains([]int{1, 3, 5}, l.NATSReplicas) {
		problems = append(problems, fault.Field{
			Name: "nats_replicas", Problem: fmt.Sprintf("found %d, expected 1, 3 or 5, or 0 for as many as the cluster has room for, up to 3", l.NATSReplicas),
		})
	}
	for name, tags := range map[string][]string{"nats_placement_tags": l.NATSPlacementTags, "nats_mirror_tags": l.NATSMirrorTags} {
		if slices.Contains(tags, "") {
			problems = append(problems, fault.Field{Name: name, Problem: "found an empty tag, expected such as region:eu"})
		}
	}
	return problems
}

const (
	// automaticReplicas is how many a stream has in a cluster of at least as many servers.
	automaticReplicas = 3
	// raiseEvery bounds how often a stream that could have more replicas is given them.
	raiseEvery = time.Minute
	// roomTries and roomAgain are how often, and how soon, a new stream is tried to be given all of its replicas.
	roomTries, roomAgain = 4, time.Second
	// mirrorSuffix is what the name of a mirror has behind that of its stream.
	mirrorSuffix = "_MIRROR"
)

// replicas is how many a stream is to have, at least. fixed is set if fewer will not do.
func (c *Conn) replicas(s Stream) (n int, fixed bool) {
	switch {
	case s.Replicas > 0:
		return s.Replicas, true
	case c.layout.NATSReplicas > 0:
		return c.layout.NATSReplicas, true
	case c.nc.ConnectedClusterName() != "":
		return automaticReplicas, false
	default:
		return 1, false
	}
}

// makeStream makes a stream, or changes it to what s says and leaves what an operator has changed (Layout).
func (c *Conn) makeStream(ctx context.Context, s Stream) error {
	n, fixed := c.replicas(s)
	want := s.config(n, c.layout.NATSPlacementTags)
	found, err := c.findStream(ctx, s.Name)
	if fault.Is(err, fault.NotFound) {
		err = c.createStream(ctx, want)
		for tries := 1; noRoom(err) && want.Replicas > 1 && tries < roomTries && clock.Sleep(ctx, c.clock, roomAgain) == nil; tries++ {
			err = c.createStream(ctx, want) // servers of a cluster that has just started know each other after a moment
		}
		if noRoom(err) && !fixed {
			c.log.InfoContext(ctx, "the cluster has no room for more replicas of a stream", telemetry.KeyStream, s.Name, telemetry.KeyError, err)
			want.Replicas = 1
			err = c.createStream(ctx, want)
		}
		if noRoom(err) {
			return fault.Because(err, fault.Unavailable,
				"found no room for %d replicas of stream %s, expected a NATS cluster with as many servers, with the tags of nats_placement_tags", want.Replicas, s.Name)
		}
		return err
	}
	if err != nil {
		return err
	}
	have := found.CachedInfo().Config
	merged := merge(have, want)
	if reflect.DeepEqual(merged, have) {
		return nil
	}
	err = c.updateStream(ctx, merged)
	if err != nil && merged.Replicas > have.Replicas { // more when there is room for them, see raise
		c.log.InfoContext(ctx, "a stream gets more replicas later", telemetry.KeyStream, s.Name, telemetry.KeyError, err)
		merged.Replicas = have.Replicas
		if reflect.DeepEqual(merged, have) {
			return nil
		}
		err = c.updateStream(ctx, merged)
	}
	return err
}

// merge is what the stream becomes that is as have and is wanted as want: it never gets less of anything.
func merge(have, want jetstream.StreamConfig) jetstream.StreamConfig {
	merged := have
	if have.Mirror == nil { // a mirror has the subjects of its origin, and cannot be published to
		merged.Subjects = want.Subjects
	}
	merged.Retention, merged.Discard = want.Retention, want.Discard
	merged.MaxBytes, merged.MaxMsgs = larger(have.MaxBytes, want.MaxBytes), larger(have.MaxMsgs, want.MaxMsgs)
	merged.MaxMsgSize = larger(have.MaxMsgSize, want.MaxMsgSize)
	merged.MaxAge = larger(have.MaxAge, want.MaxAge)
	merged.Duplicates = max(have.Duplicates, want.Duplicates)
	merged.Replicas = max(have.Replicas, want.Replicas)
	merged.AllowAtomicPublish = want.AllowAtomicPublish && have.Mirror == nil
	if want.Placement != nil {
		placement := *want.Placement
		if have.Placement != nil {
			placement.Cluster = have.Placement.Cluster
		}
		merged.Placement = &placement
	}
	return merged
}

// larger is the larger one of two limits, of which 0 and less are none.
func larger[T int32 | int64 | time.Duration](have, want T) T {
	if have <= 0 || want <= 0 {
		return min(have, want)
	}
	return max(have, want)
}

// The server's numbers of what is no fault of a request: it would be granted in a larger cluster, or in this one later.
const (
	codeNoPeers      jetstream.ErrorCode = 10005
	codeInsufficient jetstream.ErrorCode = 10023
	codeNoCluster    jetstream.ErrorCode = 10074
)

// noRoom reports whether the server refuses to store a stream so often, for want of servers or of room on them.
func noRoom(err error) bool {
	var refusal *jetstream.APIError
	return errors.As(err, &refusal) &&
		slices.Contains([]jetstream.ErrorCode{codeNoPeers, codeInsufficient, codeNoCluster}, refusal.ErrorCode)
}

// raise gives a stream the replicas that it could not get when it was made, as soon as it can. It is no trouble when it cannot: all that
// is stored stays where it is.
func (c *Conn) raise(ctx context.Context, s Stream, found jetstream.Stream) {
	have := found.CachedInfo().Config
	n, _ := c.replicas(s)
	if n <= have.Replicas || !c.keeper.mayRaise(s.Name, c.clock.Now()) {
		return
	}
	have.Replicas = n
	if err := c.updateStream(ctx, have); err != nil {
		c.log.InfoContext(ctx, "a stream gets more replicas later", telemetry.KeyStream, s.Name, telemetry.KeyError, err)
		return
	}
	c.log.InfoContext(ctx, "a stream has more replicas now", telemetry.KeyStream, s.Name, "replicas", n)
}

// mirror makes the mirror of a stream if it is wanted and missing. It is no trouble when it cannot be made: nothing of Lockstep reads it.
func (c *Conn) mirror(ctx context.Context, s Stream) {
	if len(c.layout.NATSMirrorTags) == 0 || s.WorkQueue || !mayMakeStream(c.user, s.Name+mirrorSuffix) {
		return
	}
	name := s.Name + mirrorSuffix
	if _, err := c.findStream(ctx, name); !fault.Is(err, fault.NotFound) {
		return
	}
	want := s.config(1, c.layout.NATSMirrorTags)
	want.Name, want.Subjects, want.AllowAtomicPublish, want.Duplicates = name, nil, false, 0
	want.Mirror = &jetstream.StreamSource{Name: s.Name}
	if err := c.createStream(ctx, want); err != nil {
		c.log.WarnContext(ctx, "mirror of a stream not made", telemetry.KeyStream, name, telemetry.KeyError, err)
	}
}

func (c *Conn) findStream(ctx context.Context, name string) (found jetstream.Stream, err error) {
	err = c.look(ctx, name, func(ctx context.Context) (err error) {
		found, err = c.js.Stream(ctx, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.takes.learn(found)
	return found, nil
}

// createStream makes a stream. One that another process has made in the same moment in another way is as good.
func (c *Conn) createStream(ctx context.Context, want jetstream.StreamConfig) error {
	return c.api(ctx, want.Name, func(ctx context.Context) error {
		made, err := c.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			made, err = c.js.Stream(ctx, want.Name)
		}
		if err == nil {
			c.takes.learn(made)
		}
		return err
	})
}

func (c *Conn) updateStream(ctx context.Context, want jetstream.StreamConfig) error {
	return c.api(ctx, want.Name, func(ctx context.Context) error {
		made, err := c.js.UpdateStream(ctx, want)
		if err == nil {
			c.takes.learn(made)
		}
		return err
	})
}
