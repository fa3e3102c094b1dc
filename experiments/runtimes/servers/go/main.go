// Like steps.py: server PORT LOG BACKEND.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	_ "unsafe"
)

// CLOCK_MONOTONIC, as the runtime reads it.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

type node struct {
	next   *node
	number int
}

var (
	lock    sync.Mutex
	notes   [1 << 20]string
	noted   atomic.Int64
	kept    *node
	handed  = make(chan handOver, 256)
	backend = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
)

type handOver struct {
	number string
	amount int
	begin  int64
	done   chan struct{}
}

// work does the requests' jobs one after the other.
func work() {
	for one := range handed {
		begin := note(one.number, "handwait", 0, one.begin)
		burn(one.amount)
		note(one.number, "hand", one.amount, begin)
		close(one.done)
	}
}

// note takes no lock, because requests would have to wait for it.
func note(number, what string, amount int, begin int64) int64 {
	now := nanotime()
	notes[noted.Add(1)-1] = fmt.Sprintf("%s,%s,%d,%d,%d\n", number, what, amount, begin, now)
	return now
}

func burn(ms int) {
	for end := nanotime() + int64(ms)*1e6; nanotime() < end; {
	}
}

func collect(times int) {
	for ; times > 0; times-- {
		runtime.GC()
	}
}

func call(number string, ms int) {
	// The transport tells when it looked for a connection and when it had one: that of another request that was over
	// meanwhile, or one of its own.
	var sought int64
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { sought = nanotime() },
		GotConn: func(got httptrace.GotConnInfo) {
			what := "connect"
			if got.Reused {
				what = "connwait"
			}
			note(number, what, 0, sought)
		},
	}
	url := "http://127.0.0.1:" + os.Args[3] + "/b/" + number + "/" + strconv.Itoa(ms)
	question, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), "GET", url, nil)
	if err != nil {
		panic(err)
	}
	answer, err := backend.Do(question)
	if err != nil {
		panic(err)
	}
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

func handle(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	for _, one := range strings.Split(parts[3], ",") {
		step, text, _ := strings.Cut(one, "=")
		amount, _ := strconv.Atoi(text)
		pause := time.Duration(amount) * time.Millisecond
		begin := nanotime()
		switch step {
		case "burn":
			burn(amount)
		case "collect":
			collect(amount)
		case "sleep":
			time.Sleep(pause)
		case "call":
			call(parts[2], amount)
		case "hand":
			done := make(chan struct{})
			handed <- handOver{parts[2], amount, begin, done}
			<-done
			continue
		default:
			lock.Lock()
			begin = note(parts[2], "lockwait", 0, begin)
			time.Sleep(pause)
			lock.Unlock()
		}
		note(parts[2], step, amount, begin)
	}
	io.WriteString(w, "ok")
}

func main() {
	for number := 0; number < 100_000; number++ {
		kept = &node{kept, number}
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() {
		<-ended
		os.WriteFile(os.Args[2], []byte(strings.Join(notes[:noted.Load()], "")), 0o644)
		os.Exit(0)
	}()
	// Builds this package's tables before the first requests, which would otherwise wait for them,
	// by a lock that no note records.
	textproto.CanonicalMIMEHeaderKey("host")
	go work()
	http.HandleFunc("/w/", handle)
	http.ListenAndServe("127.0.0.1:"+os.Args[1], nil)
}
