-- What all parts of the script share.

local spread = unpack
local unpack, pack = struct.unpack, struct.pack
local sub, byte, find, rep = string.sub, string.byte, string.find, string.rep
local floor = math.floor
local MAX = 9007199254740991

-- What is asked: the instant, the cost, whose slots these are, and when what is given back was charged.
local now, cost, lease, charged_at = 0, 0, "", 0
-- The state of one counter as it is read: two integers (three where two counts share one), the start of an overage, marks.
local fresh, word, previous, over, marks = 0, 0, 0, 0, ""
-- What is to be stored instead.
local new_fresh, new_word, new_previous, new_marks = 0, 0, 0, ""

-- Thrown with an instant: the windows that were sent do not reach that far.
local again = { at = 0 }
