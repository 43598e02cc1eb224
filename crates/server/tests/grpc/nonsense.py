# Messages that make no sense get gRPC's own errors, and the next is answered.
code = grpc.StatusCode


def alive():
    equal(shown("free=1"), ["OK", "OK 4294967295"])


good = request("free=1").SerializeToString()
fails(code.INVALID_ARGUMENT, "ends in the middle", lambda: raw(good[:-1], timeout=10))
fails(code.INVALID_ARGUMENT, "no RateLimitRequest", lambda: raw(b"\xff" * 50, timeout=10))
fails(code.INVALID_ARGUMENT, "not UTF-8", lambda: raw(b"\x0a\x01\xff", timeout=10))
fails(code.INVALID_ARGUMENT, "at most 64 descriptors", lambda: ask(*["free=1"] * 65))
fails(code.INVALID_ARGUMENT, "at most 32 entries", lambda: ask(",".join(["free=1"] * 33)))
fails(code.RESOURCE_EXHAUSTED, "at most 65536", lambda: ask("free=" + "x" * (10 << 20)))
equal(shown("free=" + "x" * 65_000), ["OK", "OK 4294967295"])
equal(shown("long=" + "y" * 65_000), ["OK", "OK 0/1 DAY"])
equal(shown("long=" + "y" * 65_000), ["OVER_LIMIT", "OVER_LIMIT 0/1 DAY"])
compressed = lambda: raw(b"\x0a" + b"\x00" * 5_000, compression=grpc.Compression.Gzip, timeout=10)
fails(code.UNIMPLEMENTED, "ompress", compressed)
nothing = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/Nothing")
fails(code.UNIMPLEMENTED, "no such method", lambda: nothing(b"", timeout=10))
alive()
print("done")
