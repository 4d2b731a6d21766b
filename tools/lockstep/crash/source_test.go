package crash

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
)

// The domain's sources reach the registry service by event and, when that was away, by its pull at the start; what it finds
// there becomes versions, and looks on demand are answered (E62, R7). Nobody tells of these images while they are sources:
// they were pushed before.
func TestSourcesReachTheRegistryService(t *testing.T) {
	t.Parallel()
	ctx, w := start(t, oneStage())
	if err := w.CreateApplication(ctx); err != nil {
		t.Fatal(err)
	}
	oci := w.stack.Endpoints().OCI
	config := func(repository string) []byte {
		return fmt.Appendf(nil, `{"image":%q,"selection":"semver","range":">=1","poll":true,"poll_interval_seconds":86400}`, oci+"/"+repository)
	}
	digests := map[string]string{}
	for _, repository := range []string{"other/web", "other/worker"} {
		digest, err := demo.PushImage(ctx, oci, repository, "1.0.0", nil)
		if err != nil {
			t.Fatal(err)
		}
		digests[repository] = digest
	}
	found := func(repository, tag, digest string) string { return oci + "/" + repository + ":" + tag + "@" + digest }

	err := w.Await(ctx, "a try of a source to be answered", func() (string, bool, error) {
		sight, err := w.API.TrySource(ctx, source.OCIImage, config("other/web"))
		return fmt.Sprintf("%+v, %v", sight, err), sight.Artifact == found("other/web", "1.0.0", digests["other/web"]), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := w.API.Sources(ctx, w.Scenario.Application)
	if err != nil || len(all) == 0 {
		t.Fatalf("sources %v, %v", all, err)
	}
	service := all[0].Service.ID
	state := func(id string) (client.SourceState, error) {
		all, err := w.API.Sources(ctx, w.Scenario.Application)
		i := slices.IndexFunc(all, func(s client.Source) bool { return s.ID == id })
		if err != nil || i < 0 || all[i].State == nil {
			return client.SourceState{}, err
		}
		return *all[i].State, nil
	}
	awaitArtifact := func(id, artifact string) {
		t.Helper()
		err := w.Await(ctx, "the source to have "+artifact, func() (string, bool, error) {
			s, err := state(id)
			return fmt.Sprintf("%+v, %v", s, err), s.LastArtifact == artifact && s.LookedAt != nil && s.NextLookAt != nil && s.Polled, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	web, err := w.API.CreateSource(ctx, service, source.OCIImage, config("other/web"))
	if err != nil {
		t.Fatal(err)
	}
	awaitArtifact(web.ID, found("other/web", "1.0.0", digests["other/web"]))

	// The hint of this one finds nobody.
	starts, err := w.stack.Kill("registry")
	if err != nil {
		t.Fatal(err)
	}
	worker, err := w.API.CreateSource(ctx, service, source.OCIImage, config("other/worker"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.stack.AwaitRestart(ctx, "registry", starts); err != nil {
		t.Fatal(err)
	}
	awaitArtifact(worker.ID, found("other/worker", "1.0.0", digests["other/worker"]))

	newer, err := demo.PushImage(ctx, oci, "other/web", "1.1.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	err = w.Await(ctx, "a look at the source to find the newer", func() (string, bool, error) {
		sight, err := w.API.LookAtSource(ctx, web.ID)
		return fmt.Sprintf("%+v, %v", sight, err), sight.Artifact == found("other/web", "1.1.0", newer), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	awaitArtifact(web.ID, found("other/web", "1.1.0", newer))

	// With a version of the services' own images, every source has one, and they become a set.
	want := []string{newer, digests["other/worker"]}
	for _, name := range w.Scenario.Services {
		digest, err := demo.PushImage(ctx, oci, w.Scenario.Application+"/"+name, "1.0.0", nil)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, digest)
	}
	slices.Sort(want)
	err = w.Await(ctx, "a version set of all sources", func() (string, bool, error) {
		sets, err := w.API.VersionSets(ctx, w.Scenario.Application, 10)
		return fmt.Sprintf("%+v, %v", sets, err), slices.ContainsFunc(sets, func(set client.VersionSet) bool {
			var versions []string
			for _, e := range set.Entries {
				versions = append(versions, e.Version.Digest)
			}
			slices.Sort(versions)
			return slices.Equal(versions, want)
		}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
