// SPDX-License-Identifier: MIT OR Apache-2.0

// A server in Go that answers its own requests, and does one more thing: go_loop WHAT SECONDS DIRECTORY.
package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const held = 4 * time.Millisecond

var directory = os.Args[3]

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func save() {
	file, err := os.Create(filepath.Join(directory, "saved"))
	must(err)
	_, err = file.Write(make([]byte, 4096))
	must(err)
	must(file.Sync())
	must(file.Close())
}

var kept [][]string

func makeGarbage() {
	for round := 0; round < 50; round++ {
		lines := make([]string, 0, 2000)
		for number := 0; number < 2000; number++ {
			lines = append(lines, fmt.Sprint("line ", number))
		}
		kept = append(kept, lines)
		if len(kept) > 100 {
			kept = kept[1:]
		}
	}
}

func share() {
	var lock sync.Mutex
	var all sync.WaitGroup
	lines := make(chan int, 10)
	for worker := 0; worker < 8; worker++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for line := range lines {
				lock.Lock()
				_ = line * line
				lock.Unlock()
			}
		}()
	}
	for number := 0; number < 200; number++ {
		lines <- number
	}
	close(lines)
	all.Wait()
}

// Another process has the lock most of the time.
func heldFile() func() {
	path := filepath.Join(directory, "lock")
	file, err := os.Create(path)
	must(err)
	holder := exec.Command("sh", "-c", "while :; do flock -x "+path+" sleep 0.004; sleep 0.001; done")
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(holder.Start())
	return func() {
		must(syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
		must(syscall.Flock(int(file.Fd()), syscall.LOCK_UN))
	}
}

// A process that writes late, to a pipe that the poller does not know.
func slowPipe() func() {
	var ends [2]int
	must(syscall.Pipe2(ends[:], syscall.O_CLOEXEC))
	go func() {
		for {
			time.Sleep(held)
			_, _ = syscall.Write(ends[1], []byte("line"))
		}
	}()
	return func() {
		// The first takes all that is there.
		for reads := 0; reads < 2; reads++ {
			_, err := syscall.Read(ends[0], make([]byte, 4096))
			must(err)
		}
	}
}

func things() map[string]func() func() {
	just := func(does func()) func() func() { return func() func() { return does } }
	return map[string]func() func(){
		"talks":           just(func() {}),
		"makes-garbage":   just(makeGarbage),
		"shares-work":     just(share),
		"waits-for-timer": just(func() { time.Sleep(held) }),
		"asks-a-slow-peer": just(func() {
			one, other := net.Pipe()
			go func() { time.Sleep(held); _, _ = other.Write([]byte("yes\n")) }()
			_, err := bufio.NewReader(one).ReadString('\n')
			must(err)
		}),
		"saves": just(save),
		"sleeps": just(func() {
			wait := syscall.NsecToTimespec(int64(held))
			_ = syscall.Nanosleep(&wait, nil)
		}),
		"waits-for-processes": just(func() { must(exec.Command("sleep", "0.003").Run()) }),
		"locks-a-file":        heldFile,
		"reads-a-slow-pipe":   slowPipe,
	}
}

func main() {
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	must(err)
	does := things()[os.Args[1]]()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go http.Serve(listener, http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		does()
		fmt.Fprintln(out, "yes")
	}))
	until := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var all sync.WaitGroup
	for client := 0; client < 4; client++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(until) {
				response, err := http.Get("http://" + listener.Addr().String())
				must(err)
				_ = response.Body.Close()
				time.Sleep(10 * time.Millisecond)
			}
		}()
	}
	all.Wait()
}
