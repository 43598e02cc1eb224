# Headers, metadata and the modes of the whole service. Started with all of them.
answer = ask("few=1", "many=1", hitsAddend=1)
equal(answer["overallCode"], "OK")
headers = answer["responseHeadersToAdd"]
equal([header["key"] for header in headers], ["X-Limit", "X-Left", "X-Reset"])
equal([header["value"] for header in headers[:2]], ["5", "4"])
equal(headers[2]["value"] + "s", answer["statuses"][0]["durationUntilReset"])
told = answer["dynamicMetadata"]
equal(told["domain"], "d")
equal(told["hitsAddend"], 1)
equal(told["descriptors"], [{"entries": ["few=1"]}, {"entries": ["many=1"]}])
equal(told["metadata"], {"plan": "gold", "deep": {"x": 1, "z": True}})
override = descriptor("few=2", limit={"requestsPerUnit": 7, "unit": "HOUR"}, hitsAddend=2)
told = ask(override)["dynamicMetadata"]["descriptors"]
equal(told, [{"entries": ["few=2"], "limit": "requests_per_unit:7 unit:HOUR", "hitsAddend": 2}])
# Nothing is denied, and the status says what would have been.
equal(shown("none=1"), ["OK", "OVER_LIMIT 0/0 DAY"])
assert "responseHeadersToAdd" not in ask("unknown=1")
print("done")
