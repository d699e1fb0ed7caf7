// Both ends of an echo over HTTP/1.1: `serve` prints its port, `ask HOST PORT` checks what comes back.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Sha256", fmt.Sprintf("%x", sha256.Sum256(body)))
	if !strings.Contains(r.URL.Path, "chunked") {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	}
	for at := 0; at < len(body); at += 30011 {
		w.Write(body[at:min(at+30011, len(body))])
		w.(http.Flusher).Flush()
	}
}

func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
	must(http.Serve(listener, http.HandlerFunc(echo)))
}

func ask(base string) {
	transport := &http.Transport{ExpectContinueTimeout: 5 * time.Second, DisableCompression: true}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	checked := 0
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "X-OWN"} {
		for _, size := range []int{0, 1, 1000, 300000} {
			for _, chunked := range []bool{false, true} {
				for _, path := range []string{"/plain", "/chunked"} {
					for _, expect := range []bool{false, true} {
						body := make([]byte, size)
						rand.Read(body)
						var reader io.Reader = bytes.NewReader(body)
						if chunked {
							reader = struct{ io.Reader }{reader}
						}
						request, err := http.NewRequest(method, base+path, reader)
						must(err)
						if expect && size > 0 {
							request.Header.Set("Expect", "100-continue")
						}
						answer, err := client.Do(request)
						must(err)
						got, err := io.ReadAll(answer.Body)
						must(err)
						answer.Body.Close()
						sha := fmt.Sprintf("%x", sha256.Sum256(body))
						if answer.StatusCode != 200 || !bytes.Equal(got, body) || answer.Header.Get("X-Sha256") != sha {
							must(fmt.Errorf("%s %d %v %s: %v, %d bytes", method, size, chunked, path, answer, len(got)))
						}
						checked++
					}
				}
			}
		}
	}
	fmt.Println("checked", checked)
}

func main() {
	if os.Args[1] == "serve" {
		serve()
	} else {
		ask("http://" + os.Args[2] + ":" + os.Args[3])
	}
}
