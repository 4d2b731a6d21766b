package workflow

import "runtime"

// heapFloor is how much the collector takes the heap to hold at least, in bytes.
const heapFloor = 32 << 20

// RoomyHeap has the collector run less often while little is in memory, until release. It runs whenever the heap has
// doubled, and an engine that holds a few MiB doubles it many times a second: that was a tenth of its processor time. The
// block is never written to, so it takes addresses and no memory; a heap that is large already does not notice it, and no
// limit of memory is changed. It is for a process whose main work the engine is.
func RoomyHeap() (release func()) {
	block := make([]byte, heapFloor)
	return func() { runtime.KeepAlive(block) }
}
