# Health and reflection. Arguments: the address, and the process to end.
import os
import signal

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

health = health_pb2_grpc.HealthStub(channel)
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
for service in ("", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"):
    equal(health.Check(health_pb2.HealthCheckRequest(service=service)).status, SERVING)
unknown = health_pb2.HealthCheckRequest(service="unknown")
fails(grpc.StatusCode.NOT_FOUND, "unknown service", lambda: health.Check(unknown))
watch = health.Watch(unknown)
equal(next(watch).status, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
watch.cancel()

services = [
    "envoy.service.ratelimit.v3.RateLimitService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
]
equal(list(database.get_services()), services)
for service in services:
    found = pool.FindServiceByName(service)
    for offered in found.methods:
        assert offered.input_type.fields and offered.output_type.fields, offered.full_name
Question = reflection_pb2.ServerReflectionRequest
for version in ("v1", "v1alpha"):
    ask_it = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        Question.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    questions = [
        Question(list_services=""),
        Question(file_containing_symbol="envoy.type.v3.RateLimitUnit"),
        Question(file_by_filename="google/protobuf/struct.proto"),
        Question(file_by_filename="no/such.proto"),
        Question(all_extension_numbers_of_type="google.protobuf.Struct"),
    ]
    answers = list(ask_it(iter(questions)))
    equal([service.name for service in answers[0].list_services_response.service], services)
    assert b"RateLimitUnit" in answers[1].file_descriptor_response.file_descriptor_proto[0]
    assert b"ListValue" in answers[2].file_descriptor_response.file_descriptor_proto[0]
    equal([answer.error_response.error_code for answer in answers[3:]], [5, 5])
    equal([answer.original_request for answer in answers], questions)

# Whoever watches hears of the end before it comes, and everything is answered meanwhile.
watch = health.Watch(health_pb2.HealthCheckRequest(service="ratelimit"))
equal(next(watch).status, SERVING)
os.kill(int(sys.argv[2]), signal.SIGTERM)
equal(next(watch).status, NOT_SERVING)
equal(health.Check(health_pb2.HealthCheckRequest()).status, NOT_SERVING)
equal(shown("a=1"), ["OK", "OK no limit"])
fails(grpc.StatusCode.UNAVAILABLE, "closing", lambda: next(watch))
print("done")
