// Peer of TCP in user space with the HTTP of Go's standard library.
//
//	peer client URL REQUESTS 1|2    GETs and POSTs of several sizes over a few connections; prints what it has counted
//	peer server ADDRESS             HTTP/1.1, and HTTP/2 with prior knowledge; /stats has the counts
package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const workers = 8

func fail(values ...any) {
	fmt.Fprintln(os.Stderr, values...)
	os.Exit(1)
}

func protocols() *http.Protocols {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return protocols
}

// Sends one request and checks the length of its response.
func exchange(client *http.Client, url string, number int) (string, int) {
	size := []int{0, 1, 100, 1460, 20000}[number%5]
	target := fmt.Sprintf("%s/?s=%d", url, size)
	var response *http.Response
	var err error
	if number%4 == 3 {
		response, err = client.Post(target, "text/plain", bytes.NewReader(make([]byte, 30000)))
	} else {
		response, err = client.Get(target)
	}
	if err != nil {
		fail(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 || len(body) != size {
		fail(target, response.StatusCode, len(body), err)
	}
	return response.Proto, size
}

func runClient(url string, requests int, version string) {
	transport := &http.Transport{
		MaxIdleConnsPerHost: workers,
		MaxConnsPerHost:     workers,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		Protocols:           protocols(),
	}
	if version == "2" {
		transport.Protocols.SetHTTP1(false)
	} else {
		transport.Protocols.SetHTTP2(false)
		transport.Protocols.SetUnencryptedHTTP2(false)
	}
	client := &http.Client{Transport: transport}
	var total atomic.Int64
	var proto atomic.Value
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for number := worker; number < requests; number += workers {
				used, size := exchange(client, url, number)
				proto.Store(used)
				total.Add(int64(size))
			}
		})
	}
	group.Wait()
	fmt.Println(requests, total.Load(), proto.Load())
}

func runServer(address string) {
	var requests, received atomic.Int64
	handle := func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/stats" {
			fmt.Fprint(writer, requests.Load(), " ", received.Load())
			return
		}
		count, err := io.Copy(io.Discard, request.Body)
		if err != nil {
			return
		}
		requests.Add(1)
		received.Add(count)
		size, _ := strconv.Atoi(request.URL.Query().Get("s"))
		io.WriteString(writer, strings.Repeat("x", size))
	}
	server := http.Server{Addr: address, Handler: http.HandlerFunc(handle), Protocols: protocols()}
	fail(server.ListenAndServe())
}

func main() {
	switch {
	case len(os.Args) == 5 && os.Args[1] == "client":
		requests, err := strconv.Atoi(os.Args[3])
		if err != nil {
			fail(err)
		}
		runClient(os.Args[2], requests, os.Args[4])
	case len(os.Args) == 3 && os.Args[1] == "server":
		runServer(os.Args[2])
	default:
		fail("usage: peer client URL REQUESTS 1|2, peer server ADDRESS")
	}
}
