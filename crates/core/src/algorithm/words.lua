-- What all parts of the script share.

local spread, unpack, pack, sub, byte = unpack, struct.unpack, struct.pack, string.sub, string.byte

-- What is asked: the instant, the cost, whose slots these are, and when what is given back was charged.
local now, cost, lease, charged_at = 0, 0, "\0\0\0\0\0\0\0\0", 0
-- The state of one counter as it is read: two integers (three where two counts share one), the start of an overage, marks.
local fresh, word, previous, over, marks = 0, 0, 0, 0, ""
-- What is to be stored instead.
local new_fresh, new_word, new_previous, new_over, new_marks = 0, 0, 0, 0, ""
-- The answer; `retry` is nil for never.
local allowed, overage = true, false
local retry, remaining, reset, delay, excess = 0, 0, 0, 0, 0
