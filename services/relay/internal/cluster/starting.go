package cluster

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

const (
	// startingUp is the longest that a refusal of a starting API server is doubted.
	startingUp = 5 * time.Second
	// startingLook is how often it is asked in the meantime.
	startingLook = 250 * time.Millisecond
	// kindPause is how long a kind that the cluster does not serve is not asked for.
	kindPause = 30 * time.Second
)

// ask makes a request. An API server that is just starting forbids everything until it has read who may do what, so that
// a refusal is believed only when one that says it is ready repeats it.
func (c *Cluster) ask(ctx context.Context, request func() error) error {
	err := request()
	for until := c.clock.Now().Add(startingUp); apierrors.IsForbidden(err) && c.clock.Now().Before(until); {
		ready := c.ready(ctx)
		err = request()
		if ready || !apierrors.IsForbidden(err) {
			return err
		}
		if clock.Sleep(ctx, c.clock, startingLook) != nil {
			return err
		}
	}
	return err
}

// ready reports whether the API server says that it is. One that knows no such page says nothing, and is taken for ready.
func (c *Cluster) ready(ctx context.Context) bool {
	err := c.raw.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
	return err == nil || apierrors.IsNotFound(err)
}
