// Package manifest changes the images and the canary steps of an Argo Rollout inside a user's YAML file, and nothing
// else: it replaces exactly the bytes that mean them, so that comments, order, quotes and line ends elsewhere survive (D42).
//
// Two parsers keep each other honest: one says where in the text a value stands, the other reads the text before and
// after, and the two readings may differ only in what was to be changed. A file that is written in a way that cannot be
// changed like that (an image behind an alias, say) is refused. It is not a template engine and not a formatter.
package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Request says what a manifest is to have.
type Request struct {
	// Images are set by container name, in the containers and init containers of the Rollout's pods.
	Images []Image
	// Gates are the weights of the canary steps: a setWeight and an indefinite pause each, so that the controller never continues
	// by itself (E70). nil leaves the strategy as it is; none at all is a canary without weights and pauses. Steps of other kinds
	// stay where they are.
	Gates []int
	// Strategy is Canary, which "" means as well, or BlueGreen, which has no gates: it pauses once, before the new version
	// gets any traffic, until it is promoted.
	Strategy string
	// Routing goes with a canary that has Gates, Services with BlueGreen.
	Routing  Routing
	Services Services
	// RolloutName chooses a Rollout where the file has several.
	RolloutName string
	// Workload, as kind/name, has the images set in that object instead: the one in another file that a Rollout takes its
	// pods from (D23). It goes with neither Gates nor a Strategy.
	Workload string
}

// Image is what a container is to run.
type Image struct{ Container, Reference string }

// Result is the manifest with the request fulfilled.
type Result struct {
	Content []byte
	// Digest is of Content, as sha256:<hex>.
	Digest string
	// Changed is false when the manifest had everything already.
	Changed bool
	// RolloutName and RolloutNamespace are the Rollout's own; the namespace may be "".
	RolloutName, RolloutNamespace string
	// Containers are the names of the containers that the Rollout's pods have, without init containers.
	Containers []string
	// Workload, as kind/name, is what the Rollout takes its pods from when that is not in this file; then there are no
	// Containers.
	Workload string
	// Steps are the canary steps that the manifest has now, an empty list where it has none.
	Steps []any
}

// maxSize bounds a manifest; the largest that Kubernetes takes is a little larger.
const maxSize = 1 << 20

// Pin fulfils the request in content. The error is Invalid and says what was found and what was expected.
func Pin(content []byte, r Request) (Result, error) {
	if err := r.check(); err != nil {
		return Result{}, err
	}
	if len(content) > maxSize {
		return Result{}, problem("content", "found %d bytes, expected at most %d", len(content), maxSize)
	}
	before, err := read(content)
	if err != nil {
		return Result{}, err
	}
	rollout, pods, err := before.subject(r)
	if err != nil {
		return Result{}, err
	}
	if err := pods.require(r.Images); err != nil {
		return Result{}, err
	}
	if err := r.fits(rollout); err != nil {
		return Result{}, err
	}
	pinned, err := splice(content, target{rollout: rollout, pods: pods, request: r})
	if err != nil {
		return Result{}, err
	}
	if err := verify(content, pinned, rollout, pods, r); err != nil {
		return Result{}, err
	}
	sum := sha256.Sum256(pinned)
	return Result{
		Content: pinned, Digest: "sha256:" + hex.EncodeToString(sum[:]), Changed: string(pinned) != string(content),
		RolloutName: rollout.name(), RolloutNamespace: rollout.text("metadata", "namespace"), Containers: pods.names("containers"),
		Workload: pods.elsewhere, Steps: stepsIn(pinned, rollout),
	}, nil
}

// stepsIn are the canary steps of a Rollout in a manifest that has been verified.
func stepsIn(content []byte, rollout doc) []any {
	none := []any{} // programs go through it
	all, err := read(content)
	if err != nil {
		return none
	}
	if steps, ok := all[rollout.index].steps().([]any); ok {
		return steps
	}
	return none
}

// reference is the shape of image references that need no escaping in any style of YAML.
var reference = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._:/@+-]*[a-zA-Z0-9])?$`)

func (r Request) check() error {
	seen := map[string]bool{}
	for i, image := range r.Images {
		at := fmt.Sprintf("images[%d]", i)
		if image.Container == "" {
			return problem(at+".container", "missing, expected the name of a container")
		}
		if seen[image.Container] {
			return problem(at+".container", "found %q a second time", image.Container)
		}
		seen[image.Container] = true
		if len(image.Reference) > 1024 || !reference.MatchString(image.Reference) {
			return problem(at+".reference", "found %q, expected an image reference such as registry.example.com/shop/api@sha256:…", image.Reference)
		}
	}
	if err := r.checkStrategy(); err != nil {
		return err
	}
	return checkGates(r.Gates)
}

func checkGates(gates []int) error {
	least := 1
	for i, weight := range gates {
		if weight < least || weight > 100 {
			return problem(fmt.Sprintf("gates[%d]", i), "found %d, expected a weight from %d to 100", weight, least)
		}
		least = weight + 1
	}
	return nil
}

func problem(field, format string, args ...any) error {
	return fault.InvalidFields(fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
}

// unsafe is a manifest that is written in a way in which it cannot be changed without changing more.
func unsafe(path, format string, args ...any) error {
	return problem("content", "%s %s", path, fmt.Sprintf(format, args...))
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
