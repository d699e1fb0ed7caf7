package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Messages are wrapped bytes, so no code has to be generated.
type message = wrapperspb.BytesValue

func newMessage(content []byte) *message { return wrapperspb.Bytes(content) }

// Number of streams whose client left before their end.
var left = make(chan struct{}, 1000)

// Echoes a message with the metadata of the call; a field "x-fail" is a status.
func unary(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	request := new(message)
	if err := decode(request); err != nil {
		return nil, err
	}
	fields, _ := metadata.FromIncomingContext(ctx)
	grpc.SetHeader(ctx, metadata.Pairs("x-text", first(fields, "x-text")))
	grpc.SetTrailer(ctx, metadata.Pairs("x-data-bin", first(fields, "x-data-bin")))
	switch first(fields, "x-fail") {
	case "":
		return request, nil
	case "hang":
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		return nil, status.Error(codes.FailedPrecondition, "not: ü %\n")
	}
}

func first(fields metadata.MD, name string) string {
	if values := fields.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Sends the content of the request in 100 messages.
func download(_ any, stream grpc.ServerStream) error {
	request := new(message)
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	for range 100 {
		if err := stream.SendMsg(request); err != nil {
			return err
		}
	}
	return nil
}

// Responds with the number of bytes of all messages.
func upload(_ any, stream grpc.ServerStream) error {
	total := 0
	for {
		request := new(message)
		switch err := stream.RecvMsg(request); {
		case errors.Is(err, io.EOF):
			return stream.SendMsg(newMessage([]byte(fmt.Sprint(total))))
		case err != nil:
			return err
		}
		total += len(request.Value)
	}
}

// Echoes each message at once.
func chat(_ any, stream grpc.ServerStream) error {
	for {
		request := new(message)
		switch err := stream.RecvMsg(request); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			left <- struct{}{}
			return err
		}
		if err := stream.SendMsg(request); err != nil {
			return err
		}
	}
}

var service = grpc.ServiceDesc{
	ServiceName: "weir.Test",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Unary", Handler: unary}, {MethodName: "Left", Handler: countLeft}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Download", Handler: download, ServerStreams: true},
		{StreamName: "Upload", Handler: upload, ClientStreams: true},
		{StreamName: "Chat", Handler: chat, ServerStreams: true, ClientStreams: true},
	},
}

// Responds with the number of streams whose client left.
func countLeft(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	if err := decode(new(message)); err != nil {
		return nil, err
	}
	return newMessage([]byte(fmt.Sprint(len(left)))), nil
}

func serveGRPC() {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(16 << 20))
	server.RegisterService(&service, nil)
	listener := listen()
	go server.Serve(listener)
	fmt.Println(portOf(listener))
	waitForStdin()
}

// Calls a method with one message in each direction.
func call(conn *grpc.ClientConn, method string, request []byte, fields metadata.MD, options ...grpc.CallOption) ([]byte, error) {
	ctx, cancel := withTimeout(60 * time.Second)
	defer cancel()
	response := new(message)
	err := conn.Invoke(metadata.NewOutgoingContext(ctx, fields), "/weir.Test/"+method, newMessage(request), response, options...)
	return response.Value, err
}

func openStream(ctx context.Context, conn *grpc.ClientConn, at int) grpc.ClientStream {
	description := &service.Streams[at]
	stream, err := conn.NewStream(ctx, description, "/weir.Test/"+description.StreamName)
	must(description.StreamName, err)
	return stream
}

func runGRPCClient(address string, isTLS bool) {
	security := insecure.NewCredentials()
	if isTLS {
		security = credentials.NewTLS(clientTLS())
	}
	limits := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16 << 20))
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(security), limits)
	must("client", err)
	checkUnary(conn)
	checkStatus(conn)
	checkStreams(conn)
	checkCancel(conn)
}

func checkUnary(conn *grpc.ClientConn) {
	var header, trailer metadata.MD
	fields := metadata.Pairs("x-text", "a b", "x-data-bin", "\x00\xff\x01")
	for _, length := range []int{0, 1, 100, 16_384, 65_536, 3_000_000} {
		response, err := call(conn, "Unary", pattern(length), fields, grpc.Header(&header), grpc.Trailer(&trailer))
		must("unary", err)
		check(isPattern(response, length), "unary", length)
		check(first(header, "x-text") == "a b" && first(trailer, "x-data-bin") == "\x00\xff\x01", header, trailer)
	}
	response, err := call(conn, "Unary", pattern(100_000), nil, grpc.UseCompressor(gzip.Name))
	must("gzip", err)
	check(isPattern(response, 100_000), "gzip")
	var group sync.WaitGroup
	for n := range 200 {
		group.Add(1)
		go func() {
			defer group.Done()
			response, err := call(conn, "Unary", pattern(n*100), nil)
			must("parallel", err)
			check(isPattern(response, n*100), "parallel", n)
		}()
	}
	group.Wait()
	fmt.Println("unary")
}

func checkStatus(conn *grpc.ClientConn) {
	_, err := call(conn, "Unary", nil, metadata.Pairs("x-fail", "yes"))
	got := status.Convert(err)
	check(got.Code() == codes.FailedPrecondition && got.Message() == "not: ü %\n", "status", err)
	_, err = call(conn, "Missing", nil, nil)
	check(status.Code(err) == codes.Unimplemented, "missing", err)
	ctx, cancel := withTimeout(200 * time.Millisecond)
	defer cancel()
	hanging := metadata.NewOutgoingContext(ctx, metadata.Pairs("x-fail", "hang"))
	err = conn.Invoke(hanging, "/weir.Test/Unary", newMessage(nil), new(message))
	// The server has the same deadline, and may reset the stream first.
	check(status.Code(err) == codes.DeadlineExceeded, "deadline", err)
	fmt.Println("status")
}

// Calls a method of each kind, and prints the statuses.
func runGRPCFailure(address string) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must("client", err)
	_, err = call(conn, "Unary", nil, metadata.Pairs("x-fail", "hang"))
	fmt.Println(status.Code(err), status.Convert(err).Message())
	ctx, cancel := withTimeout(60 * time.Second)
	defer cancel()
	stream := openStream(ctx, conn, 2)
	// A call that has already failed sends no more; its status follows.
	if err = stream.SendMsg(newMessage(nil)); !errors.Is(err, io.EOF) {
		must("send", err)
	}
	err = stream.RecvMsg(new(message))
	fmt.Println(status.Code(err), status.Convert(err).Message())
}

func checkStreams(conn *grpc.ClientConn) {
	ctx, cancel := withTimeout(60 * time.Second)
	defer cancel()
	down := openStream(ctx, conn, 0)
	must("send", down.SendMsg(newMessage(pattern(20_000))))
	must("end", down.CloseSend())
	received := 0
	for {
		response := new(message)
		if err := down.RecvMsg(response); errors.Is(err, io.EOF) {
			break
		} else {
			must("download", err)
		}
		check(isPattern(response.Value, 20_000), "download")
		received++
	}
	fmt.Println("download", received)

	up := openStream(ctx, conn, 1)
	for range 100 {
		must("upload", up.SendMsg(newMessage(pattern(20_000))))
	}
	must("end", up.CloseSend())
	response := new(message)
	must("upload", up.RecvMsg(response))
	fmt.Println("upload", string(response.Value))

	// Each message needs the response to the one before: nothing may be held back.
	var group sync.WaitGroup
	for range 20 {
		group.Add(1)
		go func() {
			defer group.Done()
			both := openStream(ctx, conn, 2)
			for n := range 50 {
				must("chat", both.SendMsg(newMessage(pattern(n*50))))
				response := new(message)
				must("chat", both.RecvMsg(response))
				check(isPattern(response.Value, n*50), "chat", n)
			}
			must("end", both.CloseSend())
			check(errors.Is(both.RecvMsg(new(message)), io.EOF), "end of chat")
		}()
	}
	group.Wait()
	fmt.Println("chat")
}

func checkCancel(conn *grpc.ClientConn) {
	ctx, cancel := withTimeout(60 * time.Second)
	stream := openStream(ctx, conn, 2)
	must("send", stream.SendMsg(newMessage(nil)))
	must("receive", stream.RecvMsg(new(message)))
	cancel()
	check(status.Code(stream.RecvMsg(new(message))) == codes.Canceled, "cancel")
	waitUntil(func() bool {
		response, err := call(conn, "Left", nil, nil)
		must("left", err)
		return string(response) == "1"
	})
	fmt.Println("cancelled")
}
