// Burns known shares in named functions, on a locked thread so that it can measure itself, and in a goroutine.
package main

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

const processClock, threadClock = 2, 3

func cpuNs(clock uintptr) uint64 {
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0)
	return uint64(t.Sec)*1000000000 + uint64(t.Nsec)
}

var kept uint64
var seed uint64 = 88172645463325252

func around(mean int) int {
	seed ^= seed << 13
	seed ^= seed >> 7
	seed ^= seed << 17
	return mean/2 + int(seed%uint64(mean))
}

//go:noinline
func half(n int) {
	x := uint64(n)
	for i := 0; i < n; i++ { x = x*6364136223846793005 + 1442695040888963407 } // LINE half
	kept = x
}

func mixedIn(x uint64, n int) uint64 {
	for i := 0; i < n; i++ { x = x*6364136223846793005 + 1442695040888963407 } // LINE mixedIn
	return x
}

//go:noinline
func fifth(n int) {
	kept = mixedIn(uint64(n), n)
}

//go:noinline
func inner(n int) {
	x := uint64(n)
	for i := 0; i < n; i++ { x = x*6364136223846793005 + 1442695040888963407 } // LINE inner
	kept = x
}

//go:noinline
func middle(n int) { inner(n); kept++ }

//go:noinline
func outer(n int) { middle(n); kept++ }

func measured(sum *uint64, work func(int), n int) {
	before := cpuNs(threadClock)
	work(n)
	*sum += cpuNs(threadClock) - before
}

func main() {
	runtime.LockOSThread()
	var ofHalf, ofOuter, ofFifth uint64
	for cpuNs(threadClock) < 1500000000 {
		measured(&ofHalf, half, around(500000))
		measured(&ofOuter, outer, around(300000))
		measured(&ofFifth, fifth, around(200000))
	}
	fmt.Printf("{\"cpu_ns\": %d, \"half\": %d, \"outer\": %d, \"fifth\": %d}\n", cpuNs(processClock), ofHalf, ofOuter, ofFifth)
}
