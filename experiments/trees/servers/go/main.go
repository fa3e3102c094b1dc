// Like front.py: main proxy|calls PORT BEHIND.
package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	behind := "http://127.0.0.1:" + os.Args[3]
	transport := &http.Transport{MaxIdleConnsPerHost: 1024}
	client := &http.Client{Transport: transport}
	ask := func(number string, child int) {
		answer, err := client.Get(fmt.Sprintf("%s/b/%s/%d", behind, number, child))
		if err != nil {
			panic(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	if os.Args[1] == "proxy" {
		to, _ := url.Parse(behind)
		proxy := httputil.NewSingleHostReverseProxy(to)
		proxy.Transport = transport
		http.Handle("/", proxy)
	} else {
		http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			parts := strings.Split(r.URL.Path, "/")
			child := 0
			for _, step := range strings.Split(parts[3], ",") {
				switch what, count := step[0], step[1:]; what {
				case 's':
					ms, _ := strconv.Atoi(count)
					time.Sleep(time.Duration(ms) * time.Millisecond)
				case 'c':
					ask(parts[2], child)
					child++
				case 'p':
					var both sync.WaitGroup
					for asked := 0; asked < 2; asked++ {
						both.Add(1)
						go func(child int) { ask(parts[2], child); both.Done() }(child)
						child++
					}
					both.Wait()
				}
			}
			io.WriteString(w, "ok")
		})
	}
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[2], nil))
}
