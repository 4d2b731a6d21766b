package driver

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
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

// newFiles are those of a new check kind, and of a new driver.
//
//go:embed kind new
var newFiles embed.FS

// bundleName is how a check kind or a driver may be called.
var bundleName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// kindNew needs no service.
func (c commands) kindNew() *cobra.Command {
	return c.newFolder("kind", &cobra.Command{
		Use: "new NAME FOLDER", Short: "Make the folder of a new check kind: manifest, schema, program, and a test",
		Example: "  lockstep check new ticket ./ticket",
	})
}

// newFolder is a command that writes files of a bundle, in which NAME stands for its name, into a folder.
func (c commands) newFolder(files string, cmd *cobra.Command) *cobra.Command {
	cmd.Args = command.Exactly(2)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := c.CheckOutput(); err != nil {
			return err
		}
		if !bundleName.MatchString(args[0]) {
			return fault.New(fault.Invalid, "name: found %q, expected lower-case letters, digits and single hyphens, such as ticket", args[0])
		}
		texts := map[string][]byte{}
		err := fs.WalkDir(newFiles, files, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := fs.ReadFile(newFiles, name)
			texts[strings.TrimPrefix(name, files+"/")] = bytes.ReplaceAll(text, []byte("NAME"), []byte(args[0]))
			return err
		})
		if err != nil {
			return fmt.Errorf("read the files of a new bundle: %w", err)
		}
		bundles, err := driver.FromFiles(texts)
		if err != nil {
			return err
		}
		if err := writeFolder(args[1], texts); err != nil {
			return err
		}
		return c.printDrivers(bundles, "")
	}
	return cmd
}

// kindTest needs no service.
func (c commands) kindTest() *cobra.Command {
	seeds := 20
	cmd := &cobra.Command{
		Use: "test FOLDER", Short: "Validate a check kind and play the tables of cases in its folder (*.test.yaml), also with crashes at random",
		Example: "  lockstep check test ./ticket\n  lockstep check test ./ticket --seeds 200", Args: command.Exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := c.tested(args[0], "a check kind", (*driver.Bundle).IsCheck); err != nil {
				return err
			}
			files, err := tables(args[0], ".test.yaml")
			if err != nil {
				return err
			}
			if len(files) == 0 {
				return fault.New(fault.Invalid, "folder: found no *.test.yaml in %s, expected a table of cases", args[0])
			}
			all, err := playOffline(files, seeds)
			if err != nil {
				return err
			}
			return workflow.Report(c.Command, all)
		},
	}
	seedsFlag(cmd, &seeds)
	return cmd
}

// tested are the texts of a bundle that is validated, of which is reports whether it is one of those that are expected.
func (c commands) tested(folder, expected string, is func(*driver.Bundle) bool) (map[string][]byte, error) {
	if err := c.CheckOutput(); err != nil {
		return nil, err
	}
	texts, err := driverFolder(folder)
	if err != nil {
		return nil, err
	}
	bundles, err := driver.FromFiles(texts)
	if err == nil {
		err = driver.CheckNew(bundles)
	}
	if err == nil {
		err = driver.CheckWidgets(bundles)
	}
	if err != nil {
		return nil, err
	}
	if !is(bundles[0]) {
		return nil, fault.New(fault.Invalid, "folder: found %s in %s, expected %s", bundles[0].Ref(), folder, expected)
	}
	return texts, compilePrograms(bundles)
}

// tables are the files of a folder whose names end in a suffix. A name that ends in .yml is refused: its cases would not be played.
func tables(folder, suffix string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fault.New(fault.Invalid, "folder: %w", err)
	}
	var files []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), ".yml"); ok && strings.HasSuffix(name+".yaml", suffix) {
			return nil, fault.New(fault.Invalid, "folder: found %s in %s, expected the name %s.yaml", entry.Name(), folder, name)
		}
		if strings.HasSuffix(entry.Name(), suffix) {
			files = append(files, filepath.Join(folder, entry.Name()))
		}
	}
	return files, nil
}

func seedsFlag(cmd *cobra.Command, seeds *int) {
	cmd.Flags().IntVar(seeds, "seeds", *seeds, "how often each case is repeated with crashes at random, as a `number`")
}

// playOffline plays the cases of files in the offline harness.
func playOffline(files []string, seeds int) ([]workflow.Tested, error) {
	chosen, err := workflow.Seeds(seeds)
	if err != nil {
		return nil, err
	}
	return workflow.Play(files, chosen, regexp.MustCompile(""))
}
