-- What the machines share.

local sub = string.sub

-- The state of one counter as it is read: two integers (three where two counts share one), the start of an overage, marks.
local fresh, word, previous, over, marks = 0, 0, 0, 0, ""
-- What is to be stored instead.
local new_fresh, new_word, new_previous, new_over, new_marks = 0, 0, 0, 0, ""
-- The cost that is asked for, whose slots these are, and when what is given back was charged.
local cost, lease, charged_at = 0, "\0\0\0\0\0\0\0\0", 0
-- The answer; `retry` is nil for never.
local allowed, overage, remaining, reset, retry, delay, excess = true, false, 0, 0, 0, 0, 0
