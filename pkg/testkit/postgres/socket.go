//go:build unix

package postgres

import (
	"fmt"
	"os"
	"path/filepath"
)

// longestSocketDir leaves room for "/.s.PGSQL." and a port in the 107 bytes that the path of a unix socket may have (103 on BSD
// and macOS).
const longestSocketDir = 103 - len("/.s.PGSQL.65535")

// socketDir makes the folder of the socket: in the temporary directory, because the data folder's path may be too long,
// and named for the data folder, so that the address stays the same from start to start. Only the account that runs the
// server may enter it, which is why the server can trust every connection.
func socketDir(dir string, who *account) (string, error) {
	socket := filepath.Join(os.TempDir(), "lockstep-pg-"+digest(dir))
	if len(socket) > longestSocketDir {
		socket = filepath.Join("/tmp", filepath.Base(socket))
	}
	uid := uint32(os.Geteuid())
	if who != nil {
		uid = who.uid
		if !who.reaches(filepath.Dir(socket)) {
			socket = filepath.Join("/tmp", filepath.Base(socket))
		}
	}
	if err := makePrivate(socket, 0o700, uid); err != nil {
		return "", fmt.Errorf("make the socket's folder: %w", err)
	}
	return socket, who.own(socket)
}
