# What the scripts share: a client whose only knowledge of the service is what reflection tells. Arguments: the address.
import sys

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

address = sys.argv[1]
channel = grpc.insecure_channel(address)
database = ProtoReflectionDescriptorDatabase(channel)
pool = descriptor_pool.DescriptorPool(database)


def kind(name):
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


Request = kind("envoy.service.ratelimit.v3.RateLimitRequest")
Response = kind("envoy.service.ratelimit.v3.RateLimitResponse")
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
method = channel.unary_unary(METHOD, Request.SerializeToString, Response.FromString)
raw = channel.unary_unary(METHOD, lambda message: message, lambda message: message)


def descriptor(entries, **more):
    pairs = [pair.split("=") for pair in entries.split(",")] if entries else []
    return {"entries": [{"key": key, "value": value} for key, value in pairs], **more}


def request(*descriptors, domain="d", **more):
    asked = [descriptor(one) if isinstance(one, str) else one for one in descriptors]
    return json_format.ParseDict({"domain": domain, "descriptors": asked, **more}, Request())


def ask(*descriptors, **more):
    answer = method(request(*descriptors, **more), timeout=10)
    return json_format.MessageToDict(answer)


def shown(*descriptors, **more):
    """The overall code, and of each status the code, what remains of the limit, and its unit and name."""
    answer = ask(*descriptors, **more)
    words = [answer["overallCode"]]
    for status in answer["statuses"]:
        limit = status.get("currentLimit")
        remaining = status.get("limitRemaining", 0)
        if limit is None:
            assert "durationUntilReset" not in status, status
            words.append(f"{status['code']} {remaining or 'no limit'}")
            continue
        reset = status["durationUntilReset"]
        assert reset.endswith("s") and "." not in reset and int(reset[:-1]) > 0, reset
        total = limit.get("requestsPerUnit", 0)
        name = limit.get("name", "")
        words.append(f"{status['code']} {remaining}/{total} {limit.get('unit', '-')} {name}".strip())
    return words


def equal(got, expected):
    assert got == expected, f"\n     got {got}\nexpected {expected}"


def fails(code, text, call):
    try:
        answer = call()
    except grpc.RpcError as error:
        assert error.code() == code and text in error.details(), f"{error.code()} {error.details()}"
        return
    raise AssertionError(f"it was answered: {answer}")


