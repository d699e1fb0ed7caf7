// Requests with Go's net/http over TLS: GETs in parallel on one connection, a POST.
package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

func main() {
	base := os.Args[1]
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: true,
		MaxConnsPerHost:   1,
	}
	client := &http.Client{Transport: transport}
	var group sync.WaitGroup
	for n := 0; n < 200; n++ {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			response, err := client.Get(fmt.Sprintf("%s/?s=%d&t=%d", base, n*500, n%5))
			if err != nil {
				panic(err)
			}
			body, err := io.ReadAll(response.Body)
			if err != nil || len(body) != n*500 || response.ProtoMajor != 2 {
				panic(fmt.Sprint(n, len(body), response.Proto, err))
			}
		}(n)
	}
	group.Wait()
	response, err := client.Post(base+"/?s=5", "text/plain", bytes.NewReader(make([]byte, 1000000)))
	if err != nil {
		panic(err)
	}
	body, err := io.ReadAll(response.Body)
	fmt.Println(len(body), response.StatusCode, response.Proto, err)
}
