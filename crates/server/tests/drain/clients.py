# Clients that ask as fast as they can while the first of two services leaves: by gRPC, which moves to the second by itself, and by
# frames of HTTP/2 made by hand, which see what the service says before it goes. Arguments: both addresses of gRPC, and that of HTTP.
import json
import socket
import struct
import sys
import threading

import grpc

first, second, http = sys.argv[1:4]
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
stop = threading.Event()
answers, failures, told = [], [], []


def field(number, body):
    return bytes([number << 3 | 2, len(body)]) + body


def request():
    entry = field(1, b"client") + field(2, b"all")
    return field(1, b"shop") + field(2, field(1, entry))


def speak_grpc():
    options = [
        ("grpc.lb_policy_name", "round_robin"),
        ("grpc.use_local_subchannel_pool", 1),
        # Two addresses are no name of a host.
        ("grpc.default_authority", "localhost"),
    ]
    count = 0
    with grpc.insecure_channel(f"ipv4:{first},{second}", options) as channel:
        ask = channel.unary_unary(METHOD, lambda message: message, lambda message: message)
        while not stop.is_set():
            try:
                answer = ask(request(), timeout=10)
                assert answer[:2] == b"\x08\x01", answer
                count += 1
            except grpc.RpcError as error:
                failures.append(f"gRPC: {error.code()} {error.details()}")
    answers.append(count)


DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def literal(name, value):
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def speak_http2():
    host, port = http.split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
    connection.sendall(frame(WINDOW, 0, 0, struct.pack(">I", 1 << 30)))
    head = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/v1/check"), (b":authority", b"localhost")]
    head = b"".join(literal(name, value) for name, value in head)
    body = b'{"attributes": {"client": "all"}}'
    waiting, following, count, buffer, last = set(), 1, 0, b"", None
    while True:
        while last is None and len(waiting) < 20:
            asked = frame(HEADERS, END_HEADERS, following, head) + frame(DATA, END_STREAM, following, body)
            connection.sendall(asked)
            waiting.add(following)
            following += 2
        try:
            more = connection.recv(65536)
        except OSError as error:
            failures.append(f"HTTP/2: {error}")
            break
        if not more:
            break
        buffer += more
        while len(buffer) >= 9 and len(buffer) >= 9 + int.from_bytes(buffer[:3], "big"):
            length = int.from_bytes(buffer[:3], "big")
            kind, flags, stream = buffer[3], buffer[4], int.from_bytes(buffer[5:9], "big")
            payload, buffer = buffer[9 : 9 + length], buffer[9 + length :]
            if kind == HEADERS and payload[:1] != b"\x88":
                failures.append(f"HTTP/2: stream {stream} got no 200: {payload!r}")
            if kind in (HEADERS, DATA) and flags & END_STREAM:
                waiting.discard(stream)
                count += 1
            if kind == PING and not flags & ACK:
                connection.sendall(frame(PING, ACK, 0, payload))
            if kind == SETTINGS and not flags & ACK:
                connection.sendall(frame(SETTINGS, ACK, 0))
            if kind == RST:
                failures.append(f"HTTP/2: stream {stream} was reset")
            if kind == GOAWAY:
                last, code = struct.unpack(">II", payload[:8])
                told.append(code)
    if last is None:
        failures.append("HTTP/2: it ended without a GOAWAY")
    # What was sent too late was not looked at, and is known not to have been.
    lost = [stream for stream in waiting if last is not None and stream <= last]
    if lost:
        failures.append(f"HTTP/2: no answer for {lost}")
    answers.append(count)


threads = [threading.Thread(target=speak) for speak in [speak_grpc] * 4 + [speak_http2]]
for thread in threads:
    thread.start()
print("asking", flush=True)
sys.stdin.readline()
stop.set()
for thread in threads:
    thread.join()
print(json.dumps({"answers": answers, "failures": failures[:5], "told": told}))
