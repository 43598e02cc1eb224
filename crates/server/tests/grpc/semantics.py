# Every shape of a status, and what makes it.
OVER, OK = "OVER_LIMIT", "OK"

equal(shown("day=1"), [OK, "OK 1/2 DAY two"])
equal(shown("day=1"), [OK, "OK 0/2 DAY two"])
equal(shown("day=1"), [OVER, "OVER_LIMIT 0/2 DAY two"])
equal(shown("day=2"), [OK, "OK 1/2 DAY two"])
equal(shown("nobody=1"), [OK, "OK no limit"])
equal(shown("day=1", domain="elsewhere"), [OK, "OK no limit"])
equal(shown(""), [OK, "OK no limit"])
equal(shown("free=1"), [OK, "OK 4294967295"])
equal(shown("listed=1"), [OK, "OK no limit"])
equal(shown("year=1", "month=1", "week=1"), [OK, "OK 9/10 YEAR", "OK 9/10 MONTH", "OK 9/10 WEEK"])

# Burning, peeking, refunding.
spend = lambda hits, key="hits=1", **more: descriptor(key, hitsAddend=hits, **more)
equal(shown(spend(8)), [OK, "OK 2/10 YEAR"])
equal(shown(spend(5)), [OVER, "OVER_LIMIT 0/10 YEAR"])
equal(shown("hits=1"), [OVER, "OVER_LIMIT 0/10 YEAR"])
equal(shown(spend(5, isNegativeHits=True)), [OK, "OK 1/10 YEAR"])
equal(shown(spend(0)), [OK, "OK 1/10 YEAR"])
equal(shown("hits=1"), [OK, "OK 0/10 YEAR"])
equal(shown(spend(0)), [OK, "OK 0/10 YEAR"])
equal(shown("hits=2", hitsAddend=3), [OK, "OK 7/10 YEAR"])
equal(shown(spend(1, "hits=2"), hitsAddend=3), [OK, "OK 6/10 YEAR"])
equal(shown(spend(0, "none=1")), [OK, "OK 0/0 YEAR"])
equal(shown("none=1"), [OVER, "OVER_LIMIT 0/0 YEAR"])

# Limits that come with the request.
own = lambda n, unit, key="own=1": descriptor(key, limit={"requestsPerUnit": n, "unit": unit})
equal(shown(own(2, "YEAR")), [OK, "OK 1/2 YEAR"])
equal(shown(own(2, "YEAR")), [OK, "OK 0/2 YEAR"])
equal(shown(own(2, "YEAR")), [OVER, "OVER_LIMIT 0/2 YEAR"])
equal(shown(own(9, "MONTH")), [OK, "OK 8/9 MONTH"])
for number, unit in enumerate(["SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"]):
    equal(shown(own(50 + number, unit, f"unit={unit}")), [OK, f"OK {49 + number}/{50 + number} {unit}"])

# Shadows, quotas, replacements, shared counters.
equal(shown("shadow=1"), [OK, "OK 0/0 DAY"])
equal(shown("quota=1", "day=3"), [OVER, "OVER_LIMIT 0/0 DAY", "OK 1/2 DAY two"])
equal(shown("quota=1", "roomy=1"), [OK, "OVER_LIMIT 0/0 DAY", "OK 8/9 DAY"])
equal(shown("quota=1", "quota=2"), [OVER, "OVER_LIMIT 0/0 DAY", "OVER_LIMIT 0/0 DAY"])
equal(shown("none=1", "new=1"), [OVER, "OVER_LIMIT 0/0 YEAR", "OK 8/9 DAY"])
equal(shown("old=1", "new=1"), [OK, "OK no limit", "OK 7/9 DAY"])
equal(shown("old=1"), [OVER, "OVER_LIMIT 0/0 DAY old"])
equal(shown("shared=ab"), [OK, "OK 1/2 DAY"])
equal(shown("shared=ac"), [OK, "OK 0/2 DAY"])
equal(shown("shared=ad"), [OVER, "OVER_LIMIT 0/2 DAY"])
equal(shown("a=1,b=2"), [OK, "OK 4/5 DAY"])
equal(shown("b=2,a=1"), [OK, "OK no limit"])

# tollgate's own rules: a denial charges nothing.
equal(shown("user=1", domain="own"), [OK, "OK 2/3 DAY per-user"])
equal(shown(spend(3, "user=1"), domain="own"), [OVER, "OVER_LIMIT 2/3 DAY per-user"])
equal(shown(spend(2, "user=1"), domain="own"), [OK, "OK 0/3 DAY per-user"])

# What upstream refuses, in its words; and what it dies of.
unknown = grpc.StatusCode.UNKNOWN
fails(unknown, "rate limit domain must not be empty", lambda: ask("day=1", domain=""))
fails(unknown, "rate limit descriptor list must not be empty", lambda: ask())
invalid = grpc.StatusCode.INVALID_ARGUMENT
for unit in (0, 7, 99, -1):
    fails(invalid, f"unit {unit} is not one of", lambda: ask(own(1, unit)))
equal(shown("day=4"), [OK, "OK 1/2 DAY two"])
print("done")
