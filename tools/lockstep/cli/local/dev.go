package local

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// dataFlag is the folder of a local Lockstep.
func dataFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "data", "", "`folder` of all data; by default LOCKSTEP_DATA, or else "+stack.DefaultFolder())
	_ = cmd.MarkFlagDirname("data")
}

// dataFolder is the folder of a local Lockstep: the one given, or the default one.
func (c commands) dataFolder(given string) (string, error) {
	if given == "" {
		given = c.Getenv("LOCKSTEP_DATA")
	}
	if given == "" {
		if err := stack.CheckDefaultFolder(); err != nil {
			return "", err
		}
		given = stack.DefaultFolder()
	}
	folder, err := filepath.Abs(given)
	if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	return folder, nil
}

// running is where the Lockstep of a folder listens. Its API is asked, so that what an earlier run left in the folder is not taken for a
// Lockstep that runs.
func (c commands) running(ctx context.Context, given string) (folder string, e stack.Endpoints, err error) {
	if folder, err = c.dataFolder(given); err != nil {
		return "", e, err
	}
	e, err = stack.ReadEndpoints(filepath.Join(folder, "endpoints.json"))
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, command.AnswerTime)
		defer cancel()
		_, err = client.New(client.Config{Endpoint: e.GraphQL, Token: e.Token}).Viewer(ctx)
	}
	if err != nil {
		return "", e, fault.New(fault.Unavailable, "no Lockstep is running in %s: %w; start one with `lockstep dev --data %s`, or set its folder with --data", folder, err, folder)
	}
	return folder, e, nil
}

// variable is one of a shell's environment.
type variable struct{ name, value string }

// devVariables are what other commands and scripts need to find a local Lockstep.
func devVariables(folder string, e stack.Endpoints) []variable {
	git := e.Git
	if scheme, rest, ok := strings.Cut(e.Git, "://"); ok {
		if _, host, signedIn := strings.Cut(rest, "@"); signedIn {
			git = scheme + "://" + host
		}
	}
	return []variable{
		{"LOCKSTEP_ENDPOINT", e.GraphQL},
		{"LOCKSTEP_TOKEN", e.Token},
		{"LOCKSTEP_REGISTRY", e.Registry},
		{"LOCKSTEP_GRPC", "grpc://" + e.GRPC},
		{"LOCKSTEP_ORGANIZATION", "1"}, // a local stack has one, and its token is for any
		{"LOCKSTEP_DATA", folder},
		{"LOCKSTEP_CONSOLE", e.Console},
		{"LOCKSTEP_OCI", e.OCI},
		{"LOCKSTEP_GIT", git},
		{"LOCKSTEP_GIT_PUSH", e.Git},
	}
}

// devEnv prints what a shell evaluates.
func (c commands) devEnv() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "env", Short: "Print the environment variables of a running dev as shell commands",
		Long: `env prints export statements for the Lockstep that runs in the data folder: the endpoint and token that every command uses; the addresses
of the registry service and of the workflow service; and those of the console (LOCKSTEP_CONSOLE), of the OCI registry (LOCKSTEP_OCI), and of
the Git server as a URL for pipelines (LOCKSTEP_GIT) and with credentials for pushing (LOCKSTEP_GIT_PUSH). The exit code is 6 if none is
running there.`,
		Example: "  eval \"$(lockstep dev env)\"\n  lockstep dev env --data /tmp/other -o json",
		Args:    command.Exactly(0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.CheckOutput(); err != nil {
				return err
			}
			folder, e, err := c.running(cmd.Context(), dir)
			if err != nil {
				return err
			}
			all := devVariables(folder, e)
			if c.Output == "table" {
				for _, v := range all {
					fmt.Fprintf(c.Out, "export %s=%s\n", v.name, shellQuoted(v.value))
				}
				return nil
			}
			object := make(map[string]string, len(all))
			for _, v := range all {
				object[v.name] = v.value
			}
			return c.Print(object, nil)
		},
	}
	dataFlag(cmd, &dir)
	return cmd
}

// shellQuoted is a text that a POSIX shell takes literally.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// PushedImage is an image that dev push has pushed.
type PushedImage struct {
	Image  string `json:"image"`
	Tag    string `json:"tag"`
	Digest string `json:"digest"`
}

// devPush pushes an image without Docker.
func (c commands) devPush() *cobra.Command {
	var dir string
	var labels []string
	cmd := &cobra.Command{
		Use: "push NAME:TAG", Short: "Push a small sample image to the registry of a running dev, without Docker",
		Long: `push builds a small image and pushes it to the OCI registry of the Lockstep that runs in the data folder, as a CI job would. The label
lockstep.dev/simulate sets in the simulated cluster how the image behaves: with degraded-at=50 it becomes degraded at 50 % of the traffic.
The image contains no program, so a real cluster (dev --kubeconfig) cannot run it.`,
		Example: "  lockstep dev push shop/api:1.0.0\n  lockstep dev push shop/api:1.1.0 --label lockstep.dev/simulate=degraded-at=50",
		Args:    command.Exactly(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.CheckOutput(); err != nil {
				return err
			}
			labelled, err := command.KeysAndValues("label", labels)
			if err != nil {
				return err
			}
			_, e, err := c.running(cmd.Context(), dir)
			if err != nil {
				return err
			}
			tag, err := name.NewTag(e.OCI+"/"+strings.TrimPrefix(args[0], e.OCI+"/"), name.StrictValidation, name.Insecure)
			if err != nil {
				return fault.New(fault.Invalid, "image: found %q; expected NAME:TAG, such as shop/api:1.0.0", args[0])
			}
			digest, err := demo.PushImage(cmd.Context(), e.OCI, tag.RepositoryStr(), tag.TagStr(), labelled)
			if err != nil {
				return err
			}
			made := PushedImage{Image: tag.RegistryStr() + "/" + tag.RepositoryStr(), Tag: tag.TagStr(), Digest: digest}
			return c.Print(made, func(w io.Writer) {
				command.Row(w, "IMAGE", "TAG", "DIGEST")
				command.Row(w, made.Image, made.Tag, command.Short(made.Digest))
			})
		},
	}
	dataFlag(cmd, &dir)
	cmd.Flags().StringArrayVar(&labels, "label", nil, "a label of the image, as `key=value`; repeatable")
	return cmd
}
