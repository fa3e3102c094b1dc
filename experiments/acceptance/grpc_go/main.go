// A gRPC server and its client: grpc_go serve PORT | grpc_go ask PORT STREAMS REQUESTS
//
// The client has one connection with STREAMS requests in flight on it. Each stream makes REQUESTS
// requests. The client prints the number of answers.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func answer(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	if err := decode(new(wrapperspb.BytesValue)); err != nil {
		return nil, err
	}
	return wrapperspb.Bytes(make([]byte, 100)), nil
}

var service = grpc.ServiceDesc{
	ServiceName: "pair.Pair",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Ask", Handler: answer}},
}

func serve(address string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	server.RegisterService(&service, struct{}{})
	log.Fatal(server.Serve(listener))
}

func ask(address string, streams, requests int) {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	var answers atomic.Int64
	var all sync.WaitGroup
	for range streams {
		all.Add(1)
		go func() {
			defer all.Done()
			for range requests {
				asked, answer := wrapperspb.Bytes(make([]byte, 64)), new(wrapperspb.BytesValue)
				if err := connection.Invoke(context.Background(), "/pair.Pair/Ask", asked, answer); err != nil {
					log.Fatal(err)
				}
				answers.Add(1)
			}
		}()
	}
	all.Wait()
	connection.Close()
	fmt.Println(answers.Load())
}

func main() {
	address := "127.0.0.1:" + os.Args[2]
	if os.Args[1] == "serve" {
		serve(address)
	}
	streams, _ := strconv.Atoi(os.Args[3])
	requests, _ := strconv.Atoi(os.Args[4])
	ask(address, streams, requests)
}
