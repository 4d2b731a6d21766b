// Package driver has the commands about deploy drivers.
package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/driver/artifact"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// Commands are the commands of this package, for the root command.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{own.driver()}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

const driverHelp = `Deploy drivers: list, make, test, check and publish them.

A driver is a folder with manifest.json and one folder v1, v2 … for each major version, with Starlark programs and two JSON Schemas.
An installation pulls those listed in drivers.artifacts of the domain service. new makes the folder of a driver that calls a server
over HTTP, and test plays the cases in a folder: neither needs a service. push, pull and check use registries, with
the credentials in docker's configuration; list and show use the API. If --grpc, LOCKSTEP_GRPC or --endpoints-file names a
workflow service, check and push also check the programs with it.`

// driver is the noun of deploy drivers.
func (c commands) driver() *cobra.Command {
	cmd := command.Noun("driver", "drv", "Deploy drivers: list, make, test, check and publish them", c.driverList(), c.driverShow(), c.driverNew(),
		c.driverTest(), c.driverCheck(), c.driverPush(), c.driverPull())
	cmd.Long = driverHelp
	return cmd
}

// driverNew needs no service.
func (c commands) driverNew() *cobra.Command {
	return c.newFolder("new", &cobra.Command{
		Use: "new NAME FOLDER", Short: "Make the folder of a new driver, which calls a server over HTTP: manifest, schemas, programs, and tests",
		Example: "  lockstep driver new shop-deploy ./shop-deploy",
	})
}

// CheckedDriver is one major of a driver that was looked at outside of an installation.
type CheckedDriver struct {
	Ref string `json:"ref"`
	// Digest is what a rollout pins; ArtifactDigest is the artifact's that it is in, empty for a folder.
	Digest         string   `json:"digest"`
	ArtifactDigest string   `json:"artifactDigest,omitempty"`
	Steps          []string `json:"supportedPipelineSteps"`
	Previews       bool     `json:"previews"`
}

func (c commands) driverList() *cobra.Command {
	return c.Asking("list", "List the drivers of the installation, and the problems of their origins",
		"  lockstep driver list\n  lockstep driver list -o json", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Drivers(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "DRIVER", "DIGEST", "ORIGIN", "ARTIFACT")
				for _, d := range all.Drivers {
					command.Row(w, d.Ref, command.Short(d.Digest), d.Origin, command.Short(d.ArtifactDigest))
				}
				for _, o := range all.Origins {
					if o.Problem != "" {
						fmt.Fprintf(w, "\n%s: %s\n", text.Line(o.Origin), text.Line(o.Problem))
					}
				}
			})
		})
}

func (c commands) driverShow() *cobra.Command {
	cmd := c.Asking("show REF", "Show a driver of the installation; -o json has its schemas",
		"  lockstep driver show argo-rollouts@1\n  lockstep driver show argo-rollouts@1 -o json", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.DriverSchemas(cmd.Context())
			if err != nil {
				return err
			}
			at := slices.IndexFunc(all, func(d client.Driver) bool { return d.Ref == args[0] })
			if at < 0 {
				return fault.New(fault.NotFound, "driver %q not found; see `lockstep driver list`", args[0])
			}
			d := all[at]
			return c.Print(d, func(w io.Writer) {
				command.Row(w, "DRIVER", d.Ref)
				command.Row(w, "DIGEST", d.Digest)
				command.Row(w, "ORIGIN", d.Origin)
				command.Row(w, "ARTIFACT", d.ArtifactDigest)
				command.Row(w, "STEPS", strings.Join(d.SupportedPipelineSteps, ", "))
			})
		})
	return cmd
}

func (c commands) driverCheck() *cobra.Command {
	e := programs{&workflow.Engine{Command: c.Command}}
	cmd := c.publishing("check FOLDER|oci://REFERENCE", "Check a driver, as an installation does when it loads one",
		"  lockstep driver check ./shop-deploy --grpc grpcs://lockstep-workflow.example.com:8083\n  lockstep driver check oci://registry.example.com/drivers/shop-deploy:1.4 -o json", 1,
		func(ctx context.Context, registry artifact.Client, args []string) error {
			if strings.HasPrefix(args[0], artifact.Scheme) {
				a, err := pulled(ctx, registry, args[0])
				if err == nil {
					err = e.checkPrograms(ctx, a.Bundles)
				}
				if err != nil {
					return err
				}
				return c.printDrivers(a.Bundles, a.Digest)
			}
			files, err := driverFolder(args[0])
			if err != nil {
				return err
			}
			bundles, err := e.checkFiles(ctx, files)
			if err != nil {
				return err
			}
			return c.printDrivers(bundles, "")
		})
	e.Flags(cmd.Flags())
	return cmd
}

func (c commands) driverPush() *cobra.Command {
	var annotations []string
	e := programs{&workflow.Engine{Command: c.Command}}
	cmd := c.publishing("push FOLDER oci://REGISTRY/REPOSITORY:TAG", "Check a driver and publish its folder as an OCI artifact",
		"  lockstep driver push ./shop-deploy oci://registry.example.com/drivers/shop-deploy:1.4\n"+
			"  lockstep driver push ./shop-deploy oci://ghcr.io/shop/deploy:1.4 --annotation org.opencontainers.image.revision=$GITHUB_SHA", 2,
		func(ctx context.Context, registry artifact.Client, args []string) error {
			files, err := driverFolder(args[0])
			if err != nil {
				return err
			}
			to, err := artifact.ParseReference(args[1])
			if err != nil {
				return fault.New(fault.Invalid, "reference: %w", err)
			}
			given, err := command.KeysAndValues("annotation", annotations)
			if err != nil {
				return err
			}
			if _, err := e.checkFiles(ctx, files); err != nil {
				return err
			}
			a, err := registry.Push(ctx, to, files, given)
			if err != nil {
				return err
			}
			return c.printDrivers(a.Bundles, a.Digest)
		})
	e.Flags(cmd.Flags())
	cmd.Flags().StringArrayVar(&annotations, "annotation", nil, "an annotation of the artifact, as `key=value`; repeatable")
	return cmd
}

func (c commands) driverPull() *cobra.Command {
	return c.publishing("pull oci://REFERENCE FOLDER", "Pull a driver from a registry into a new folder",
		"  lockstep driver pull oci://registry.example.com/drivers/shop-deploy:1.4 ./shop-deploy", 2,
		func(ctx context.Context, registry artifact.Client, args []string) error {
			if found, err := os.ReadDir(args[1]); err == nil && len(found) > 0 {
				return fault.New(fault.Conflict, "folder: found something in %s, expected an empty folder, or none", args[1])
			}
			a, err := pulled(ctx, registry, args[0])
			if err != nil {
				return err
			}
			files, err := artifact.Unpack(a.Content)
			if err != nil {
				return err
			}
			if err := writeFolder(args[1], files); err != nil {
				return err
			}
			return c.printDrivers(a.Bundles, a.Digest)
		})
}

// publishing is a command that asks registries, or nobody.
func (c commands) publishing(
	use, short, example string, arguments int, run func(context.Context, artifact.Client, []string) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: example, Args: command.Exactly(arguments),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.CheckOutput(); err != nil {
				return err
			}
			accounts, err := ociauth.NewAccounts(nil, true)
			if err != nil {
				return err
			}
			return run(cmd.Context(), artifact.Client{Accounts: accounts}, args)
		},
	}
}

func (c commands) printDrivers(bundles []*driver.Bundle, digest string) error {
	all := make([]CheckedDriver, len(bundles))
	for i, b := range bundles {
		all[i] = CheckedDriver{
			Ref: b.Ref(), Digest: b.Digest(), ArtifactDigest: digest, Steps: b.SupportedSteps(),
			Previews: b.Has(driver.Preview),
		}
	}
	return c.Print(all, func(w io.Writer) {
		command.Row(w, "DRIVER", "DIGEST", "STEPS", "ARTIFACT")
		for _, d := range all {
			command.Row(w, d.Ref, command.Short(d.Digest), strings.Join(d.Steps, ","), d.ArtifactDigest) // whole, to be put into a configuration
		}
	})
}

// pulled is what a reference names now.
func pulled(ctx context.Context, registry artifact.Client, reference string) (artifact.Artifact, error) {
	r, err := artifact.ParseReference(reference)
	if err != nil {
		return artifact.Artifact{}, fault.New(fault.Invalid, "reference: %w", err)
	}
	digest, err := registry.Resolve(ctx, r)
	if err != nil {
		return artifact.Artifact{}, err
	}
	return registry.Pull(ctx, r, digest)
}

// driverFolder is the files of a driver in a folder.
func driverFolder(folder string) (map[string][]byte, error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return nil, fault.New(fault.Invalid, "folder: found no folder %s, expected one with a driver", folder)
	}
	return driver.Files(os.DirFS(folder))
}

// writeFolder writes files, none of them outside of the folder, whatever the artifact says they are called.
func writeFolder(folder string, files map[string][]byte) error {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return fault.New(fault.Invalid, "folder: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("open %s: %w", folder, err)
	}
	defer func() { _ = root.Close() }()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		// A file that exists already was written by another process.
		err := root.MkdirAll(filepath.FromSlash(path.Dir(name)), 0o755)
		if err == nil {
			var f *os.File
			if f, err = root.OpenFile(filepath.FromSlash(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
				_, err = io.Copy(f, bytes.NewReader(files[name]))
				err = errors.Join(err, f.Close())
			}
		}
		if errors.Is(err, fs.ErrExist) {
			return fault.New(fault.Conflict, "folder: found %s in %s, expected an empty folder", name, folder)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
