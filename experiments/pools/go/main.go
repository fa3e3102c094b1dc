// A front end that asks the back end on few connections (MaxConnsPerHost). Notes how long each request waited for one:
// its path and nanoseconds. Arguments: its port, the back end's, number of connections, file.
package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"sync"
	"time"
)

func main() {
	port, behind, file := os.Args[1], os.Args[2], os.Args[4]
	size, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	notes, err := os.Create(file)
	if err != nil {
		panic(err)
	}
	var lock sync.Mutex
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: size, MaxIdleConnsPerHost: size}}
	handle := func(answer http.ResponseWriter, asked *http.Request) {
		begun := time.Now()
		trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
			waited := time.Since(begun)
			lock.Lock()
			defer lock.Unlock()
			fmt.Fprintf(notes, "%s %d\n", asked.URL.Path, waited.Nanoseconds())
		}}
		request, err := http.NewRequest("GET", "http://127.0.0.1:"+behind+asked.URL.Path, nil)
		if err != nil {
			panic(err)
		}
		heard, err := client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadGateway)
			return
		}
		io.Copy(io.Discard, heard.Body)
		heard.Body.Close()
		io.WriteString(answer, "ok")
	}
	panic(http.ListenAndServe("127.0.0.1:"+port, http.HandlerFunc(handle)))
}
