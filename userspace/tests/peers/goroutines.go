// A server whose goroutines wait for different things: it says its port, and serves until its standard input ends.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

var (
	mutex sync.Mutex
	work  = make(chan chan string)
)

// Goroutines that handlers hand work to.
func worker() {
	for reply := range work {
		for end := time.Now().Add(time.Millisecond); time.Now().Before(end); {
		}
		reply <- "ok\n"
	}
}

func answer(do func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, do()) }
}

func main() {
	go worker()
	go worker()
	http.HandleFunc("/sleep", answer(func() string {
		time.Sleep(3 * time.Millisecond)
		return "ok\n"
	}))
	http.HandleFunc("/lock", answer(func() string {
		mutex.Lock()
		defer mutex.Unlock()
		time.Sleep(time.Millisecond)
		return "ok\n"
	}))
	http.HandleFunc("/hand", answer(func() string {
		reply := make(chan string)
		work <- reply
		return <-reply
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, nil)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	io.Copy(io.Discard, os.Stdin)
}
