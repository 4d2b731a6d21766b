package domain

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// removed is the event of a deletion of registry.test/shop/api: of a tag, a digest (0 for none), or a tag of a digest.
func (f *fixture) removed(image, tag string, digest, minute int) event.Event {
	f.t.Helper()
	at := time.Unix(1_600_000_000, 0).UTC().Add(time.Duration(minute) * time.Minute)
	data := event.ArtifactDeleted{Image: image, Tag: tag, DeletedAt: at.Format(time.RFC3339)}
	if digest != 0 {
		data.Digest = digestOf(digest)
	}
	e, err := event.New(event.Header{
		ID:     fmt.Sprintf("deleted %s %s %d %d", image, tag, digest, minute),
		Source: "/services/registry", Time: at,
	}, data)
	f.ok(err)
	return e
}

// deletionsAmong are those of some versions that say that they were deleted, as digest@minute.
func (f *fixture) deletionsAmong(ids []int64) []string {
	f.t.Helper()
	versions, err := f.view.VersionsByID(f.t.Context(), org, ids)
	f.ok(err)
	deleted, err := f.view.DeletedVersions(f.t.Context(), org, ids)
	f.ok(err)
	all := []string{}
	for id, at := range deleted {
		var digest int
		_, err := fmt.Sscanf(versions[id].Digest, "sha256:%d", &digest)
		f.ok(err)
		all = append(all, fmt.Sprintf("%d@%d", digest, int(at.Sub(time.Unix(1_600_000_000, 0)).Minutes())))
	}
	slices.Sort(all)
	return all
}

// TestADeletedArtifactIsMarkedOnItsVersion: versions, sets and what is newest stay.
func TestADeletedArtifactIsMarkedOnItsVersion(t *testing.T) {
	t.Parallel()
	const image = "registry.test/shop/api"
	type step struct {
		push           *push
		tag            string
		digest, minute int
		deleted        []string
	}
	gone := func(tag string, digest, minute int, deleted ...string) step {
		return step{tag: tag, digest: digest, minute: minute, deleted: deleted}
	}
	there := func(p push, deleted ...string) step { return step{push: &p, deleted: deleted} }
	tests := []struct {
		name  string
		steps []step
	}{
		{"an image", []step{there(push{tag: "1.0.0", digest: 1, minute: 1}), gone("", 1, 5, "1@5")}},
		{"an image with all its tags", []step{
			there(push{tag: "1.0.0", digest: 1, minute: 1}), there(push{tag: "stable", digest: 1, minute: 2}), gone("", 1, 5, "1@5"),
		}},
		{"a tag of several", []step{
			there(push{tag: "1.0.0", digest: 1, minute: 1}), there(push{tag: "stable", digest: 1, minute: 2}), gone("1.0.0", 0, 5),
			gone("stable", 0, 6, "1@6"),
		}},
		{"a tag that names another digest by now", []step{
			there(push{tag: "1.0.0", digest: 1, minute: 1}), there(push{tag: "stable", digest: 1, minute: 1}),
			there(push{tag: "stable", digest: 2, minute: 2}),
			gone("1.0.0", 0, 5, "1@5"), gone("stable", 1, 6, "1@6"), gone("stable", 2, 7, "1@6", "2@7"),
		}},
		{"a tag that has moved says nothing about what it named before", []step{
			there(push{tag: "stable", digest: 1, minute: 1}), there(push{tag: "stable", digest: 2, minute: 2}), gone("stable", 0, 5, "2@5"),
			gone("", 1, 6, "1@6", "2@5"),
		}},
		{"published again", []step{
			there(push{tag: "1.0.0", digest: 1, minute: 1}), gone("1.0.0", 0, 5, "1@5"), there(push{tag: "1.0.0", digest: 1, minute: 6}),
			gone("1.0.0", 0, 5), gone("1.0.0", 1, 7, "1@7"),
		}},
		{"another image under the deleted tag", []step{
			there(push{tag: "1.0.0", digest: 1, minute: 1}), gone("1.0.0", 0, 5, "1@5"), there(push{tag: "1.0.0", digest: 2, minute: 6}, "1@5"),
			gone("", 1, 4, "1@5"),
			gone("", 1, 8, "1@8"),
		}},
		{"an image that is back under another tag", []step{
			there(push{tag: "1.0.0", digest: 1, minute: 1}), gone("", 1, 5, "1@5"), there(push{tag: "1.0.1", digest: 1, minute: 6}),
		}},
		{"seen at the registry after the deletion was reported", []step{
			there(push{tag: "1.0.0", digest: 1, minute: 1}), gone("1.0.0", 0, 5, "1@5"), there(push{"1.0.0", 1, 2, 9, truth(true)}),
		}},
		{"the deletion arrives first", []step{
			gone("1.0.0", 0, 5), gone("", 2, 6), gone("x", 3, 6), there(push{tag: "1.0.0", digest: 1, minute: 1}, "1@5"),
			there(push{tag: "y", digest: 2, minute: 6}, "1@5", "2@6"),
			there(push{tag: "x", digest: 3, minute: 2}, "1@5", "2@6", "3@6"), there(push{tag: "1.0.0", digest: 4, minute: 7}, "1@5", "2@6", "3@6"),
		}},
		{"of something that never was a version", []step{there(push{tag: "1.0.0", digest: 1, minute: 1}), gone("", 9, 5), gone("other", 0, 5)}},
		{"without a tag", []step{there(push{digest: 1, minute: 1}), gone("latest", 0, 4), gone("", 1, 5, "1@5")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			a := f.selecting("shop", `{"image":"registry.test/shop/api","selection":"any"}`)
			for i, s := range tt.steps {
				var e event.Event
				newest := f.newestOf(a)
				if s.push != nil {
					e = f.pushed(image, *s.push)
				} else {
					e = f.removed(image, s.tag, s.digest, s.minute)
				}
				f.publish(e)
				if i > 0 && s.push == nil && f.newestOf(a) != newest {
					t.Errorf("the newest set after deletion %d is %s, want that of before, %s", i, f.newestOf(a), newest)
				}
				f.publish(e) // it may come twice
				want := append([]string{}, s.deleted...)
				slices.Sort(want)
				if diff := cmp.Diff(want, f.deletionsOf(a)); diff != "" {
					t.Fatalf("deleted after step %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// TestDeletionsDoNotDependOnTheOrderOfArrival: any publications and deletions, in any order, in batches of any size, lead to the same
// marks.
func TestDeletionsDoNotDependOnTheOrderOfArrival(t *testing.T) {
	long(t)
	t.Parallel()
	f := newFixture(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		type one struct {
			deletion       bool
			tag            string
			digest, minute int
		}
		var all []one
		for i := range rapid.IntRange(1, 7).Draw(r, "events") {
			o := one{deletion: rapid.Bool().Draw(r, "deletion"), digest: rapid.IntRange(1, 3).Draw(r, "digest"), minute: i}
			o.tag = rapid.SampledFrom([]string{"", "a", "b"}).Draw(r, "tag")
			if o.deletion && o.tag != "" && rapid.Bool().Draw(r, "whatever it named") {
				o.digest = 0
			}
			all = append(all, o)
		}
		var first []string
		for range 2 {
			n++
			image := fmt.Sprintf("registry.test/shop%d/api", n)
			a := f.selecting(fmt.Sprintf("shop%d", n), fmt.Sprintf(`{"image":%q,"selection":"any"}`, image))
			order := rapid.Permutation(all).Draw(r, "order")
			var batch []event.Event
			for _, o := range order {
				if o.deletion {
					batch = append(batch, f.removed(image, o.tag, o.digest, o.minute))
				} else {
					batch = append(batch, f.pushed(image, push{tag: o.tag, digest: o.digest, minute: o.minute}))
				}
				if rapid.Bool().Draw(r, "deliver") {
					f.together(batch)
					batch = nil
				}
			}
			f.together(batch)
			got := f.deletionsOf(a)
			if first == nil {
				first = got
			} else if diff := cmp.Diff(first, got); diff != "" {
				r.Fatalf("%+v in the order %+v (-first +now):\n%s", all, order, diff)
			}
		}
	})
}

// together delivers events of the registry service as one batch.
func (f *fixture) together(all []event.Event) {
	f.t.Helper()
	deliveries := make([]bus.Delivery, len(all))
	for i, e := range all {
		deliveries[i] = bus.Delivery{Event: e, Attempt: 1}
	}
	for _, err := range f.on.Registry(f.t.Context(), deliveries) {
		f.ok(err)
	}
}

// deletionsOf are the versions of an application's only source that say that they were deleted, as digest@minute.
func (f *fixture) deletionsOf(a core.Application) []string {
	f.t.Helper()
	rows, err := f.pool.Query(f.t.Context(), `SELECT v.id FROM cd_versions v JOIN cd_artifact_sources s ON s.id = v.artifact_source_id
		JOIN cd_services o ON o.id = s.service_id WHERE o.application_id = $1`, a.ID)
	f.ok(err)
	var ids []int64
	for rows.Next() {
		var id int64
		f.ok(rows.Scan(&id))
		ids = append(ids, id)
	}
	f.ok(rows.Err())
	return f.deletionsAmong(ids)
}
