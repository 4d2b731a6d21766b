package postgres

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
	"slices"
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
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=120", "-q"}, //nolint:gosec // arguments of ours
		args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLines(out.Bytes(), 3))
	}
	return nil
}

// release is what the library can download, by major version.
func release(want int) (embedded.PostgresVersion, bool) {
	v, ok := map[int]embedded.PostgresVersion{0: embedded.V18, 15: embedded.V15, 16: embedded.V16, 17: embedded.V17, 18: embedded.V18}[want]
	return v, ok
}

// download fetches the binaries with the embedded-postgres library, which takes them from Maven Central, or from the
// mirror that LOCKSTEP_POSTGRES_REPOSITORY names.
//
// The library has no call that only downloads. Its Start downloads, unpacks, and then prepares the data folder: a data
// folder that cannot exist, because it lies below a file, ends it at that point, as root and as anybody.
func download(ctx context.Context, log *slog.Logger, want int) error {
	repository := os.Getenv("LOCKSTEP_POSTGRES_REPOSITORY")
	if repository == "" {
		repository = "https://repo1.maven.org/maven2"
	}
	return downloadFrom(ctx, log, repository, downloadDir(), want)
}

// downloadFrom puts the binaries into dir/<version>.
func downloadFrom(ctx context.Context, log *slog.Logger, repository, dir string, want int) error {
	version, ok := release(want)
	if !ok {
		return fmt.Errorf("download: no PostgreSQL %d is offered", want)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("download is not tried: %w", err)
	}
	log.InfoContext(ctx, "downloading postgresql; about a minute, once", "version", string(version), "from", repository)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // another account runs these programs
		return fmt.Errorf("download: %w", err)
	}
	work, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	unpacked, err := unpack(ctx, embedded.DefaultConfig().BinaryRepositoryURL(repository).Version(version), work)
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	target := filepath.Join(dir, string(version))
	if err := os.Rename(unpacked, target); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("download: %w", err)
	}
	return nil
}

// unpack has the library download and unpack into a folder in work.
func unpack(ctx context.Context, config embedded.Config, work string) (dir string, err error) {
	free, err := freePort(ctx) // the library insists on one, though it will not come to listening
	if err != nil {
		return "", err
	}
	file := filepath.Join(work, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return "", err
	}
	logs := libraryLogs()
	dir = filepath.Join(work, "unpacked")
	err = embedded.NewDatabase(config.Port(free).Logger(io.Discard).CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "runtime")).BinariesPath(dir).DataPath(filepath.Join(file, "none"))).Start()
	for _, log := range libraryLogs() {
		if !slices.Contains(logs, log) {
			_ = os.Remove(log) // an empty file in the temporary directory is no harm
		}
	}
	if _, missing := os.Stat(filepath.Join(dir, "bin", "initdb")); missing != nil {
		return "", err
	}
	return dir, nil
}

// libraryLogs are the log files that the library leaves in the temporary directory.
func libraryLogs() []string {
	logs, _ := filepath.Glob(filepath.Join(os.TempDir(), "embedded_postgres_log*")) // the pattern is well formed
	return logs
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
