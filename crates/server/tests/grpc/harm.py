# Clients that mean harm, by frames of HTTP/2 made by hand, while another one is served.
import socket
import struct
import threading

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def literal(name, value):
    # Names and values as they are, without index or Huffman's code.
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


HEAD = b"".join(
    literal(name.encode(), value.encode())
    for name, value in {
        ":method": "POST",
        ":scheme": "http",
        ":path": METHOD,
        ":authority": "x",
        "content-type": "application/grpc",
        "te": "trailers",
    }.items()
)


def connect():
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return connection


def frames(connection):
    """The frames that arrive until the other side ends the connection."""
    buffer = b""
    while True:
        while len(buffer) >= 9:
            length = int.from_bytes(buffer[:3], "big")
            if len(buffer) < 9 + length:
                break
            yield buffer[3], int.from_bytes(buffer[5:9], "big"), buffer[9 : 9 + length]
            buffer = buffer[9 + length :]
        try:
            more = connection.recv(65536)
        except ConnectionResetError:
            return
        if not more:
            return
        buffer += more


def served():
    equal(shown("free=1"), ["OK", "OK 4294967295"])


# Requests that are taken back at once, again and again.
flood = connect()
ended = threading.Event()


told = []


def listen():
    for kind, _, body in frames(flood):
        if kind == GOAWAY:
            told.append(int.from_bytes(body[4:8], "big"))
    ended.set()


threading.Thread(target=listen, daemon=True).start()
try:
    for number in range(20_000):
        stream = 2 * number + 1
        flood.sendall(
            frame(HEADERS, END_HEADERS, stream, HEAD) + frame(RST, 0, stream, struct.pack(">I", 8))
        )
        if number % 1_000 == 0:
            served()
        if ended.is_set():
            break
except OSError:
    pass
assert ended.wait(10), "the flood was not ended"
equal(told[-1:], [11])  # ENHANCE_YOUR_CALM
served()

# A head that never ends, half a frame, bytes that are no HTTP/2, and sockets that are closed in the middle.
for junk in (b"GET / HTTP/1.1\r\n\r\n", PREFACE[:10], PREFACE + b"\x00\x00", PREFACE + frame(HEADERS, 0, 1, HEAD)):
    host, port = address.split(":")
    other = socket.create_connection((host, int(port)), timeout=20)
    other.sendall(junk)
    other.close()
served()
endless = connect()
try:
    endless.sendall(frame(HEADERS, 0, 1, HEAD))
    for _ in range(200):
        endless.sendall(frame(9, 0, 1, literal(b"a", b"b" * 100) * 100))
except OSError:
    pass
assert not [kind for kind, stream, _ in frames(endless) if kind == DATA]
served()

# A client that sends half a message and no more is not waited for.
slow = connect()
message = request("free=1").SerializeToString()
slow.sendall(frame(HEADERS, END_HEADERS, 1, HEAD))
slow.sendall(frame(DATA, 0, 1, b"\x00" + struct.pack(">I", len(message)) + message[:3]))
served()
answer = next(body for kind, stream, body in frames(slow) if kind == HEADERS and stream == 1)
assert answer, "it was answered"
served()
# The connection is as good as before.
slow.sendall(frame(HEADERS, END_HEADERS, 3, HEAD))
slow.sendall(frame(DATA, END_STREAM, 3, b"\x00" + struct.pack(">I", len(message)) + message))
answer = next(body for kind, stream, body in frames(slow) if kind == DATA and stream == 3)
equal(Response.FromString(answer[5:]).overall_code, 1)
print("done")
