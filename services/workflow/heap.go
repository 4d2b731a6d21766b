package workflow

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// heapFloor is how much the collector takes the heap to hold at least, in bytes.
	heapFloor = 16 << 20
	// heapGrowth is by how much the heap grows before the collector runs, in percent of what it holds.
	heapGrowth = 200
)

// RoomyHeap has the collector run less often, until release: with Go's defaults it runs whenever the heap has doubled, which was a tenth of
// the engine's processor time, and an engine that holds a few MiB doubles it many times a second. So the heap may triple, and a block that
// is never written to, and so takes addresses and no memory, counts as held. Near the limit of memory (GOMEMLIMIT) the collector runs as
// often as that needs. With GOGC set, that alone decides. It is for a process whose main work the engine is.
func RoomyHeap() (release func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(heapGrowth)
	block := make([]byte, heapFloor)
	return func() {
		runtime.KeepAlive(block)
		debug.SetGCPercent(before)
	}
}
