-- What the machines share.

local sub = string.sub

-- The state of one counter as it is read: two integers (three where two counts share one), the start of an overage, and marks.
local fresh, word, previous, over, marks = 0, 0, 0, 0, ""
-- What is to be stored instead.
local new_fresh, new_word, new_previous, new_over, new_marks = 0, 0, 0, 0, ""
-- How many marks are kept elsewhere, in blocks, and how many bytes of the others are before them.
local ahead, between, new_ahead, new_between = 0, 0, 0, 0
-- What becomes of the blocks, if they do not stay as they are: those from `from` to before `to` stay, `changed` is `block` now, `added` come
-- after them, and `index` is their index then.
local new_edit
-- Gets a block by its number, from 0 on, which ends with a mark of the given instant; gets their index. Set by whoever keeps them.
local read_block, read_index
-- The cost that is asked for, whose slots these are, and when what is given back was charged.
local cost, lease, charged_at = 0, "\0\0\0\0\0\0\0\0", 0
-- The answer; `retry` is nil for never.
local allowed, overage, remaining, reset, retry, delay, excess = true, false, 0, 0, 0, 0, 0
