package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"

	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

// A span as the tests read it.
type span struct {
	Trace      string            `json:"trace"`
	Span       string            `json:"span"`
	Parent     string            `json:"parent"`
	Name       string            `json:"name"`
	Kind       string            `json:"kind"`
	Nanos      uint64            `json:"nanos"`
	Status     string            `json:"status"`
	Attributes map[string]string `json:"attributes"`
	Resource   map[string]string `json:"resource"`
	Key        string            `json:"key"`
}

// Receives OTLP/HTTP by the published messages, and prints each span as a line of JSON.
func collectTraces() {
	listener := listen()
	fmt.Println(portOf(listener))
	http.HandleFunc("/v1/traces", func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		must("content", err)
		check(r.Header.Get("Content-Type") == "application/x-protobuf", r.Header)
		request := &traces.ExportTraceServiceRequest{}
		must("message", proto.Unmarshal(content, request))
		check(len(request.ProtoReflect().GetUnknown()) == 0, "unknown fields")
		for _, resourceSpans := range request.ResourceSpans {
			for _, scopeSpans := range resourceSpans.ScopeSpans {
				check(scopeSpans.Scope.GetName() == "weir", scopeSpans.Scope)
				for _, received := range scopeSpans.Spans {
					check(len(received.ProtoReflect().GetUnknown()) == 0, received)
					check(len(received.TraceId) == 16 && len(received.SpanId) == 8, received)
					printed, err := json.Marshal(span{
						Trace:      hex.EncodeToString(received.TraceId),
						Span:       hex.EncodeToString(received.SpanId),
						Parent:     hex.EncodeToString(received.ParentSpanId),
						Name:       received.Name,
						Kind:       received.Kind.String(),
						Nanos:      received.EndTimeUnixNano - received.StartTimeUnixNano,
						Status:     received.Status.GetCode().String(),
						Attributes: texts(received.Attributes),
						Resource:   texts(resourceSpans.Resource.GetAttributes()),
						Key:        r.Header.Get("X-Api-Key"),
					})
					must("span", err)
					os.Stdout.Write(append(printed, '\n'))
				}
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	})
	go http.Serve(listener, nil)
	waitForStdin()
}

func texts(attributes []*common.KeyValue) map[string]string {
	values := map[string]string{}
	for _, attribute := range attributes {
		switch value := attribute.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			values[attribute.Key] = value.StringValue
		case *common.AnyValue_IntValue:
			values[attribute.Key] = fmt.Sprint(value.IntValue)
		default:
			fail("kind of a value", attribute)
		}
	}
	return values
}
