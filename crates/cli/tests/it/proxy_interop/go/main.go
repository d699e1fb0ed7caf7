// Clients and servers of Go's net/http and of gRPC, for tests of weir.
//
//	interop http-server            prints the ports of a plain listener and of one with TLS
//	interop http-client URL
//	interop grpc-server            prints its port
//	interop grpc-client HOST:PORT plain|tls
//	interop grpc-failure HOST:PORT
//	interop collect-traces         prints its port, and each span that it receives
//
// Servers end with their stdin. Clients print a line for each check that passed.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fail("no command")
	}
	switch os.Args[1] {
	case "http-server":
		serveHTTP()
	case "http-client":
		runHTTPClient(os.Args[2])
	case "grpc-server":
		serveGRPC()
	case "grpc-client":
		runGRPCClient(os.Args[2], os.Args[3] == "tls")
	case "grpc-failure":
		runGRPCFailure(os.Args[2])
	case "collect-traces":
		collectTraces()
	default:
		fail("unknown command " + os.Args[1])
	}
}

// Ends the program after a check that failed.
func fail(values ...any) {
	fmt.Fprintln(os.Stderr, append([]any{"failed:"}, values...)...)
	os.Exit(1)
}

func must(what string, err error) {
	if err != nil {
		fail(what, err)
	}
}

func check(holds bool, values ...any) {
	if !holds {
		fail(values...)
	}
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must("listen", err)
	return listener
}

func portOf(listener net.Listener) int {
	return listener.Addr().(*net.TCPAddr).Port
}

func waitForStdin() {
	io.Copy(io.Discard, os.Stdin)
}

// Creates a self-signed certificate.
func certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must("key", err)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(24 * time.Hour),
		DNSNames:     []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	must("certificate", err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func clientTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true}
}

// Bytes that show a piece at a wrong position.
func pattern(length int) []byte {
	content := make([]byte, length)
	for at := range content {
		content[at] = byte(at ^ at>>8 ^ at>>16)
	}
	return content
}

func isPattern(content []byte, length int) bool {
	return len(content) == length && bytes.Equal(content, pattern(length))
}

func withTimeout(timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), timeout)
}
