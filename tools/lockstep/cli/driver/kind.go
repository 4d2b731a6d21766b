package driver

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// Kinds are the commands about check kinds, which are bundles like drivers: those below check.
func Kinds(c *command.Command) []*cobra.Command {
	own := commands{c}
	push := own.driverPush()
	push.Short = "Validate a check kind and publish its folder as an OCI artifact"
	push.Example = "  lockstep check push ./ticket oci://registry.example.com/checks/ticket:1.0"
	return []*cobra.Command{own.kindList(), own.kindNew(), own.kindTest(), own.kindSimulate(), push}
}

func (c commands) kindList() *cobra.Command {
	return c.Asking("kinds", "List the check kinds of the installation; -o json has the schemas of their configurations",
		"  lockstep check kinds\n  lockstep check kinds -o json", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.CheckKinds(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "KIND", "ABOUT", "DIGEST", "ORIGIN", "DESCRIPTION")
				for _, k := range all {
					command.Row(w, k.Ref, strings.ToLower(strings.Join(k.Targets, ", ")), command.Short(k.Digest), k.Origin, k.Description)
				}
			})
		})
}

// kindFiles are those of a new check kind.
//
//go:embed kind
var kindFiles embed.FS

// kindName is how a check kind may be called.
var kindName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// kindNew needs no service.
func (c commands) kindNew() *cobra.Command {
	return &cobra.Command{
		Use: "new NAME FOLDER", Short: "Make the folder of a new check kind: manifest, schema, program, and a test",
		Example: "  lockstep check new ticket ./ticket", Args: command.Exactly(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := c.CheckOutput(); err != nil {
				return err
			}
			if !kindName.MatchString(args[0]) {
				return fault.New(fault.Invalid, "name: found %q, expected lower-case letters, digits and single hyphens, such as ticket", args[0])
			}
			files := map[string][]byte{}
			err := fs.WalkDir(kindFiles, "kind", func(name string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				text, err := fs.ReadFile(kindFiles, name)
				files[strings.TrimPrefix(name, "kind/")] = bytes.ReplaceAll(text, []byte("NAME"), []byte(args[0]))
				return err
			})
			if err != nil {
				return fmt.Errorf("read the files of a new check kind: %w", err)
			}
			bundles, err := driver.FromFiles(files)
			if err != nil {
				return err
			}
			if err := writeFolder(args[1], files); err != nil {
				return err
			}
			return c.printDrivers(bundles, "")
		},
	}
}

// kindTest needs no service.
func (c commands) kindTest() *cobra.Command {
	seeds := 20
	cmd := &cobra.Command{
		Use: "test FOLDER", Short: "Validate a check kind and play the tables of cases in its folder (*.test.yaml), also with crashes at random",
		Example: "  lockstep check test ./ticket\n  lockstep check test ./ticket --seeds 200", Args: command.Exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := c.CheckOutput(); err != nil {
				return err
			}
			texts, err := driverFolder(args[0])
			if err != nil {
				return err
			}
			bundles, err := driver.FromFiles(texts)
			if err == nil {
				err = driver.CheckNew(bundles)
			}
			if err != nil {
				return err
			}
			if !bundles[0].IsCheck() {
				return fault.New(fault.Invalid, "folder: found the driver %s in %s, expected a check kind", bundles[0].Ref(), args[0])
			}
			files, err := filepath.Glob(filepath.Join(args[0], "*.test.yaml"))
			if err != nil || len(files) == 0 {
				return fault.New(fault.Invalid, "folder: found no *.test.yaml in %s, expected a table of cases", args[0])
			}
			chosen, err := workflow.Seeds(seeds)
			if err != nil {
				return err
			}
			return workflow.Play(c.Command, files, chosen, regexp.MustCompile(""))
		},
	}
	cmd.Flags().IntVar(&seeds, "seeds", seeds, "how often each case is repeated with crashes at random, as a `number`")
	return cmd
}
