package cluster

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

const (
	// startingUp is how long a refusal of a starting API server is retried.
	startingUp = 5 * time.Second
	// startingLook is the interval of these retries.
	startingLook = 250 * time.Millisecond
	// kindPause is how long to wait before asking again for a kind that the cluster does not serve.
	kindPause = 30 * time.Second
)

// ask makes a request. An API server that is just starting forbids everything until it has loaded its access rules, so a refusal is
// believed only when the server repeats it while it reports that it is ready.
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

// ready reports whether the API server says that it is ready. One without such a page is assumed to be.
func (c *Cluster) ready(ctx context.Context) bool {
	err := c.raw.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
	return err == nil || apierrors.IsNotFound(err)
}
