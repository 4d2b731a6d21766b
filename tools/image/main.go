// Command image builds the container images of Lockstep without a container engine: it compiles, assembles the layers and writes an OCI
// layout for each, which any tool can push. The same sources give the same digest.
//
//	image -version v1.2.3 -out DIR registry domain workflow relay lockstep
//
// With a key it signs them and records their provenance (package attest), beside each image in its layout; with -push it publishes both.
//
//	image -version v1.2.3 -commit "$(git rev-parse HEAD)" -out DIR -key vault:secret/data/release#key -push ghcr.io/lockstep-cd domain
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/tools/image/assemble"
	"github.com/lockstep-cd/lockstep/tools/image/attest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// source is where the sources are published.
const source = "https://github.com/lockstep-cd/lockstep"

// options are the command's flags.
type options struct {
	recipe assemble.Recipe
	// out is the folder of the layouts; key a reference to the key, empty for none; push where images are published, empty for nowhere.
	out, key, push string
	// builder is the URL of the builder, in the provenance.
	builder string
	vault   secret.VaultConfig
}

func run() error {
	var o options
	flag.StringVar(&o.out, "out", "", "folder of the OCI layouts, one for each image")
	flag.StringVar(&o.recipe.Root, "root", ".", "root of the checkout")
	flag.StringVar(&o.recipe.Version, "version", "dev", "what the binaries say that they are")
	flag.StringVar(&o.recipe.Commit, "commit", "", "the commit that they are made from")
	flag.StringVar(&o.recipe.Architecture, "arch", "amd64", "GOARCH of the binaries")
	flag.StringVar(&o.key, "key", "", "reference to the private key to sign with: env:NAME, file:/path, k8s:namespace/name#key or vault:path#key; empty for no signatures")
	flag.StringVar(&o.builder, "builder", source+"/tree/main/tools/image", "URL of who builds, in the provenance")
	flag.StringVar(&o.push, "push", "", "registry and path to publish the images below, such as ghcr.io/lockstep-cd; empty for nowhere")
	flag.StringVar(&o.vault.Address, "vault-address", "", "URL of Vault, for a key there")
	flag.StringVar(&o.vault.TokenRef, "vault-token", "", "reference to the token for Vault: env:NAME or file:/path")
	flag.Parse()
	if o.out == "" || flag.NArg() == 0 {
		return fmt.Errorf("expected -out DIR and the names of images, of %q", assemble.Names())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	key, err := o.signer(ctx)
	if err != nil {
		return err
	}
	for _, name := range flag.Args() {
		digest, err := o.build(ctx, name, key)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Println(name, digest)
	}
	if key != nil {
		if err := os.WriteFile(filepath.Join(o.out, "cosign.pub"), key.PublicKey(), 0o600); err != nil {
			return fmt.Errorf("write the public key: %w", err)
		}
	}
	return nil
}

// signer returns the key, nil for none. A signature states what the image was built from, so that is checked.
func (o options) signer(ctx context.Context) (*attest.Key, error) {
	if o.key == "" {
		return nil, nil //nolint:nilnil // images need no signature
	}
	if err := clean(ctx, o.recipe); err != nil {
		return nil, err
	}
	secrets, err := secret.New(o.vault, clock.System(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	text, err := secrets.Read(ctx, o.key)
	if err != nil {
		return nil, fmt.Errorf("-key: %w", err)
	}
	key, err := attest.ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("-key %s: %w", o.key, err)
	}
	return key, nil
}

// clean refuses to sign unless the checkout is exactly the commit.
func clean(ctx context.Context, r assemble.Recipe) error {
	head, err := output(ctx, r.Root, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if r.Commit != head {
		return fmt.Errorf("-commit: found %q, expected %s, which is checked out: a signed image says what it was made from", r.Commit, head)
	}
	changed, err := output(ctx, r.Root, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		first, _, _ := strings.Cut(changed, "\n")
		return fmt.Errorf("found %q in the checkout, expected no changes since %s: a signed image says what it was made from", first, head)
	}
	return nil
}

// build creates an image, writes its layout, and publishes it.
func (o options) build(ctx context.Context, name string, key *attest.Key) (string, error) {
	image, err := assemble.Image(ctx, o.recipe, name)
	if err != nil {
		return "", fmt.Errorf("build: %w", err)
	}
	repository := strings.TrimSuffix(o.push, "/") + "/" + name
	if o.push == "" {
		repository = name
	}
	var referrers []v1.Image
	if key != nil {
		compiler, err := output(ctx, o.recipe.Root, "go", "env", "GOVERSION")
		if err != nil {
			return "", err
		}
		referrers, err = attest.Image(image, attest.Build{
			Name: name, Repository: repository, Version: o.recipe.Version, Architecture: o.recipe.Architecture,
			Source: source, Commit: o.recipe.Commit, Go: compiler, Builder: o.builder,
		}, key)
		if err != nil {
			return "", fmt.Errorf("sign: %w", err)
		}
	}
	digest, err := assemble.Write(filepath.Join(o.out, name), image, referrers...)
	if err != nil {
		return "", fmt.Errorf("write: %w", err)
	}
	if o.push == "" {
		return digest, nil
	}
	if err := attest.Push(ctx, repository, o.recipe.Version, image, referrers); err != nil {
		return "", fmt.Errorf("publish: %w", err)
	}
	return digest, nil
}

// output returns the output of a command.
func output(ctx context.Context, dir, command string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command, args...) //nolint:gosec // its arguments are ours
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s %s: %w: %s", command, args[0], err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", command, args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
