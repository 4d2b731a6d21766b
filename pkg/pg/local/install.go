package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// noCluster keeps Debian's package from making and starting a server of its own on port 5432 while it is installed.
const noCluster = "/etc/postgresql-common/createcluster.d/lockstep.conf"

// installWithApt installs the server where we are root on Debian or Ubuntu.
func installWithApt(ctx context.Context, log *slog.Logger, want int) error {
	if os.Geteuid() != 0 {
		return errors.New("apt-get is not tried: not root")
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil {
		return errors.New("apt-get is not tried: neither Debian nor Ubuntu")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("apt-get is not tried: %w", err)
	}
	name := "postgresql"
	if want != 0 {
		name += "-" + strconv.Itoa(want)
	}
	log.InfoContext(ctx, "installing postgresql with apt-get; about a minute, once", "package", name)
	if _, err := os.Stat(noCluster); err != nil {
		if err := os.MkdirAll(filepath.Dir(noCluster), 0o755); err != nil { //nolint:gosec // the mode of such folders in /etc
			return fmt.Errorf("keep the package from starting a server: %w", err)
		}
		if err := os.WriteFile(noCluster, []byte("create_main_cluster = false\n"), 0o644); err != nil { //nolint:gosec // read by everybody
			return fmt.Errorf("keep the package from starting a server: %w", err)
		}
		defer func() {
			_ = os.Remove(noCluster)
			_ = os.Remove(filepath.Dir(noCluster)) // goes only if it is empty: the package makes it as well
		}()
	}
	install := []string{"install", "--yes", "--no-install-recommends", name}
	if err := apt(ctx, install...); err == nil {
		return nil
	}
	log.InfoContext(ctx, "reading the package lists first")
	if err := apt(ctx, "update"); err != nil {
		return err
	}
	return apt(ctx, install...)
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=120", "-q"}, args...)...) //nolint:gosec // arguments of ours
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLines(out.Bytes(), 3))
	}
	return nil
}

// releases are what the library can download, by major version.
func release(want int) (embedded.PostgresVersion, bool) {
	v, ok := map[int]embedded.PostgresVersion{0: embedded.V18, 15: embedded.V15, 16: embedded.V16, 17: embedded.V17, 18: embedded.V18}[want]
	return v, ok
}

// download fetches the binaries with the embedded-postgres library, which takes them from Maven Central.
//
// The library has no call that only downloads. Its Start downloads, unpacks, and then prepares the data folder: a data
// folder that cannot exist, because it lies below a file, ends it at that point, as root and as anybody.
func download(ctx context.Context, log *slog.Logger, want int) error {
	version, ok := release(want)
	if !ok {
		return fmt.Errorf("download: no PostgreSQL %d is offered", want)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("download is not tried: %w", err)
	}
	log.InfoContext(ctx, "downloading postgresql; about a minute, once", "version", string(version), "from", "Maven Central")
	if err := os.MkdirAll(downloadDir(), 0o755); err != nil { //nolint:gosec // another account runs these programs
		return fmt.Errorf("download: %w", err)
	}
	work, err := os.MkdirTemp(downloadDir(), ".new-")
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.Chmod(work, 0o755); err != nil { //nolint:gosec // as above
		return fmt.Errorf("download: %w", err)
	}
	file := filepath.Join(work, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return fmt.Errorf("download: %w", err)
	}
	free, err := freePort(ctx)
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	unpacked := filepath.Join(work, "unpacked")
	config := embedded.DefaultConfig().Version(version).Port(free).Logger(io.Discard).
		CachePath(filepath.Join(work, "archive")).RuntimePath(filepath.Join(work, "runtime")).
		BinariesPath(unpacked).DataPath(filepath.Join(file, "none"))
	startErr := embedded.NewDatabase(config).Start()
	if _, err := os.Stat(filepath.Join(unpacked, "bin", "initdb")); err != nil {
		return fmt.Errorf("download: %w", startErr)
	}
	target := filepath.Join(downloadDir(), string(version))
	if err := os.Rename(unpacked, target); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("download: %w", err)
	}
	return nil
}

// downloadDir keeps downloaded installations. Root's must be open to the account that runs the server.
func downloadDir() string {
	if os.Geteuid() == 0 {
		return "/var/cache/lockstep/postgresql"
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "lockstep", "postgresql")
}
