-- What all parts of the script share.

local spread, unpack, pack, sub, byte = unpack, struct.unpack, struct.pack, string.sub, string.byte

-- The instant of the decision.
local now = 0
-- The state of one counter as it is read: two integers (three where two counts share one), the start of an overage, marks.
local fresh, word, previous, over, marks = 0, 0, 0, 0, ""
-- What is to be stored instead.
local new_fresh, new_word, new_previous = 0, 0, 0
-- The answer.
local remaining, reset = 0, 0
