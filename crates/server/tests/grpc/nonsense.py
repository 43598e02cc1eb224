# Messages that make no sense get gRPC's own errors, and the next is answered.
code = grpc.StatusCode


def alive():
    equal(shown("free=1"), ["OK", "OK 4294967295"])


good = request("free=1").SerializeToString()
fails(code.INVALID_ARGUMENT, "ends in the middle", lambda: raw(good[:-1], timeout=10))
fails(code.INVALID_ARGUMENT, "no RateLimitRequest", lambda: raw(b"\xff" * 50, timeout=10))
fails(code.INVALID_ARGUMENT, "not UTF-8", lambda: raw(b"\x0a\x01\xff", timeout=10))
fails(code.INVALID_ARGUMENT, "at most 256 descriptors", lambda: ask(*["free=1"] * 257))
fails(code.INVALID_ARGUMENT, "at most 64 entries", lambda: ask(",".join(["free=1"] * 65)))
equal(shown(*["free=1"] * 256)[:2], ["OK", "OK 4294967295"])
equal(shown(",".join(["free=1"] * 64)), ["OK", "OK no limit"])
fails(code.RESOURCE_EXHAUSTED, "at most 4194304", lambda: ask("free=" + "x" * (10 << 20)))
# A client's long header is no way past its limit: Envoy would let pass what gets an error.
for length in (65_000, 100_000, 1 << 20, (4 << 20) - 100):
    equal(shown("free=" + "x" * length), ["OK", "OK 4294967295"])
    equal(shown("long=" + "y" * length), ["OK", "OK 0/1 DAY"])
    equal(shown("long=" + "y" * length), ["OVER_LIMIT", "OVER_LIMIT 0/1 DAY"])
compressed = lambda: raw(b"\x0a" + b"\x00" * 5_000, compression=grpc.Compression.Gzip, timeout=10)
fails(code.UNIMPLEMENTED, "ompress", compressed)
nothing = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/Nothing")
fails(code.UNIMPLEMENTED, "no such method", lambda: nothing(b"", timeout=10))
alive()
print("done")
