// A server and its clients: pair serve PORT | pair ask PORT CLIENTS REQUESTS
//
// Each request is 64 bytes, each answer 100. The clients print the number of answers.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

func serve(address string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer conn.Close()
			asked, answer := make([]byte, 64), make([]byte, 100)
			for {
				if _, err := io.ReadFull(conn, asked); err != nil {
					return
				}
				if _, err := conn.Write(answer); err != nil {
					return
				}
			}
		}()
	}
}

func ask(address string, clients, requests int) {
	var answers atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Add(1)
		go func() {
			defer all.Done()
			conn, err := net.Dial("tcp", address)
			if err != nil {
				log.Fatal(err)
			}
			defer conn.Close()
			asked, answer := make([]byte, 64), make([]byte, 100)
			for range requests {
				if _, err := conn.Write(asked); err != nil {
					log.Fatal(err)
				}
				if _, err := io.ReadFull(conn, answer); err != nil {
					log.Fatal(err)
				}
				answers.Add(1)
			}
		}()
	}
	all.Wait()
	fmt.Println(answers.Load())
}

func main() {
	address := "127.0.0.1:" + os.Args[2]
	if os.Args[1] == "serve" {
		serve(address)
	}
	clients, _ := strconv.Atoi(os.Args[3])
	requests, _ := strconv.Atoi(os.Args[4])
	ask(address, clients, requests)
}
