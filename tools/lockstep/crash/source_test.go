package crash

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
)

// The domain's sources reach the registry service by event and, when that was away, by its pull at the start; what it finds
// there becomes versions, and looks on demand are answered (E62, R7). No event reports these images while they are sources:
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

// One push that the registry notifies of, that a poll finds and that a CI job announces, twice, and again after a restart, is one
// version (E61).
func TestAPushReportedInEveryWayIsOneVersion(t *testing.T) {
	t.Parallel()
	ctx, w := start(t, oneStage())
	if err := w.CreateApplication(ctx); err != nil {
		t.Fatal(err)
	}
	all, err := w.API.Sources(ctx, w.Scenario.Application)
	if err != nil || len(all) == 0 {
		t.Fatalf("sources %v, %v", all, err)
	}
	image := w.stack.Endpoints().OCI + "/other/web"
	config := fmt.Appendf(nil, `{"image":%q,"selection":"semver","poll":true,"poll_interval_seconds":86400}`, image)
	web, err := w.API.CreateSource(ctx, all[0].Service.ID, source.OCIImage, config)
	if err != nil {
		t.Fatal(err)
	}
	announce := func(id, tag, digest string) {
		t.Helper()
		if status, text := w.announce(ctx, t, id, map[string]any{"image": image, "tag": tag, "digest": digest}); status != http.StatusAccepted {
			t.Fatalf("%s is announced: answered %d %s", tag, status, text)
		}
	}
	look := func(tag, digest string) {
		t.Helper()
		if err := w.Await(ctx, "a look to find "+tag, func() (string, bool, error) {
			sight, err := w.API.LookAtSource(ctx, web.ID)
			return fmt.Sprintf("%+v, %v", sight, err), sight.Artifact == image+":"+tag+"@"+digest, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	push := func(tag string) string {
		t.Helper()
		digest, err := demo.PushImage(ctx, w.stack.Endpoints().OCI, "other/web", tag, nil)
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	first := push("1.0.0")
	look("1.0.0", first)
	announce("1", "1.0.0", first)
	announce("1", "1.0.0", first)
	announce("2", "1.0.0", first)
	starts, err := w.stack.Kill("registry")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.stack.AwaitRestart(ctx, "registry", starts); err != nil {
		t.Fatal(err)
	}
	look("1.0.0", first)
	announce("1", "1.0.0", first)
	second := push("1.1.0")
	look("1.1.0", second)

	conn, err := pgx.Connect(ctx, pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	query := fmt.Sprintf(`SELECT coalesce(array_agg(digest ORDER BY id), '{}') FROM %s.cd_versions WHERE digest = ANY($1)`,
		pgx.Identifier{w.stack.Schema("domain")}.Sanitize())
	// Announcements are processed in order: once the second has a version, everything about the first is processed.
	var digests []string
	if err := w.Await(ctx, "a version of the second push", func() (string, bool, error) {
		err := conn.QueryRow(ctx, query, []string{first, second}).Scan(&digests)
		return fmt.Sprintf("%v, %v", digests, err), slices.Contains(digests, second), nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{first, second}; !slices.Equal(digests, want) {
		t.Errorf("versions: found %q, expected %q", digests, want)
	}
}
