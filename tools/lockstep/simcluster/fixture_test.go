package simcluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/rollouts"
)

// fixture is a cluster, a Git server with the repository shop, and an OCI registry.
type fixture struct {
	t               *testing.T
	client          dynamic.Interface
	gitURL, gitDir  string
	images          string
	address, folder string
	stop            func()
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, gitDir: t.TempDir(), folder: t.TempDir(), address: porttest.FreeAddress(t)}
	if err := gitserver.Create(t.Context(), f.gitDir, "shop", map[string]string{"README.md": "shop\n"}); err != nil {
		t.Fatal(err)
	}
	h, err := gitserver.Handler(t.Context(), gitserver.Config{Dir: f.gitDir, Username: "lockstep", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	f.gitURL = server.URL + "/shop.git"
	oci := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	t.Cleanup(oci.Close)
	f.images = strings.TrimPrefix(oci.URL, "http://")
	f.start()
	t.Cleanup(func() { f.stop() })
	text, err := simcluster.Kubeconfig(f.address)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.BearerToken = 200, "token"
	if f.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) start() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- simcluster.Run(ctx, simcluster.Config{
			Address: f.address, Dir: f.folder, Token: "token", GitUsername: "lockstep", GitPassword: "secret", Speed: 100, Registry: f.images,
		}, slog.New(slog.DiscardHandler), func() { close(ready) })
	}()
	f.stop = func() {
		f.stop = func() {}
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("the cluster ends with %v", err)
		}
	}
	select {
	case <-ready:
	case err := <-done:
		f.stop = cancel // it has ended
		f.t.Fatalf("the cluster does not start: %v", err)
	}
}

// push makes an image and answers its reference by digest.
func (f *fixture) push(simulate string) string {
	f.t.Helper()
	return f.pushAs(simulate, "latest")
}

// pushAs is push with a tag.
func (f *fixture) pushAs(simulate, tag string) string {
	f.t.Helper()
	image, err := random.Image(16, 1)
	if err != nil {
		f.t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		f.t.Fatal(err)
	}
	if simulate != "" {
		config.Config.Labels = map[string]string{rollouts.SimulateLabel: simulate}
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		f.t.Fatal(err)
	}
	ref, err := name.ParseReference(f.images + "/shop/api:" + tag)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		f.t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		f.t.Fatal(err)
	}
	return f.images + "/shop/api@" + digest.String()
}

// commit writes a file of the repository and answers the commit.
func (f *fixture) commit(path, content string) string {
	f.t.Helper()
	clone := f.t.TempDir()
	signedIn := strings.Replace(f.gitURL, "http://", "http://lockstep:secret@", 1)
	f.git("", "clone", "--quiet", signedIn, clone)
	if err := os.MkdirAll(filepath.Dir(filepath.Join(clone, path)), 0o750); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(clone, path), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.git(clone, "add", "-A")
	f.git(clone, "commit", "--quiet", "-m", "change")
	f.git(clone, "push", "--quiet")
	return strings.TrimSpace(f.git(clone, "rev-parse", "HEAD"))
}

func (f *fixture) git(dir string, args ...string) string {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("git %s: %v: %s", args[0], err, out)
	}
	return string(out)
}

// manifest is a Rollout of an image with gates at the weights.
func manifest(image string, weights ...int) string {
	steps := ""
	for _, w := range weights {
		steps += fmt.Sprintf("        - setWeight: %d\n        - pause: {}\n", w)
	}
	return `# the shop's API
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata:
  name: api
spec:
  replicas: 2
  progressDeadlineSeconds: 60
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec:
      containers: [{name: api, image: "` + image + `"}]
  strategy:
    canary:
      steps:
` + steps
}

var (
	applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	rolloutsGVR  = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}
)

func (f *fixture) app() dynamic.ResourceInterface {
	return f.client.Resource(applications).Namespace("argocd")
}

func (f *fixture) rollout() dynamic.ResourceInterface {
	return f.client.Resource(rolloutsGVR).Namespace("shop")
}

// application creates the Application as Lockstep does.
func (f *fixture) application(path string) {
	f.t.Helper()
	if _, err := f.app().Create(f.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "shop"},
		"spec": map[string]any{
			"project":     "default",
			"source":      map[string]any{"repoURL": f.gitURL, "path": path, "targetRevision": "main"},
			"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": "shop"},
		},
	}}, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// sync asks for a sync to a revision and waits for its end.
func (f *fixture) sync(revision string) *unstructured.Unstructured {
	f.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"source":{"targetRevision":%q}},"operation":{"initiatedBy":{"username":"lockstep:%s"},"sync":{"revision":%q,"syncOptions":["CreateNamespace=true"]}}}`, revision, revision, revision)
	if _, err := f.app().Patch(f.t.Context(), "shop", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return f.await(f.app(), "shop", "the sync to end", func(o *unstructured.Unstructured) bool {
		_, pending := o.Object["operation"]
		return !pending && text(o, "status", "operationState", "operation", "sync", "revision") == revision
	})
}

func text(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

// await looks at an object until it is as wanted.
func (f *fixture) await(
	api dynamic.ResourceInterface, name, what string, wanted func(*unstructured.Unstructured) bool,
) *unstructured.Unstructured {
	f.t.Helper()
	var o *unstructured.Unstructured
	wait.For(f.t, what, func() bool {
		var err error
		o, err = api.Get(f.t.Context(), name, metav1.GetOptions{})
		return err == nil && wanted(o)
	})
	return o
}

// awaitRollout waits for a phase at a step, of a status that is not older than the spec.
func (f *fixture) awaitRollout(phase string, step int64) *unstructured.Unstructured {
	f.t.Helper()
	return f.await(f.rollout(), "api", fmt.Sprintf("%s at step %d", phase, step), func(o *unstructured.Unstructured) bool {
		index, _, _ := unstructured.NestedInt64(o.Object, "status", "currentStepIndex")
		return text(o, "status", "observedGeneration") == fmt.Sprint(o.GetGeneration()) && text(o, "status", "phase") == phase && index == step
	})
}

func (f *fixture) promote() {
	f.t.Helper()
	if _, err := f.rollout().Patch(f.t.Context(), "api", types.MergePatchType, []byte(`{"status":{"pauseConditions":null}}`),
		metav1.PatchOptions{}, "status"); err != nil {
		f.t.Fatal(err)
	}
}
