package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Number of requests whose client left before their end.
var cancelled atomic.Int64

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/bytes", func(w http.ResponseWriter, r *http.Request) {
		length, _ := strconv.Atoi(r.URL.Query().Get("n"))
		w.Header().Set("X-Proto", r.Proto)
		w.Write(pattern(length))
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		// With HTTP/1.1 the server would drop content before it responds.
		must("full duplex", http.NewResponseController(w).EnableFullDuplex())
		w.Header().Set("Trailer", "X-Length")
		length, err := io.Copy(w, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("X-Length", strconv.FormatInt(length, 10))
		w.Header().Set(http.TrailerPrefix+"X-Received", r.Trailer.Get("X-Sum"))
	})
	mux.HandleFunc("/hints", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/hang", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("begin"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		cancelled.Add(1)
	})
	mux.HandleFunc("/cancelled", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, cancelled.Load())
	})
	return mux
}

func serveHTTP() {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:   handler(),
		Protocols: &protocols,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}},
	}
	plain, secure := listen(), listen()
	go server.Serve(plain)
	go server.ServeTLS(secure, "", "")
	fmt.Println(portOf(plain), portOf(secure))
	waitForStdin()
}

func httpClient(isTLS bool) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP2(isTLS)
	protocols.SetUnencryptedHTTP2(!isTLS)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:    clientTLS(),
		Protocols:          &protocols,
		DisableCompression: true,
	}}
}

// Sends a request that must succeed; returns its response and its content.
func send(client *http.Client, request *http.Request) (*http.Response, []byte) {
	response, err := client.Do(request)
	must(request.URL.Path, err)
	content, err := io.ReadAll(response.Body)
	must(request.URL.Path, err)
	check(response.ProtoMajor == 2, "protocol", response.Proto)
	return response, content
}

func newRequest(method, url string, body io.Reader) *http.Request {
	ctx, _ := withTimeout(60 * time.Second)
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	must("request", err)
	return request
}

func runHTTPClient(base string) {
	client := httpClient(strings.HasPrefix(base, "https"))
	get := func(path string) (*http.Response, []byte) {
		return send(client, newRequest("GET", base+path, nil))
	}
	get("/bytes?n=1")
	var group sync.WaitGroup
	for n := range 100 {
		group.Add(1)
		go func() {
			defer group.Done()
			_, content := get(fmt.Sprintf("/bytes?n=%d", n*1000))
			check(isPattern(content, n*1000), "content", n)
		}()
	}
	group.Wait()
	response, _ := get("/bytes?n=1")
	fmt.Println("parallel", response.Header.Get("X-Proto"))

	// Without a length: the content is a stream.
	body := io.MultiReader(bytes.NewReader(pattern(2_000_000)))
	request := newRequest("POST", base+"/echo", body)
	request.ContentLength = -1
	request.Trailer = http.Header{"X-Sum": {"7"}}
	response, content := send(client, request)
	check(isPattern(content, 2_000_000), "echo", len(content))
	fmt.Println("trailers", response.Trailer.Get("X-Length"), response.Trailer.Get("X-Received"))

	response, _ = get("/hints")
	fmt.Println("hints", response.StatusCode)

	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, "GET", base+"/hang", nil)
	must("request", err)
	response, err = client.Do(request)
	must("hang", err)
	_, err = io.ReadFull(response.Body, make([]byte, 5))
	must("hang", err)
	cancel()
	waitUntil(func() bool {
		_, content := get("/cancelled")
		return string(content) == "1"
	})
	fmt.Println("cancelled")
}

// Waits until a condition holds.
func waitUntil(holds func() bool) {
	for range 3000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	fail("a condition did not become true")
}
