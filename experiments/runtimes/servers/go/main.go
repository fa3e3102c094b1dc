// As server.py: server PORT LOG.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	_ "unsafe"
)

// CLOCK_MONOTONIC, as the runtime reads it.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

var (
	lock, noting sync.Mutex
	notes        strings.Builder
)

func note(number, what string, ms int, begin int64) int64 {
	now := nanotime()
	noting.Lock()
	fmt.Fprintf(&notes, "%s,%s,%d,%d,%d\n", number, what, ms, begin, now)
	noting.Unlock()
	return now
}

func burn(ms int) {
	for end := nanotime() + int64(ms)*1e6; nanotime() < end; {
	}
}

func handle(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	for _, one := range strings.Split(parts[3], ",") {
		step, text, _ := strings.Cut(one, "=")
		ms, _ := strconv.Atoi(text)
		pause := time.Duration(ms) * time.Millisecond
		begin := nanotime()
		switch step {
		case "burn":
			burn(ms)
		case "sleep":
			time.Sleep(pause)
		default:
			lock.Lock()
			begin = note(parts[2], "lockwait", 0, begin)
			time.Sleep(pause)
			lock.Unlock()
		}
		note(parts[2], step, ms, begin)
	}
	io.WriteString(w, "ok")
}

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() {
		<-ended
		noting.Lock()
		os.WriteFile(os.Args[2], []byte(notes.String()), 0o644)
		os.Exit(0)
	}()
	http.HandleFunc("/w/", handle)
	http.ListenAndServe("127.0.0.1:"+os.Args[1], nil)
}
