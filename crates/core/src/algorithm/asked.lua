-- What the machines share beyond that.

-- The cost that is asked for, whose slots these are, and when what is given back was charged.
local cost, lease, charged_at = 0, "\0\0\0\0\0\0\0\0", 0
-- What else is to be stored.
local new_over, new_marks = 0, ""
-- What else is answered; `retry` is nil for never.
local allowed, overage, retry, delay, excess = true, false, 0, 0, 0
