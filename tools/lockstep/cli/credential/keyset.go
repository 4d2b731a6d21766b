package credential

import (
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// local is a command about a file on this machine.
func (c commands) local(use, short, example string, args int, run func(args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: example, Args: command.Exactly(args),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := c.CheckOutput(); err != nil {
				return err
			}
			if err := run(args); err != nil {
				return err
			}
			text, err := read(args[0])
			if err != nil {
				return err
			}
			all, err := keyset.List(text)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "KEY", "SEALS")
				for _, k := range all {
					command.Row(w, strconv.FormatUint(uint64(k.ID), 10), map[bool]string{true: "yes", false: "no"}[k.Primary])
				}
			})
		},
	}
}

func (c commands) keys() *cobra.Command {
	return c.local("list FILE", "List the keys of a keyset, without themselves", "  lockstep keyset list keyset.json", 1,
		func([]string) error { return nil })
}

func (c commands) createKeyset() *cobra.Command {
	return c.local("create FILE", "Make a keyset with one key", "  lockstep keyset create keyset.json", 1, func(args []string) error {
		text, err := keyset.Create()
		if err != nil {
			return err
		}
		file, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil { // a keyset that is lost is every value that was sealed with it
			return fault.Because(err, fault.Invalid, "%s; expected a file that does not exist yet", err)
		}
		if _, err = io.WriteString(file, text+"\n"); err == nil {
			err = file.Close()
		}
		if err != nil {
			return fault.Because(err, fault.Internal, "write %s: %s", args[0], err)
		}
		return nil
	})
}

func (c commands) addKey() *cobra.Command {
	return c.local("add FILE", "Add a key that seals nothing yet: give all services the keyset, then promote it", "  lockstep keyset add keyset.json", 1,
		func(args []string) error { return edit(args[0], keyset.Add) })
}

func (c commands) promoteKey() *cobra.Command {
	return c.local("promote FILE KEY", "Have a key seal from now on", "  lockstep keyset promote keyset.json 1234567890", 2,
		func(args []string) error { return editKey(args, keyset.Promote) })
}

func (c commands) removeKey() *cobra.Command {
	return c.local("remove FILE KEY", "Remove a key. What it has sealed no longer opens", "  lockstep keyset remove keyset.json 1234567890", 2,
		func(args []string) error { return editKey(args, keyset.Remove) })
}

func editKey(args []string, change func(text string, id uint32) (string, error)) error {
	id, err := strconv.ParseUint(args[1], 10, 32)
	if err != nil {
		return fault.New(fault.Invalid, "found the key %q; expected its number, as `lockstep keyset list` shows it", args[1])
	}
	return edit(args[0], func(text string) (string, error) { return change(text, uint32(id)) })
}

func read(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fault.Because(err, fault.Invalid, "%s", err)
	}
	return string(text), nil
}

// edit replaces a file by what a change makes of it, as a whole: a half of a keyset would be none.
func edit(file string, change func(text string) (string, error)) error {
	text, err := read(file)
	if err != nil {
		return err
	}
	if text, err = change(text); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(file), ".keyset-*") // only its owner may read it
	if err != nil {
		return fault.Because(err, fault.Invalid, "%s", err)
	}
	defer func() { _ = os.Remove(next.Name()) }()
	if _, err = io.WriteString(next, text+"\n"); err == nil {
		err = next.Close()
	}
	if err == nil {
		err = os.Rename(next.Name(), file)
	}
	if err != nil {
		return fault.Because(err, fault.Internal, "write %s: %s", file, err)
	}
	return nil
}
