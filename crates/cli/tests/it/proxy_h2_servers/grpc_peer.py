"""A server of gRPC (`serve`), and a client (`call ADDRESS`) that makes every kind of call."""
import queue, sys
from concurrent import futures

import grpc


def same(message):
    return message


class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        def unary(request, context):
            context.set_trailing_metadata((("x-trailer", "1"),))
            return b"re:" + request

        def fail(request, context):
            context.abort(grpc.StatusCode.NOT_FOUND, "nothing here")

        def down(request, context):
            for number in range(int(request)):
                yield b"%d" % number

        def up(requests, context):
            return b"%d" % sum(map(len, requests))

        def both(requests, context):
            for request in requests:
                yield b"echo " + request

        def never(request, context):
            context.add_callback(finished.set)
            finished.wait(60)
            return b""

        method = details.method.rsplit("/", 1)[1]
        kind, function = {
            "Unary": (grpc.unary_unary_rpc_method_handler, unary),
            "Fail": (grpc.unary_unary_rpc_method_handler, fail),
            "Down": (grpc.unary_stream_rpc_method_handler, down),
            "Up": (grpc.stream_unary_rpc_method_handler, up),
            "Both": (grpc.stream_stream_rpc_method_handler, both),
            "Never": (grpc.unary_unary_rpc_method_handler, never),
        }[method]
        return kind(function, same, same)


def call(address):
    channel = grpc.insecure_channel(address)
    unary = channel.unary_unary("/t.S/Unary", same, same)
    response, call = unary.with_call(b"x")
    print("unary", response.decode(), dict(call.trailing_metadata()).get("x-trailer"))
    print("large", len(unary(b"y" * 2_000_000)))
    print("down", len(list(channel.unary_stream("/t.S/Down", same, same)(b"500"))))
    print("up", channel.stream_unary("/t.S/Up", same, same)(iter([b"z" * 1000] * 500)).decode())
    requests = queue.Queue()
    responses = channel.stream_stream("/t.S/Both", same, same)(iter(requests.get, None))
    # Each message waits for the response to the one before it.
    for number in range(3):
        requests.put(b"%d" % number)
        print("both", next(responses).decode())
    requests.put(None)
    print("end", list(responses))
    for method, timeout in (("Fail", 30), ("Never", 1)):
        try:
            channel.unary_unary("/t.S/" + method, same, same)(b"", timeout=timeout)
        except grpc.RpcError as error:
            print(method.lower(), error.code().name)


if sys.argv[1] == "call":
    call(sys.argv[2])
else:
    import threading
    finished = threading.Event()
    server = grpc.server(futures.ThreadPoolExecutor(20))
    server.add_generic_rpc_handlers((Handler(),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
