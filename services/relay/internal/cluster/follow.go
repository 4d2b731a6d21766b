package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

var _ core.Follower = (*Cluster)(nil)

// Follow runs an informer: one list and one watch, which it restarts when the API server ends it, has restarted, or has forgotten the
// resource version (410). A missing kind or missing rights are reported and retried: an administrator may install or grant them.
func (c *Cluster) Follow(ctx context.Context, s core.Selection, report func(core.Change)) {
	ref := core.Ref{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name}
	client := c.awaitKind(ctx, ref, report)
	if client == nil {
		return // ctx has ended
	}
	informer := cache.NewSharedIndexInformer(listWatch(client, s, report), &unstructured.Unstructured{}, 0, nil)
	_ = informer.SetTransform(withoutBallast)
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		report(core.Change{Err: classify(err, "watch", ref)})
	})
	on := func(object any, gone bool) {
		// A missed deletion is delivered as a tombstone with the last known state.
		if tombstone, missed := object.(cache.DeletedFinalStateUnknown); missed {
			object = tombstone.Obj
		}
		u, isObject := object.(*unstructured.Unstructured)
		if !isObject || (s.Name != "" && u.GetName() != s.Name) {
			return // servers that ignore the field selector send every object of the kind
		}
		change := core.Change{Name: u.GetName(), Object: u.Object}
		if gone {
			change.Object = nil
		}
		report(change)
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { on(o, false) },
		UpdateFunc: func(_, o any) { on(o, false) },
		DeleteFunc: func(o any) { on(o, true) },
	})
	if err != nil {
		return // only an informer that has ended accepts no handler
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			report(core.Change{})
		}
	}()
	informer.RunWithContext(ctx)
	<-done
}

// awaitKind returns the client for a kind, and retries until the cluster serves it.
func (c *Cluster) awaitKind(ctx context.Context, ref core.Ref, report func(core.Change)) dynamic.ResourceInterface {
	for {
		asking, cancel := context.WithTimeout(ctx, c.timeout)
		client, err := c.client(asking, ref)
		cancel()
		if err == nil {
			return client
		}
		report(core.Change{Err: err})
		if clock.Sleep(ctx, c.clock, kindPause) != nil {
			return nil
		}
	}
}

// listWatch lists and watches the selection only. An accepted watch reports that following works again after an error.
func listWatch(client dynamic.ResourceInterface, s core.Selection, report func(core.Change)) cache.ListerWatcher {
	narrow := func(o *metav1.ListOptions) {
		o.LabelSelector = s.Labels
		if s.Name != "" {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", s.Name).String()
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			narrow(&o)
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			narrow(&o)
			w, err := client.Watch(ctx, o)
			if err == nil {
				report(core.Change{Reached: true})
			}
			return w, err //nolint:wrapcheck // the informer inspects it
		},
	}
}

// withoutBallast removes large fields that no watch needs before the object is kept in memory.
func withoutBallast(object any) (any, error) {
	if u, isObject := object.(*unstructured.Unstructured); isObject {
		u.SetManagedFields(nil)
	}
	return object, nil
}
