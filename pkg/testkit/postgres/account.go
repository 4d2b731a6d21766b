//go:build unix

package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is who runs the server in place of root; nil is this process's own account.
type account struct {
	name     string
	uid, gid uint32
}

// serverAccount is who has to run the server: PostgreSQL refuses root.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is an account: our own
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is neither an account postgres nor nobody to run it as")
}

// credential is what a program needs to run as the account.
func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

// own gives path to the account.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	if err := os.Lchown(path, int(a.uid), int(a.gid)); err != nil {
		return fmt.Errorf("give %s to %s: %w", path, a.name, err)
	}
	return nil
}

// reaches reports whether the account may enter dir and every folder above it. Access lists beyond the mode are not
// looked at.
func (a *account) reaches(dir string) bool {
	for a != nil {
		info, err := os.Stat(dir)
		if err != nil {
			return false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return false
		}
		search := fs.FileMode(0o001)
		switch {
		case st.Uid == a.uid:
			search = 0o100
		case st.Gid == a.gid:
			search = 0o010
		}
		if info.Mode()&search == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
	return true
}

// place makes the folder of the server: dir, or, where the account cannot reach it, one in a temporary directory that is
// named for dir, so that the next start finds it again.
func place(ctx context.Context, log *slog.Logger, dir string, who *account) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolve the data folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // the server's account passes through it
		return "", fmt.Errorf("make the data folder: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", fmt.Errorf("resolve the data folder: %w", err)
	}
	if who != nil {
		if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // as above
			return "", fmt.Errorf("open the data folder to %s: %w", who.name, err)
		}
	}
	if who.reaches(dir) {
		return dir, nil
	}
	for _, tmp := range []string{os.TempDir(), "/tmp"} {
		instead := filepath.Join(tmp, "lockstep-data-"+digest(dir))
		if err := makePrivate(instead, 0o711, uint32(os.Geteuid())); err != nil {
			return "", err
		}
		if who.reaches(instead) {
			log.WarnContext(ctx, "the data folder cannot be reached by the account that runs postgresql; using another",
				"account", who.name, "folder", dir, "instead", instead)
			return instead, nil
		}
	}
	return "", fmt.Errorf("the account %s, which has to run PostgreSQL in place of root, reaches neither the folder nor /tmp: give it search permission on the folders above", who.name)
}

// makePrivate makes a folder at a name that others could foresee, and refuses one that is not uid's own.
func makePrivate(dir string, mode fs.FileMode, uid uint32) error {
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make folder: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at folder: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || (st.Uid != uid && st.Uid != uint32(os.Geteuid())) {
		return fmt.Errorf("%s exists and belongs to another user: remove it", dir)
	}
	if err := os.Chmod(dir, mode); err != nil {
		return fmt.Errorf("set the mode of folder: %w", err)
	}
	return nil
}

// digest is a short name for a path.
func digest(path string) string {
	sum := sha256.Sum256([]byte(path))
	return strconv.Itoa(os.Geteuid()) + "-" + hex.EncodeToString(sum[:6])
}
