// server serve PORT: answers HTTP requests with a few bytes, those for /asked after 20 ms.
// server load PORT CONNECTIONS REQUESTS: makes requests to it, and prints the answers per second.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

func number(at int) int {
	number, err := strconv.Atoi(os.Args[at])
	check(err)
	return number
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func serve() {
	answer := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") }
	http.HandleFunc("/", answer)
	http.HandleFunc("/asked", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		answer(w, r)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[2])
	check(err)
	fmt.Println("ready")
	check(http.Serve(listener, nil))
}

func ask(requests int) {
	connection, err := net.Dial("tcp", "127.0.0.1:"+os.Args[2])
	check(err)
	reader := bufio.NewReader(connection)
	for ; requests > 0; requests-- {
		_, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		check(err)
		answer, err := http.ReadResponse(reader, nil)
		check(err)
		_, err = io.Copy(io.Discard, answer.Body)
		check(err)
		answer.Body.Close()
	}
	connection.Close()
}

func load() {
	connections, requests := number(3), number(4)
	var all sync.WaitGroup
	begin := time.Now()
	for connection := 0; connection < connections; connection++ {
		all.Add(1)
		go func() {
			ask(requests / connections)
			all.Done()
		}()
	}
	all.Wait()
	fmt.Println(int(float64(requests/connections*connections) / time.Since(begin).Seconds()))
}

func main() {
	map[string]func(){"serve": serve, "load": load}[os.Args[1]]()
}
