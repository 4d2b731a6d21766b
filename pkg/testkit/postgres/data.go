//go:build unix

package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// prepare makes the data of a server that has none yet. What an interrupted attempt left is thrown away.
func prepare(ctx context.Context, bin binaries, who *account, data string, c Config) error {
	if dataVersion(data) != 0 {
		return nil
	}
	if c.Template == "" {
		return initialise(ctx, bin, who, data, c.Fast)
	}
	if err := os.MkdirAll(filepath.Dir(c.Template), 0o711); err != nil { //nolint:gosec // the server's account passes through it
		return fmt.Errorf("make the template's folder: %w", err)
	}
	unlock, err := waitLock(c.Template + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	template := fmt.Sprintf("%s-%d", c.Template, bin.major)
	if dataVersion(template) == 0 {
		if err := initialise(ctx, bin, who, template, true); err != nil {
			return err
		}
	}
	return replace(data, who, func(fresh string) error { return copyTree(template, fresh, who) })
}

// initialise runs initdb.
func initialise(ctx context.Context, bin binaries, who *account, data string, fast bool) error {
	return replace(data, who, func(fresh string) error {
		args := []string{"-D", fresh, "-U", superuser, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"}
		if fast {
			args = append(args, "--no-sync", "--wal-segsize=1")
		}
		cmd := exec.CommandContext(ctx, bin.path("initdb"), args...) //nolint:gosec // a path that was found and arguments of ours
		cmd.Dir, cmd.Env = "/", environment(bin)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who.credential()}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("initdb: %w: %s", err, lastLines(out.Bytes(), 5))
		}
		return nil
	})
}

// replace fills a fresh folder and puts it in data's place in one step.
func replace(data string, who *account, fill func(fresh string) error) error {
	fresh := data + ".new"
	if err := errors.Join(os.RemoveAll(fresh), os.RemoveAll(data)); err != nil {
		return fmt.Errorf("throw away an unfinished start: %w", err)
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	if err := who.own(fresh); err != nil {
		return err
	}
	if err := fill(fresh); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	if err := os.Rename(fresh, data); err != nil {
		return fmt.Errorf("put the data in place: %w", err)
	}
	return nil
}

// copyTree copies the files and folders in from, which are the account's, into to.
func copyTree(from, to string, who *account) error {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case path == from:
			return nil
		case d.IsDir():
			err = os.Mkdir(target, 0o700)
		default:
			err = copyFile(path, target)
		}
		if err != nil {
			return err
		}
		return who.own(target)
	})
	if err != nil {
		return fmt.Errorf("copy the template: %w", err)
	}
	return nil
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// environment keeps the caller's PG… variables away from the server.
func environment(bin binaries) []string {
	return []string{"PATH=" + bin.dir + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC", "HOME=/"}
}

// tail is the end of a log file.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return lastLines(b, 10)
}

func lastLines(b []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
