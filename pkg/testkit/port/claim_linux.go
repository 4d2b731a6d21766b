package port

import (
	"io"
	"net"
	"strconv"
)

// claim keeps others, of whichever account, from choosing the port: a socket in the abstract namespace, which the kernel drops
// with the process.
func claim(port int) (io.Closer, error) {
	//nolint:noctx // bound at once or not at all
	return net.Listen("unix", "@lockstep-port-"+strconv.Itoa(port))
}
